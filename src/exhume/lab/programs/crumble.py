"""Leaves its memory full of holes, and has the kernel compact all memory, over and over. Words: seconds, MiB."""

import mmap
import sys
import time
from pathlib import Path

_COMPACT = Path("/proc/sys/vm/compact_memory")


def perforate(memory: mmap.mmap) -> None:
    """Touch all of it and give back every other page."""
    memory[:: mmap.PAGESIZE] = bytes(len(memory) // mmap.PAGESIZE)
    for start in range(0, len(memory), 2 * mmap.PAGESIZE):
        memory.madvise(mmap.MADV_DONTNEED, start, mmap.PAGESIZE)


if __name__ == "__main__":
    until = time.monotonic() + float(sys.argv[1])
    memory = mmap.mmap(-1, int(sys.argv[2]) << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    perforate(memory)
    while time.monotonic() < until:
        _COMPACT.write_text("1")
