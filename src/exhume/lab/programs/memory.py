"""Programs that use memory. Run as: memory.py PROGRAM ARGUMENT..."""

import contextlib
import ctypes
import mmap
import os
import signal
import sys
import time
from pathlib import Path

PAUSE_S = 0.2


def buffers(seconds: str, mib: str) -> None:
    """Allocates memory, writes to it, and frees it, a few times per second."""
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        held = bytearray(int(mib) << 20)
        held[:: mmap.PAGESIZE] = b"x" * len(held[:: mmap.PAGESIZE])
        time.sleep(PAUSE_S)
        del held


def page_faults(seconds: str, mib: str) -> None:
    """Touches memory and frees it, over and over: each time, every page takes a page fault."""
    until = time.monotonic() + float(seconds)
    memory = mmap.mmap(-1, int(mib) << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages doesn't know the word
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    touched = bytes(len(memory) // mmap.PAGESIZE)
    while time.monotonic() < until:
        memory[:: mmap.PAGESIZE] = touched
        memory.madvise(mmap.MADV_DONTNEED)


_COMPACT = Path("/proc/sys/vm/compact_memory")


def compact(seconds: str, mib: str) -> None:
    """Leaves its memory full of holes, and triggers compaction of all memory, over and over."""
    until = time.monotonic() + float(seconds)
    memory = mmap.mmap(-1, int(mib) << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:: mmap.PAGESIZE] = bytes(len(memory) // mmap.PAGESIZE)
    for start in range(0, len(memory), 2 * mmap.PAGESIZE):
        memory.madvise(mmap.MADV_DONTNEED, start, mmap.PAGESIZE)
    while time.monotonic() < until:
        _COMPACT.write_text("1")


MAPPINGS = 8
# A fault maps its neighbours as well (fault-around), so touch one page in this many bytes.
AROUND = 16 * mmap.PAGESIZE


def map_pages(seconds: str, join_file: str, path: str) -> None:
    """Joins a cgroup and reads a file through several mappings, again and again."""
    join(join_file)
    until = time.monotonic() + float(seconds)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    views = [mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ) for _ in range(MAPPINGS)]
    while True:
        for offset in range(0, len(views[0]), AROUND):
            for view in views:
                view[offset]
            if time.monotonic() >= until:
                return


def join(path: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123 (pathlib allocates more, which is charged)
        file.write("0")


STEP = 1 << 20


def exceed_limit(seconds: str, join_file: str, size: str, pause: str, times: str) -> None:
    """Starts a child that joins a cgroup and allocates more bytes than its limit; when the child is killed, starts
    another, up to the given number of times."""
    until = time.monotonic() + float(seconds)
    for _ in range(int(times)):
        child = os.fork()
        if child == 0:
            join(join_file)
            held = [bytearray(b"\xee" * STEP) for _ in range(int(size) // STEP)]
            sys.exit(f"{len(held)} MiB were granted: there is no limit here")
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            sys.exit("the child was not killed")
        if time.monotonic() + float(pause) >= until:
            return
        time.sleep(float(pause))


def hold_file(kind: str, path: str) -> None:
    """Maps a file and touches each page; with `mlock` locks it, so that it can't be reclaimed; reports that, and
    sleeps."""
    # Only once it is recorded that this process exists; if its input ends, its starter has died.
    if sys.stdin.readline() != "hold\n":
        sys.exit("nothing to hold")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        # A private writable mapping would copy; ctypes needs a writable one to get the address, so it is shared.
        mapping = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        os.close(fd)
        mapping.madvise(mmap.MADV_RANDOM)
        for offset in range(0, len(mapping), mmap.PAGESIZE):
            mapping[offset]
        if kind == "mlock":
            libc = ctypes.CDLL(None, use_errno=True)
            start = ctypes.c_char.from_buffer(mapping)
            if libc.mlock(ctypes.byref(start), ctypes.c_size_t(len(mapping))) != 0:
                sys.exit(os.strerror(ctypes.get_errno()))
    except OSError as error:
        sys.exit(error.strerror)
    sys.stdout.write("holding\n")
    sys.stdout.flush()
    # Its starter, with the other end of these, may be gone by then.
    for stream in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    signal.pause()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
