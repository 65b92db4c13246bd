"""Touches memory and gives it back, over and over: a page fault for each page, each time. Words: seconds, MiB."""

import contextlib
import mmap
import sys
import time

if __name__ == "__main__":
    until = time.monotonic() + float(sys.argv[1])
    memory = mmap.mmap(-1, int(sys.argv[2]) << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages doesn't know the word
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    touched = bytes(len(memory) // mmap.PAGESIZE)
    while time.monotonic() < until:
        memory[:: mmap.PAGESIZE] = touched
        memory.madvise(mmap.MADV_DONTNEED)
