"""Joins a cgroup and looks at a file through several mappings, again and again. Words: seconds, join file, file.

A page that is mapped often costs more to take away than to bring in: that is what memory that is short is spent on.
"""

import mmap
import os
import sys
import time

MAPPINGS = 8
# A fault brings its neighbours along: so many pages at once.
AROUND = 16 * mmap.PAGESIZE


def look_through(path: str, until: float) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    views = [mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ) for _ in range(MAPPINGS)]
    while True:
        for offset in range(0, len(views[0]), AROUND):
            for view in views:
                view[offset]
            if time.monotonic() >= until:
                return


if __name__ == "__main__":
    with open(sys.argv[2], "w") as join:  # noqa: PTH123 (pathlib takes longer to load)
        join.write("0")
    look_through(sys.argv[3], time.monotonic() + float(sys.argv[1]))
