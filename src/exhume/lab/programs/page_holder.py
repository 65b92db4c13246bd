"""A program that keeps a file in memory: maps it, locks it if asked to, and sleeps. Standard library only."""

import ctypes
import mmap
import os
import signal
import sys


def hold(path: str, lock: bool) -> mmap.mmap:
    """Map a whole file and touch each page; locked pages can't be reclaimed."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    # Private and writable would copy; shared and writable is what ctypes needs to see the address.
    mapping = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    os.close(fd)
    mapping.madvise(mmap.MADV_RANDOM)
    for offset in range(0, len(mapping), mmap.PAGESIZE):
        mapping[offset]
    if lock:
        libc = ctypes.CDLL(None, use_errno=True)
        start = ctypes.c_char.from_buffer(mapping)
        if libc.mlock(ctypes.byref(start), ctypes.c_size_t(len(mapping))) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return mapping


if __name__ == "__main__":
    # Only once it is recorded that this process exists; at the end of its input its starter has died.
    if sys.stdin.readline() != "hold\n":
        sys.exit("not asked to hold anything")
    try:
        held = hold(sys.argv[2], lock=sys.argv[1] == "mlock")
    except OSError as error:
        sys.exit(f"{error.strerror}")
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    # Its starter may have gone by then, with the other end of these.
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    signal.pause()
