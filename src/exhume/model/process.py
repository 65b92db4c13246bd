"""This process: its scheduling priority, the memory it may take and gives back. Standard library only."""

import contextlib
import ctypes
import os
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path

# From malloc.h.
_M_ARENA_MAX = -8
# From sys/mman.h.
_MADV_DONTNEED = 4
# A tenth of the usual weight (kernel/sched/core.c, sched_prio_to_weight).
_BACKGROUND_NICE = 10


def use_one_arena() -> None:
    """One heap for all threads, called before there is a second thread: what a sealing thread frees can then be given
    back, instead of staying in a heap of its own."""
    # Another C library than glibc has no such heaps.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Hand freed memory back to the kernel."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def unmap_clean_pages() -> int:
    """Unmap the pages of programs and libraries that are as in their files: what start-up touched and is not in use
    would stay resident. Those in use are mapped again from the page cache at the next access. Returns the bytes.

    Only mappings that can't be written and hold no page of their own: MADV_DONTNEED would undo relocations in others
    (mm/madvise.c, madvise_dontneed_single_vma)."""
    libc = ctypes.CDLL(None)
    freed = 0
    try:
        with Path("/proc/self/smaps").open("rb") as lines:
            for start, end, resident in _clean_mappings(lines):
                if libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED) == 0:
                    freed += resident
    except (OSError, AttributeError):
        return freed
    return freed


def _clean_mappings(lines: Iterable[bytes]) -> Iterator[tuple[int, int, int]]:
    """Start, end and resident bytes of private mappings of files that are read-only and unchanged, in smaps."""
    head: list[bytes] = []
    resident = 0
    for line in lines:
        fields = line.split(None, 5)
        if not fields[0].endswith(b":"):
            head = fields
        elif fields[0] == b"Rss:":
            resident = int(fields[1]) * 1024
        elif fields[0] == b"Anonymous:" and len(head) == 6 and head[5].startswith(b"/"):
            private_and_fixed = b"w" not in head[1] and head[1].endswith(b"p")
            # Pages of its own are relocated ones, as they are in data that was made read-only later.
            if private_and_fixed and fields[1] == b"0" and resident:
                start, _, end = head[0].partition(b"-")
                yield int(start, 16), int(end, 16), resident


def memory_left() -> int | None:
    """The bytes that this process may still allocate before its own limit (RLIMIT_DATA); None where it has none."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit == resource.RLIM_INFINITY:
        return None
    return limit - int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


class _Usual:
    """The priority that this process had before it was raised; None where it was not."""

    nice: int | None = None


@contextlib.contextmanager
def raised_priority(nice: int) -> Iterator[int]:
    """While this lasts, the threads of this process have a nice value; yields the one that they have got. A value below
    the present one takes root or CAP_SYS_NICE; without it everything stays as it is."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    group = _autogroup()
    try:
        _set_threads(nice)
    except PermissionError:
        yield before
        return
    _Usual.nice = before
    # Where the kernel groups processes by session (kernel/sched/autogroup.c), nice counts within the group only. A
    # group that is shared with a shell, and with all that was started there, is left alone.
    alone = group is not None and os.getsid(0) == os.getpid()
    if alone:
        _set_autogroup(nice)
    try:
        yield nice
    finally:
        _Usual.nice = None
        with contextlib.suppress(PermissionError):
            _set_threads(before)
        if alone and group is not None:
            _set_autogroup(group)


def usual_priority(pid: int = 0) -> None:
    """Give a child process (without a number: this one, just forked) the priority from before it was raised."""
    if _Usual.nice is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, pid, _Usual.nice)


def first_to_end(pid: int) -> None:
    """Where memory runs out (a pod's limit among them), the kernel is to end this child and not us (mm/oom_kill.c,
    oom_badness)."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


def background(pid: int) -> None:
    """Let a child process that nothing waits for give way to others, in CPU time and in memory."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, _BACKGROUND_NICE)
    first_to_end(pid)


def share_priority(pid: int) -> None:
    """Give a child process the priority of this one, also where it leads a session, and so a group, of its own."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0))
    if (group := _autogroup()) is not None:
        _set_autogroup(group, pid)


def _set_threads(nice: int) -> None:
    """On Linux setpriority is for one thread (kernel/sys.c, sys_setpriority); threads that are made later inherit it.
    Libraries start some when they are loaded."""
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(task.name), nice)


def _autogroup() -> int | None:
    try:
        return int(Path("/proc/self/autogroup").read_text().rpartition("nice ")[2])
    except (OSError, ValueError):
        return None


def _set_autogroup(nice: int, pid: int | None = None) -> None:
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid or 'self'}/autogroup").write_text(str(nice))
