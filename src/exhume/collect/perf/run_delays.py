"""Run delay of the threads that compete for a core, and the CPU limits of their cgroups.

Only threads that were sampled on a full core shared by several threads are read, so a node with spare capacity pays
nothing. One file descriptor per thread stays open; attributes that hardly ever change (nice, affinity, cgroups) are
read for threads that live until a second reading, and again after half a minute. Measured on 6.18: 0.7 ms of CPU time a
tick for 64 threads (1.9 ms while their attributes are read), 0.03 ms on a node with spare capacity.
"""

import contextlib
import os
from collections.abc import Set
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from exhume.collect.cgroup.layout import Hierarchy, find_v1, find_v2, hierarchies
from exhume.collect.perf.sampler import Sampled
from exhume.collect.processes import read_start
from exhume.collect.sources.throttling import quota_of
from exhume.model.clock import NANOS, Tick
from exhume.model.tables import CgroupCpu, Columns, to_columns
from exhume.model.tables import RunDelays as RunDelayRow
from exhume.procfs.cgroup import parse_pid_cgroup, weight_to_shares
from exhume.procfs.host import Host
from exhume.procfs.pid_stat import parse_pid_stat
from exhume.procfs.pid_status import status_text
from exhume.procfs.schedstat import TaskSched, parse_task_schedstat

# A core with this share of its possible samples is full; a thread with this share of a core has it to itself.
_FULL, _ALONE = 0.8, 0.9
_THREADS_AT_MOST = 64
# Half of these are the most sampled threads; the others are those that get little CPU time, and wait.
_LARGEST = 32
_DESCRIBED_PER_TICK = 16
# A thread that waits all the time is not sampled in every second.
_KEPT_NS = 5 * NANOS
_DESCRIBED_AGAIN_NS = 30 * NANOS
_SCHEDSTAT_BYTES = 128


@dataclass(slots=True)
class _Attributes:
    """The attributes that decide how much CPU time a thread gets; None where they cannot be read."""

    nice: int | None = None
    policy: int | None = None
    affinity: str | None = None
    cgroup: str | None = None
    cpuset: str | None = None


@dataclass(slots=True)
class _Thread:
    """A competing thread, with its schedstat file kept open."""

    tid: int
    pid: int
    comm: str
    cpu: int
    fd: int
    sampled_at: int
    sched: TaskSched | None = None
    described_at: int | None = None
    attributes: _Attributes = field(default_factory=_Attributes)


class RunDelays:
    """Rows of run_delays and cgroup_cpu for the threads that compete in a tick."""

    def __init__(self, host: Host) -> None:
        self._proc = os.fspath(host.proc)
        self._threads: dict[int, _Thread] = {}
        self._cgroups = _CgroupReader(host)
        self._known: dict[str, tuple[object, ...]] = {}
        self._looked_at: dict[str, int] = {}

    def begin_segment(self) -> None:
        """Start a new segment, which must be complete by itself."""
        self._known.clear()
        self._looked_at.clear()

    def close(self) -> None:
        for tid in list(self._threads):
            self._drop(tid)

    def read(
        self, tick: Tick, sampled: Sampled, samples_per_core: float, ended: Set[int] = frozenset()
    ) -> dict[str, Columns]:
        """The rows of a tick in which the threads in `ended` exited."""
        self._follow(tick, sampled, samples_per_core, ended)
        rows: list[RunDelayRow] = []
        described = 0
        for thread in list(self._threads.values()):
            try:
                now = parse_task_schedstat(os.pread(thread.fd, _SCHEDSTAT_BYTES, 0))
            except OSError:
                self._drop(thread.tid)
                continue
            before, thread.sched = thread.sched, now
            if before is None or now is None or now == before:
                continue
            stale = thread.described_at is None or tick.end - thread.described_at >= _DESCRIBED_AGAIN_NS
            if stale and described < _DESCRIBED_PER_TICK:
                thread.attributes, thread.described_at = self._describe(thread.tid), tick.end
                described += 1
            ran, waited, about = now.run_ns - before.run_ns, now.wait_ns - before.wait_ns, thread.attributes
            rows.append(
                RunDelayRow(
                    time=tick.start,
                    tid=thread.tid,
                    pid=thread.pid,
                    comm=thread.comm,
                    cpu=thread.cpu,
                    run_ns=max(0, ran),
                    wait_ns=max(0, waited),
                    nice=about.nice,
                    policy=about.policy,
                    affinity=about.affinity,
                    cgroup=about.cgroup,
                    cpuset=about.cpuset,
                )
            )
        found: dict[str, Columns] = {"run_delays": to_columns("run_delays", rows)} if rows else {}
        if cgroups := self._changed_cgroups(tick, rows):
            found["cgroup_cpu"] = to_columns("cgroup_cpu", cgroups)
        return found

    def _follow(self, tick: Tick, sampled: Sampled, samples_per_core: float, ended: Set[int]) -> None:
        """Open the threads that compete now, and close those that no longer do."""
        places = competitors(sampled.cpus, sampled.tids, samples_per_core)
        # Most of the threads that compete in a fork storm have exited by now; trying them all took longer than
        # everything else.
        found = {tid: place for place in places if (tid := int(sampled.tids[place])) not in ended}
        for tid, place in found.items():
            if tid in self._threads:
                thread = self._threads[tid]
                thread.cpu, thread.comm = int(sampled.cpus[place]), str(sampled.names[place])
                thread.sampled_at = tick.end
        recent = [tid for tid, each in self._threads.items() if tick.end - each.sampled_at < _KEPT_NS]
        wanted = list(dict.fromkeys([*list(found)[:_LARGEST], *recent, *found]))[:_THREADS_AT_MOST]
        for tid in self._threads.keys() - set(wanted):
            self._drop(tid)
        for tid in wanted:
            if tid in self._threads:
                continue
            with contextlib.suppress(OSError):
                fd = os.open(f"{self._proc}/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
                place = found[tid]
                pid, cpu, comm = int(sampled.pids[place]), int(sampled.cpus[place]), str(sampled.names[place])
                self._threads[tid] = _Thread(tid, pid, comm, cpu, fd, tick.end)

    def _drop(self, tid: int) -> None:
        os.close(self._threads.pop(tid).fd)

    def _describe(self, tid: int) -> _Attributes:
        directory, about = f"{self._proc}/{tid}", _Attributes()
        stat = parse_pid_stat(read_start(f"{directory}/stat") or b"")
        if stat is not None:
            about.nice, about.policy = stat.nice, stat.policy
        about.affinity = status_text(read_start(f"{directory}/status") or b"", b"Cpus_allowed_list")
        paths = parse_pid_cgroup(read_start(f"{directory}/cgroup") or b"")
        about.cgroup = paths.get("cpu", paths.get(""))
        # The effective cpuset, which on v2 may be that of an ancestor (kernel/cgroup/cpuset.c, proc_cpuset_show).
        about.cpuset = (read_start(f"{directory}/cpuset") or b"").decode("utf-8", "replace").strip() or None
        return about

    def _changed_cgroups(self, tick: Tick, rows: list[RunDelayRow]) -> list[CgroupCpu]:
        changed: list[CgroupCpu] = []
        for path in dict.fromkeys(path for row in rows for path in (row.cgroup, row.cpuset) if path is not None):
            if tick.end - self._looked_at.get(path, 0) < _DESCRIBED_AGAIN_NS and path in self._known:
                continue
            self._looked_at[path] = tick.end
            shares, quota, cores = self._cgroups.read(path)
            if self._known.get(path) != (shares, quota, cores):
                self._known[path] = (shares, quota, cores)
                changed.append(CgroupCpu(tick.start, path, shares, quota, cores))
        return changed


def competitors(cpus: npt.NDArray[np.uint16], tids: npt.NDArray[np.int32], samples_per_core: float) -> list[int]:
    """The threads that share a full core, as the index of one sample each; the most often sampled first."""
    if len(cpus) < max(1.0, _FULL * samples_per_core):
        return []
    busy = np.bincount(cpus)
    pairs, first, counts = np.unique(
        cpus.astype(np.int64) << 32 | tids.astype(np.int64), return_index=True, return_counts=True
    )
    most = np.zeros(len(busy), np.int64)
    np.maximum.at(most, pairs >> 32, counts)
    shared = (busy >= _FULL * samples_per_core) & (most < _ALONE * busy)
    # Thread 0 is the idle task, whatever interrupted it.
    chosen = shared[pairs >> 32] & (tids[first] > 0)
    order = np.argsort(-counts[chosen], kind="stable")
    found: dict[int, int] = {}
    for place in first[chosen][order].tolist():
        # A thread that migrated was sampled on several cores.
        found.setdefault(int(tids[place]), place)
    return list(found.values())


class _CgroupReader:
    """Reads shares, quota and cpuset of cgroups, on v1 or v2."""

    def __init__(self, host: Host) -> None:
        layout = hierarchies(host)
        v2 = find_v2(layout)
        cpu, cpuset = find_v1(layout, "cpu"), find_v1(layout, "cpuset")
        self._cpu = _path(cpu or v2)
        self._weight, self._quota = ("cpu.shares", "cpu.cfs_quota_us") if cpu else ("cpu.weight", "cpu.max")
        self._cpuset = _path(cpuset or v2)
        self._cores = "cpuset.effective_cpus" if cpuset else "cpuset.cpus.effective"

    def read(self, path: str) -> tuple[int | None, float | None, str | None]:
        shares = quota = cores = None
        if self._cpu is not None:
            weight = _text(self._cpu, path, self._weight)
            if weight.isdigit():
                shares = int(weight) if self._weight == "cpu.shares" else weight_to_shares(int(weight))
            quota = quota_of(f"{self._cpu}{path}", self._quota)
        if self._cpuset is not None:
            cores = _text(self._cpuset, path, self._cores) or None
        return shares, quota, cores


def _path(hierarchy: Hierarchy | None) -> Path | None:
    return None if hierarchy is None else hierarchy.path


def _text(root: Path, path: str, name: str) -> str:
    return (read_start(f"{root}{path}/{name}") or b"").decode("ascii", "replace").strip()
