"""Staying small between segments: making the C library's allocator give memory back."""

import ctypes

# From malloc.h.
_M_ARENA_MAX = -8


def use_one_arena() -> None:
    """One heap for all threads, called before there is a second thread: what a sealing thread frees can then be given
    back, instead of staying in a heap of its own."""
    try:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    except (AttributeError, OSError):
        # Another C library than glibc, which has no such heaps.
        return


def give_back() -> None:
    """Hand freed memory back to the kernel."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return
