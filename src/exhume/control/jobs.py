"""The worker process: performs one small kernel operation, read from standard input.

A worker can be killed at any time, which is how a job's duration is bounded: the kernel aborts reclaim and swapoff when
a signal is pending, and nothing is lost. Disk I/O is not interruptible: a worker that waits for it exits when the I/O
completes. It prints when it begins and its progress, one number per line. Few imports beyond the standard library, so
that it starts quickly.
"""

import contextlib
import ctypes
import errno
import json
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from exhume.control.swap import FIRST, make_swapfile, swap_off, swap_on
from exhume.model.process import end_with

# include/uapi/asm-generic/mman-common.h, since Linux 5.4.
_MADV_PAGEOUT = 21
_MAPPED_AT_ONCE = 64 << 20
_REPORT_EVERY = 256
BEGUN = "begun"

Job = dict[str, Any]

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Do the job read from standard input; an error is printed with its errno and message."""
    job: Job = json.loads(sys.stdin.buffer.read())
    # If the caller is killed, no process is left to bound the job's duration.
    if not end_with(job.get("caller", os.getppid())):
        sys.exit(1)
    try:
        _settle(job)
        # The job's time limit counts from here.
        _report(BEGUN)
        JOBS[job["job"]](job)
    except OSError as error:
        number = error.errno or errno.EIO
        _report(f"error {number} {error.strerror}{f': {error.filename}' if error.filename else ''}")
        sys.exit(1)


def _settle(job: Job) -> None:
    """Move to the assigned core, at the lowest priority, into a cgroup that persists: memory charged during the job
    must not pin the caller's cgroup."""
    if job.get("core") is not None:
        # A core that went offline, or is outside of the cpuset, is no reason to fail.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {job["core"]})
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    if job.get("cgroup"):
        (Path(job["cgroup"]) / "cgroup.procs").write_text(str(os.getpid()))


def _reclaim(job: Job) -> None:
    """Reclaim memory below a cgroup."""
    file = Path(job["file"])
    # Reading memory.stat flushes the statistics that reclaim relies on (mm/memcontrol.c, mem_cgroup_flush_stats); with
    # stale ones it overlooks pages.
    (file.parent / "memory.stat").read_bytes()
    try:
        _write(file, job["text"])
    except OSError as error:
        # Older kernels do not support swappiness= in memory.reclaim.
        if error.errno != errno.EINVAL or not job.get("otherwise"):
            raise
        _write(file, job["otherwise"])


def _fadvise(job: Job) -> None:
    """Drop the cached pages of files, after writing back dirty ones."""

    def let_go(fd: int) -> None:
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)

    _for_each_file(job, let_go)


def _page_out(job: Job) -> None:
    """Page out files on tmpfs to swap. Linux before 5.4 has no MADV_PAGEOUT: there it is left to reclaim."""

    def page_out(fd: int) -> None:
        for begin, end in _data_ranges(fd):
            length = min(end, os.fstat(fd).st_size) - begin
            # Populated, since only mapped pages are paged out; not in holes, which mapping would fill.
            with mmap.mmap(fd, length, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ, offset=begin) as pages:
                pages.madvise(_MADV_PAGEOUT)

    _for_each_file(job, page_out)


def _data_ranges(fd: int) -> Iterator[tuple[int, int]]:
    """The ranges of a file that hold data, split into pieces small enough to be mapped."""
    begin = 0
    with contextlib.suppress(OSError):  # ENXIO: none is left
        while True:
            begin = os.lseek(fd, begin, os.SEEK_DATA)
            end = min(os.lseek(fd, begin, os.SEEK_HOLE), begin + _MAPPED_AT_ONCE)
            yield begin, end
            begin = end


def _for_each_file(job: Job, act: Callable[[int], None]) -> None:
    """Open each file of a job and act on it. Files that are gone, shrink or can't be opened are skipped: one of
    thousands must not stop the others."""
    for index, path in enumerate(job["files"]):
        if index % _REPORT_EVERY == 0:
            _report(str(index))
        with contextlib.suppress(OSError, ValueError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOATIME | os.O_NONBLOCK)
            try:
                act(fd)
            finally:
                os.close(fd)
    _report(str(len(job["files"])))


def _drop_caches(job: Job) -> None:
    """Write back dirty pages, which is the first part, then drop the caches."""
    os.sync()
    _report("1")
    _write(Path(job["file"]), "1")


def _swapfile(job: Job) -> None:
    """Create a swapfile and enable it with the highest priority, so that pages are swapped out to it."""
    make_swapfile(job["path"], job["size"])
    swap_on(job["path"], FIRST)


def _settings(job: Job) -> None:
    """Write values to cgroup files. Cgroups removed in the meantime are skipped."""
    for path, value in job["values"]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            try:
                _write(Path(path), value)
            except OSError as error:
                # The cgroup was removed between open and write.
                if error.errno != errno.ENODEV:
                    raise


def _report(line: str) -> None:
    os.write(1, line.encode(errors="replace") + b"\n")


def _write(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    except OSError as error:
        error.filename = os.fspath(path)
        raise
    finally:
        os.close(fd)


JOBS: dict[str, Callable[[Job], None]] = {
    "reclaim": _reclaim,
    "fadvise": _fadvise,
    "page-out": _page_out,
    "drop-caches": _drop_caches,
    "swapfile": _swapfile,
    "swapon": lambda job: swap_on(job["path"], job["priority"]),
    "swapoff": lambda job: swap_off(job["path"]),
    "settings": _settings,
}

if __name__ == "__main__":
    main()
