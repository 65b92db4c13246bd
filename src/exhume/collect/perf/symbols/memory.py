"""Memory handed back to the system after a burst of temporary arrays.

The allocator keeps what was freed between live blocks; after loading symbols that is several times what the
symbols themselves need, and the recorder has promised to stay small.
"""

import ctypes


def release_freed_memory() -> None:
    """Give freed heap pages back, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
