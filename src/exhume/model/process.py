"""This process: its end with its parent, its scheduling priority, and the memory that it may allocate and returns.
Standard library only."""

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

# From malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# Freed memory that stays at the end of the heap, and the size from which an allocation is a mapping of its own.
_FREED_KEPT = 8 << 20
_MAPPED_FROM = 4 << 20
# From linux/prctl.h.
_PR_SET_PDEATHSIG = 1
# From sys/mman.h.
_MADV_DONTNEED = 4
# A tenth of the usual weight (kernel/sched/core.c, sched_prio_to_weight).
_BACKGROUND_NICE = 10


def end_with(parent: int, number: int = signal.SIGKILL) -> bool:
    """Have the kernel send this process a signal when its parent ends, even if that was killed; False if the parent has
    already ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    return os.getppid() == parent


def use_one_arena() -> None:
    """Use a single malloc arena for all threads; call it before there is a second thread. Memory that a sealing thread
    frees can then be returned to the kernel instead of staying in an arena of its own."""
    # C libraries other than glibc have no arenas.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def keep_freed_memory() -> None:
    """Keep some megabytes of freed memory for the next allocations, until `give_back`. By default glibc returns the
    buffers of a second with many records to the kernel right after their use, and the next second has to page them in
    again (malloc/malloc.c, mp_.trim_threshold: twice the largest mapping that was freed)."""
    with contextlib.suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)
        libc.mallopt(_M_TRIM_THRESHOLD, _FREED_KEPT)


def give_back() -> None:
    """Return freed memory to the kernel."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def unmap_clean_pages() -> int:
    """Unmap clean file pages of programs and libraries: what start-up touched and is no longer used would otherwise
    stay resident. Pages in use are mapped again from the page cache on the next access. Returns the number of bytes.

    Only read-only mappings without private pages: in others MADV_DONTNEED would undo relocations (mm/madvise.c,
    madvise_dontneed_single_vma)."""
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
    """Start, end and resident bytes of the private, read-only and unmodified file mappings in smaps."""
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
            # Anonymous pages are relocated ones, for example in data that was made read-only after relocation.
            if private_and_fixed and fields[1] == b"0" and resident:
                start, _, end = head[0].partition(b"-")
                yield int(start, 16), int(end, 16), resident


def memory_left() -> int | None:
    """The bytes that this process may still allocate within its own limit (RLIMIT_DATA); None if it has none."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit == resource.RLIM_INFINITY:
        return None
    return limit - int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


class _Usual:
    """The priority that this process had before it was raised; None if it was not raised."""

    nice: int | None = None


@contextlib.contextmanager
def raised_priority(nice: int) -> Iterator[int]:
    """Context in which the threads of this process have a nice value; yields the value in effect. Lowering the nice
    value takes root or CAP_SYS_NICE; without it nothing changes."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    group = _autogroup()
    try:
        _set_threads(nice)
    except PermissionError:
        yield before
        return
    _Usual.nice = before
    # If the kernel groups processes by session (kernel/sched/autogroup.c), nice only counts within the group. A group
    # that is shared with a shell, and with everything started from it, is left alone.
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
    """Restore a child's priority from before it was raised (without a pid: this process, just forked)."""
    if _Usual.nice is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpriority(os.PRIO_PROCESS, pid, _Usual.nice)


def first_to_end(pid: int) -> None:
    """Make the OOM killer choose this child rather than us when memory runs out, also within a pod's limit
    (mm/oom_kill.c, oom_badness)."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")


def background(pid: int) -> None:
    """Make a child process that nothing waits for give way to others, in CPU time and in memory."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, _BACKGROUND_NICE)
    first_to_end(pid)


def share_priority(pid: int) -> None:
    """Give a child process this one's priority, even if it leads its own session and therefore its own autogroup."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0))
    if (group := _autogroup()) is not None:
        _set_autogroup(group, pid)


def _set_threads(nice: int) -> None:
    """Set the nice value of all threads. On Linux setpriority applies to a single thread (kernel/sys.c,
    sys_setpriority); threads created later inherit it. Libraries start some when they are loaded."""
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
