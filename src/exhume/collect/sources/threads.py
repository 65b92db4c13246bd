"""The kernel's per-core threads: how long they ran, and how long they waited for the core.

A ksoftirqd that waits is a core whose network queues are stalled. The kernel adds a wait when it ends
(kernel/sched/stats.h, sched_info_arrive), so a wait of six seconds appears in the tick in which the thread finally ran.
A thread that takes turns with others waits for many short times, which add up: the number of time slices tells them
apart.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from exhume.collect.source import Pace, TickRows, table_rows
from exhume.model.clock import Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.facts import MissingSource
from exhume.procfs.host import Host, subdirectories
from exhume.procfs.schedstat import TaskSched, parse_task_schedstat

_WATCHED = frozenset({"ksoftirqd", "rcuc", "migration", "ktimers", "rcuop", "backlog_napi"})
_KTHREADD = 2
_LARGEST = 128


@dataclass(slots=True)
class _Thread:
    """One watched thread, with its file kept open."""

    tid: int
    comm: str
    cpu: int
    fd: int
    content: bytes = b""
    sched: TaskSched | None = None


class ThreadSource:
    """Rows of the threads table, for the threads that ran or waited in the tick."""

    name = "threads"

    def __init__(self, host: Host) -> None:
        self._proc = os.fspath(host.proc)
        self._threads: dict[int, _Thread] = {}
        self._search_pace = Pace(60.0)
        self._search()
        if not self._threads:
            reason = "no per-core kernel threads can be seen with their /proc/PID/schedstat"
            remedy = "run in the node's pid namespace (hostPID), without hidepid on /proc"
            raise SourceUnavailable(self.name, reason, remedy)
        self.missing: tuple[MissingSource, ...] = ()
        self._look_for_waits()

    def read(self, tick: Tick) -> TickRows:
        if self._search_pace.due(tick.end):
            self._search()
            self._look_for_waits()
            self._search_pace.done(tick.end)
        rows: list[tuple[int, int, str, int, int, int, int]] = []
        for thread in list(self._threads.values()):
            try:
                content = os.pread(thread.fd, _LARGEST, 0)
            except OSError:
                self._drop(thread)
                continue
            if content == thread.content:
                continue
            thread.content = content
            before, thread.sched = thread.sched, parse_task_schedstat(content)
            if before is not None and thread.sched is not None:
                ran, waited, slices = (now - then for now, then in zip(thread.sched, before, strict=True))
                if min(ran, waited, slices) >= 0:
                    rows.append((tick.start, thread.tid, thread.comm, thread.cpu, ran, waited, slices))
        return table_rows("threads", ("time", "tid", "comm", "cpu", "run_ns", "wait_ns", "slices"), rows)

    def close(self) -> None:
        for thread in list(self._threads.values()):
            self._drop(thread)

    def _drop(self, thread: _Thread) -> None:
        os.close(thread.fd)
        del self._threads[thread.tid]

    def _search(self) -> None:
        """Find new threads: a core that comes online for the first time gets some."""
        # The children of kthreadd; every process if the kernel has no list of children.
        children = self._text(f"{_KTHREADD}/task/{_KTHREADD}/children").split() or subdirectories(self._proc)
        for tid in map(int, filter(str.isdigit, children)):
            if tid in self._threads:
                continue
            comm = self._text(f"{tid}/comm")
            name, _, core = comm.partition("/")
            if name not in _WATCHED or not core.isdigit():
                continue
            try:
                fd = os.open(f"{self._proc}/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            self._threads[tid] = _Thread(tid, comm, int(core), fd)

    def _look_for_waits(self) -> None:
        """Check whether waits are counted at all (include/linux/sched/stat.h, sched_info_on): threads as old as the
        boot have waited at some time."""
        self.missing = ()
        for thread in self._threads.values():
            with contextlib.suppress(OSError):
                sched = parse_task_schedstat(os.pread(thread.fd, _LARGEST, 0))
                if sched is not None and sched.wait_ns > 0:
                    return
        reason = "the kernel doesn't count how long threads wait for a core"
        remedy = "set sysctl kernel.task_delayacct=1, or run a kernel built with CONFIG_SCHEDSTATS"
        self.missing = (MissingSource(self.name, reason, remedy),)

    def _text(self, name: str) -> str:
        try:
            return Path(self._proc, name).read_text(errors="replace").strip()
        except OSError:
            return ""
