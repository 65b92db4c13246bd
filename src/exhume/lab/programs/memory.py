"""Programs that use memory. Run as: memory.py PROGRAM ARGUMENT..."""

import contextlib
import mmap
import os
import signal
import sys
import time
from pathlib import Path

PAUSE_S = 0.2


def run_buffers(argv: list[str]) -> None:
    """Takes memory, writes to it, and gives it back, a few times a second. Arguments: seconds, megabytes."""
    until = time.monotonic() + float(argv[1])
    size = int(argv[2]) << 20
    while time.monotonic() < until:
        held = bytearray(size)
        held[:: mmap.PAGESIZE] = b"x" * len(held[:: mmap.PAGESIZE])
        time.sleep(PAUSE_S)
        del held


def run_page_faults(argv: list[str]) -> None:
    """Touches memory and gives it back, over and over: a page fault for each page, each time.

    Arguments: seconds, MiB.
    """
    until = time.monotonic() + float(argv[1])
    memory = mmap.mmap(-1, int(argv[2]) << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages doesn't know the word
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    touched = bytes(len(memory) // mmap.PAGESIZE)
    while time.monotonic() < until:
        memory[:: mmap.PAGESIZE] = touched
        memory.madvise(mmap.MADV_DONTNEED)


_COMPACT = Path("/proc/sys/vm/compact_memory")


def perforate(memory: mmap.mmap) -> None:
    """Touch all of it and give back every other page."""
    memory[:: mmap.PAGESIZE] = bytes(len(memory) // mmap.PAGESIZE)
    for start in range(0, len(memory), 2 * mmap.PAGESIZE):
        memory.madvise(mmap.MADV_DONTNEED, start, mmap.PAGESIZE)


def run_compact(argv: list[str]) -> None:
    """Leaves its memory full of holes, and has the kernel compact all memory, over and over.

    Arguments: seconds, MiB.
    """
    until = time.monotonic() + float(argv[1])
    memory = mmap.mmap(-1, int(argv[2]) << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    perforate(memory)
    while time.monotonic() < until:
        _COMPACT.write_text("1")


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


def run_map_pages(argv: list[str]) -> None:
    """Joins a cgroup and looks at a file through several mappings, again and again.

    Arguments: seconds, join file, file.
    """
    with open(argv[2], "w") as join:  # noqa: PTH123 (pathlib takes longer to load)
        join.write("0")
    look_through(argv[3], time.monotonic() + float(argv[1]))


STEP = 1 << 20


def outgrow(join_file: str, most: int) -> None:
    """Take memory until the kernel kills this process."""
    with open(join_file, "w") as join:  # noqa: PTH123 (pathlib takes longer to load)
        join.write("0")
    held = [bytearray(b"\xee" * STEP) for _ in range(most // STEP)]
    sys.exit(f"{len(held)} MiB were granted: there is no limit here")


def supervise(until: float, join_file: str, most: int, pause: float, times: int) -> None:
    for _ in range(times):
        child = os.fork()
        if child == 0:
            outgrow(join_file, most)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            sys.exit("the child was not killed")
        if time.monotonic() + pause >= until:
            return
        time.sleep(pause)


def run_exceed_limit(argv: list[str]) -> None:
    """Starts a child that joins a cgroup and takes more memory than it may; when that is killed, another one.

    Arguments: seconds, join file, bytes to take, pause between two (seconds), how many at most.
    """
    seconds, join, size, pause, times = argv[1:]
    supervise(time.monotonic() + float(seconds), join, int(size), float(pause), int(times))


PROGRAMS = {
    "buffers": run_buffers,
    "page_faults": run_page_faults,
    "compact": run_compact,
    "map_pages": run_map_pages,
    "exceed_limit": run_exceed_limit,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](sys.argv[1:])
