"""Cgroups that were throttled by their CPU quota.

Cgroups with a quota are searched for in slices: a round every few seconds if that is cheap, else every minute. Those
found are read every second, and get a row when they were throttled.
"""

import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass

from exhume.collect.cgroup.layout import WHOLE_HIERARCHY, find_v1, find_v2, hierarchies
from exhume.collect.processes import read_start
from exhume.collect.source import TickRows, table_rows
from exhume.model.clock import MILLIS, NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.facts import MissingSource
from exhume.procfs.cgroup import Bandwidth, parse_cpu_max, parse_cpu_stat
from exhume.procfs.host import Host, ProcFile, subdirectories

# Rounds take about a thousandth of a core.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 5, 60
_PAUSE_PER_COST = 1000
_SEARCH_SLICE_NS = MILLIS
_READ_SLICE_NS = 2 * MILLIS
_TIMED_EVERY = 8
_USUAL_PERIOD_US = 100_000
# Two numbers of 64 bits and a newline take less.
_QUOTA_BYTES = 64
# How many files are kept open, and which fraction of this process's descriptor limit they may use. With more files, all
# are opened for each read, which takes half as long again.
_OPEN_AT_MOST, _OPEN_PART = 1024, 4


@dataclass(slots=True)
class _Limited:
    """A cgroup with a quota: when it was last read, and its counters then."""

    file: ProcFile
    quota: float
    content: bytes = b""
    counts: Bandwidth | None = None
    since: int = 0


class ThrottlingSource:
    """Rows of the throttling table. A row begins where the cgroup was last read: the previous tick, unless there are so
    many cgroups that they are read in turns."""

    name = "throttling"

    def __init__(self, host: Host) -> None:
        layout = hierarchies(host)
        found = find_v1(layout, "cpu") or find_v2(layout)
        if found is None:
            reason = "no hierarchy with the cpu controller is mounted"
            raise SourceUnavailable(self.name, reason, "mount cgroup2 at /sys/fs/cgroup")
        self._root = found.path
        self._quota = "cpu.cfs_quota_us" if found.version == 1 else "cpu.max"
        self.missing: tuple[MissingSource, ...] = ()
        if not found.whole:
            reason = f"{found.path} shows only a part of its hierarchy: cgroups beyond it are not seen being throttled"
            self.missing = (MissingSource(self.name, reason, WHOLE_HIERARCHY),)
        self._limited: dict[str, _Limited] = {}
        may_open, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._open_at_most = min(_OPEN_AT_MOST, may_open // _OPEN_PART)
        self._search: Iterator[None] | None = None
        self._next_round = 0
        self._round_cost = 0
        self._turn = 0

    def read(self, tick: Tick) -> TickRows:
        self._go_on_searching(tick)
        rows = []
        names = list(self._limited)
        deadline = time.thread_time_ns() + _READ_SLICE_NS
        first = self._turn if self._turn < len(names) else 0
        for step, name in enumerate((*names[first:], *names[:first]), 1):
            row = self._throttled(name, tick)
            if row is not None:
                rows.append(row)
            # Asking for the CPU time of this thread takes a fifth of what it takes to read a cgroup.
            if step % _TIMED_EVERY == 0 and time.thread_time_ns() > deadline:
                self._turn = (first + step) % len(names)
                break
        return table_rows("throttling", ("time", "cgroup", "periods", "throttled", "throttled_ns", "quota"), rows)

    def close(self) -> None:
        for limited in self._limited.values():
            limited.file.close()
        self._limited = {}

    def _throttled(self, name: str, tick: Tick) -> tuple[int, str, int, int, int, float] | None:
        limited = self._limited[name]
        content = limited.file.read_or_none()
        if len(self._limited) > self._open_at_most or content is None:
            limited.file.close()
        if content is None:
            del self._limited[name]
            return None
        if content == limited.content:
            # It did not run, as is the case for most of them, most of the time.
            limited.since = tick.end
            return None
        limited.content = content
        now = parse_cpu_stat(content)
        before, since = limited.counts, limited.since
        limited.counts, limited.since = now, tick.end
        if before is None or now is None:
            return None
        periods, throttled, nanos = (new - old for new, old in zip(now, before, strict=True))
        # kernel/sched/fair.c counts a throttled period when it ends (do_sched_cfs_period_timer) and its time when the
        # cgroup runs again (unthrottle_cfs_rq), possibly a tick later.
        if periods < 0 or nanos < 0 or throttled < 0 or throttled + nanos == 0:
            return None
        return since, name, periods, throttled, nanos, limited.quota

    def _go_on_searching(self, tick: Tick) -> None:
        if self._search is None:
            if tick.end < self._next_round:
                return
            self._search = self._round()
            self._round_cost = 0
        began = time.thread_time_ns()
        for _ in self._search:
            if time.thread_time_ns() > began + _SEARCH_SLICE_NS:
                self._round_cost += time.thread_time_ns() - began
                return
        self._search = None
        cost = self._round_cost + time.thread_time_ns() - began
        pause = min(max(cost * _PAUSE_PER_COST, _SHORTEST_PAUSE_S * NANOS), _LONGEST_PAUSE_S * NANOS)
        self._next_round = tick.end + pause

    def _round(self) -> Iterator[None]:
        """Visit every cgroup once, pausing after each."""
        pending = [os.fspath(self._root)]
        root = pending[0]
        while pending:
            path = pending.pop()
            yield
            children = [f"{path}/{name}" for name in subdirectories(path)]
            for child in children:
                name = child[len(root) :]
                quota = quota_of(child, self._quota)
                if name in self._limited:
                    self._limited[name].quota = quota or self._limited[name].quota
                elif quota is not None:
                    self._limited[name] = _Limited(ProcFile(f"{child}/cpu.stat", single=True), quota)
                yield
            for child in children:
                # A leaf has two links: itself and its name.
                try:
                    if os.stat(child).st_nlink != 2:  # noqa: PTH116  as long again with pathlib
                        pending.append(child)
                except OSError:
                    continue


def quota_of(directory: str, file: str) -> float | None:
    """The limit in a cgroup's quota file (`cpu.cfs_quota_us` or `cpu.max`), in cores; None without a limit."""
    content = read_start(f"{directory}/{file}", _QUOTA_BYTES)
    limit = parse_cpu_max(content) if content else None
    if limit is None:
        return None
    quota, period = limit
    if period is None:
        text = (read_start(f"{directory}/cpu.cfs_period_us", _QUOTA_BYTES) or b"").strip()
        period = int(text) if text else _USUAL_PERIOD_US
    return quota / period
