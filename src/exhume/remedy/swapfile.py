"""Making a swapfile, and turning swaps on and off. Standard library only: workers that have to start quickly use it."""

import ctypes
import mmap
import os
import struct

# Before every other swap, so that what goes out goes there.
FIRST = 0x7FFF
_SWAP_FLAG_PREFER = 0x8000
_SIGNATURE = b"SWAPSPACE2"
_LABEL = b"exhume"

_libc = ctypes.CDLL(None, use_errno=True)


def make_swapfile(path: str, size: int) -> None:
    """A new file that can be turned on as swap. Raises OSError."""
    pages = size // mmap.PAGESIZE
    header = bytearray(mmap.PAGESIZE)
    # Version 1, last page, no bad pages, no identifier, a label; the signature ends the page.
    struct.pack_into("=III16x16s", header, 1024, 1, pages - 1, 0, _LABEL)
    header[-len(_SIGNATURE) :] = _SIGNATURE
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        # A swapfile must not have holes.
        os.posix_fallocate(fd, 0, pages * mmap.PAGESIZE)
        os.pwrite(fd, header, 0)
        os.fsync(fd)
    finally:
        os.close(fd)


def swap_on(path: str, priority: int) -> None:
    """Turn a swap on. Raises OSError."""
    # Negative priorities are the kernel's own, given in the order of turning on.
    flags = _SWAP_FLAG_PREFER | priority if priority >= 0 else 0
    if _libc.swapon(os.fsencode(path), flags) != 0:
        raise _last_error(path)


def swap_off(path: str) -> None:
    """Turn a swap off; what is in it comes back to memory. Raises OSError."""
    if _libc.swapoff(os.fsencode(path)) != 0:
        raise _last_error(path)


def _last_error(path: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), path)
