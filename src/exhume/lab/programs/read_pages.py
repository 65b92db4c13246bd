"""Joins a cgroup and reads one byte of every page of a file, again and again. Words: seconds, join file, file."""

import mmap
import os
import sys
import time


def read_through(path: str, until: float) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    size = os.fstat(fd).st_size
    while True:
        for offset in range(0, size, 64 * mmap.PAGESIZE):
            # Into the page cache, not into this program: that is what the limit is about.
            os.posix_fadvise(fd, offset, 64 * mmap.PAGESIZE, os.POSIX_FADV_WILLNEED)
            if time.monotonic() >= until:
                return


if __name__ == "__main__":
    with open(sys.argv[2], "w") as join:  # noqa: PTH123 (pathlib takes longer to load)
        join.write("0")
    read_through(sys.argv[3], time.monotonic() + float(sys.argv[1]))
