"""Competition for cores: how many threads wait for each core, which ones, what they may use, and who owns them.

Waits of a core are the kernel's sum over all threads (table `cpu`). Waits of threads are known only for those that the
recorder followed (`run_delays`), which excludes very short-lived ones.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import NamedProcess
from exhume.diagnose.evidence.rows import Floats, Ints, Rows
from exhume.diagnose.facts.core_hogs import waits_of_cores
from exhume.diagnose.facts.owners import CgroupOwner, owner_of
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Entity, Evidence, process_entity
from exhume.procfs.cpulist import parse_cpulist

# Rows of cgroup_cpu are written once per segment.
_CGROUPS_S = 600.0
# The largest processes are examined one by one, up to this many.
_MOST_PROCESSES = 200
# Assumed life of a process that was sampled only once.
_SHORTEST_LIFE_NS = NANOS // 10
_IDLE = ("idle", "iowait")
_ROOM = ("idle", "iowait", "nice")
_IDLE_POLICY = 5  # SCHED_IDLE (include/uapi/linux/sched.h)
# cpu.shares of a pod without a CPU request (kubelet, MinShares): it runs when nothing else wants to.
_LEAST_SHARES = 2


@dataclass(frozen=True, slots=True)
class CgroupUse:
    """What a cgroup may use, as last recorded: shares, quota in cores, the cores of its cpuset."""

    shares: int | None = None
    quota: float | None = None
    cores: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class Waiter(NamedProcess):
    """A thread that competed for a core in the focus: the seconds it ran, and the seconds it waited to run. `allowed`
    are the cores it may use; `background`: it gives way to all others because of its nice value, policy or shares."""

    tid: int
    run_s: float
    wait_s: float
    background: bool
    allowed: frozenset[int] | None
    cgroup: str | None
    cpuset: str | None
    evidence: Evidence

    @property
    def delayed(self) -> float:
        """Of the time that the thread wanted a core, the fraction it had to wait."""
        return self.wait_s / max(self.wait_s + self.run_s, 1e-9)


@dataclass
class Demand:
    """What one owner wants: the cores' worth that it got, and the mean number of its threads that waited, over the
    focus. The owner is a container, pod or unit, or all processes with one name."""

    name: Entity
    owner: CgroupOwner
    cgroup: str | None
    run: float = 0.0
    wait: float = 0.0
    before: float | None = None
    pids: dict[int, float] = field(default_factory=dict)
    background: bool = False

    @property
    def total(self) -> float:
        return self.run + self.wait

    @property
    def largest(self) -> int:
        """The pid that wanted the most CPU time."""
        return max(self.pids, key=lambda pid: self.pids[pid])


class Contention:
    """The competition in a focus, as means over the focus. Only recorded cores count, so an offline core doesn't."""

    def __init__(self, case: Case, *, background_nice: float) -> None:
        self._case = case
        self._background_nice = background_nice
        rows = case.now("cpu")
        self.cores = frozenset(np.unique(rows.cpu).tolist())
        # Mean number of threads that waited for each core; empty if the kernel doesn't count run delay.
        self.queues = waits_of_cores(rows)
        self._rooms: dict[frozenset[int], float] = {}
        self.seconds = max(case.focus.seconds, 1e-9)
        self._rows = rows

    def share(self, states: tuple[str, ...], cores: Iterable[int] | None = None) -> float:
        """The share (0 to 1) of these cores' time spent in some states."""
        rows = self._rows if cores is None else self._rows.where(np.isin(self._rows.cpu, list(cores)))
        return float(rows.sums(states).mean()) / 1000 if len(rows) else 0.0

    def idle(self, cores: Iterable[int] | None = None) -> float:
        """The idle share of these cores' time while threads waited: each second is weighted by the waiting in it. A
        focus may begin before the trouble and end after it, and idle time in its calm seconds is of no use. If no wait
        is known, the median over the seconds."""
        rows = self._rows if cores is None else self._rows.where(np.isin(self._rows.cpu, list(cores)))
        if not len(rows):
            return 0.0
        seconds, members = np.unique(rows.wall // NANOS, return_inverse=True)
        idle = np.bincount(members, rows.sums(_IDLE)) / np.bincount(members) / 1000
        waited = np.bincount(members, np.nan_to_num(rows.numbers("wait_ns"))) if self.queues else self._queued(seconds)
        return float(np.average(idle, weights=waited) if waited.any() else np.median(idle))

    def _queued(self, seconds: Ints) -> Floats:
        """The number of threads that waited in each of these seconds, from the runnable threads at the instant of the
        tick."""
        node = self._case.now("node")
        counts, runnable, at = np.zeros(len(seconds)), node.numbers("running"), node.wall // NANOS
        known = ~np.isnan(runnable) & np.isin(at, seconds)
        # The recorder itself is runnable.
        np.maximum.at(counts, np.searchsorted(seconds, at[known]), runnable[known] - 1 - len(self.cores))
        return counts

    def room(self, cores: frozenset[int]) -> float:
        """Cores' worth of time that these cores could have given to an ordinary program."""
        if cores not in self._rooms:
            self._rooms[cores] = self.share(_ROOM, cores) * len(cores) if cores else 0.0
        return self._rooms[cores]

    def gain(self, threads: Collection[Waiter]) -> float:
        """Cores' worth of time that these threads would have gained if they could use every core and each thread had
        its turn according to the shares of its cgroup: how much better off the threads on other cores are."""
        others = [each for each in self.waiters if each not in threads and not each.background]
        everyone = [*threads, *others]
        wanted = np.array([each.run_s + each.wait_s for each in everyone]) / self.seconds
        members = Counter(each.cgroup for each in everyone)
        weights = np.array([(self.use(each.cgroup).shares or 1024) / members[each.cgroup] for each in everyone])
        # Threads that were not followed keep the time they had.
        busy = (1.0 - self.share(_IDLE)) * len(self.cores)
        unfollowed = max(0.0, busy - sum(each.run_s for each in everyone) / self.seconds)
        turns = fair_turns(wanted, weights, len(self.cores) - unfollowed)
        return float(turns[: len(threads)].sum()) - sum(each.run_s for each in threads) / self.seconds

    @property
    def queue(self) -> float | None:
        """Mean number of threads waiting per core; None if unknown."""
        return sum(self.queues.values()) / len(self.queues) if self.queues else None

    @property
    def _cgroups(self) -> Rows:
        return self._case.recorded("cgroup_cpu", self._case.focus.seconds + _CGROUPS_S)

    @cached_property
    def uses(self) -> dict[str, CgroupUse]:
        return {
            path: CgroupUse(shares, quota, parse_cores(cores))
            for path, shares, quota, cores in self._cgroups.listed("cgroup", "shares", "quota", "cores")
        }

    def quote_use(self, cgroup: str, *columns: str) -> list[Evidence]:
        """Evidence of what a cgroup may use, as last recorded; nothing for a column without a limit."""
        rows = self._cgroups.matching("cgroup", cgroup)
        if not len(rows):
            return []
        at, match = rows.span[1] - 1, (("cgroup", cgroup),)
        newest = rows.where(rows.wall == at).listed(*columns)[-1]
        quoted = [(column, value) for column, value in zip(columns, newest, strict=True) if value is not None]
        return [Evidence("cgroup_cpu", column, "last", value, at, at + 1, match=match) for column, value in quoted]

    def use(self, cgroup: str | None) -> CgroupUse:
        return self.uses.get(cgroup or "", CgroupUse())

    @cached_property
    def waiters(self) -> list[Waiter]:
        """The followed threads, those that waited longest first."""
        rows = self._case.now("run_delays")
        columns = ("tid", "pid", "comm", "run_ns", "wait_ns", "nice", "policy", "affinity", "cgroup", "cpuset")
        sums: dict[int, tuple[float, float]] = {}
        newest: dict[int, tuple[Any, ...]] = {}
        for tid, pid, comm, ran, waited, *about in rows.listed(*columns):
            run, wait = sums.get(tid, (0.0, 0.0))
            sums[tid] = run + ran / NANOS, wait + waited / NANOS
            # Rows written before the thread's attributes were read have none.
            if tid not in newest or any(each is not None for each in about):
                newest[tid] = (pid, comm, *about)
        since, until = rows.span
        found = []
        for tid, (run, wait) in sums.items():
            pid, comm, nice, policy, affinity, cgroup, cpuset = newest[tid]
            match = (("tid", str(tid)),)
            quote = Evidence("run_delays", "wait_ns", "sum", round(wait * NANOS), since, until, None, match, unit="ns")
            gives_way = policy == _IDLE_POLICY or self.use(cgroup).shares == _LEAST_SHARES
            found.append(
                Waiter(
                    pid,
                    comm,
                    tid=tid,
                    run_s=run,
                    wait_s=wait,
                    background=gives_way or (nice is not None and nice >= self._background_nice),
                    allowed=parse_cores(affinity),
                    cgroup=cgroup,
                    cpuset=cpuset,
                    evidence=quote,
                )
            )
        return sorted(found, key=lambda each: -each.wait_s)

    def waiting(self, fits: Callable[[Waiter], bool]) -> float:
        """Mean number of matching followed threads that waited, over the focus."""
        return sum(each.wait_s for each in self.waiters if fits(each)) / self.seconds

    @cached_property
    def demands(self) -> list[Demand]:
        """The demand of each owner, the largest first."""
        case = self._case
        waits: dict[int, list[Waiter]] = {}
        for each in self.waiters:
            waits.setdefault(each.pid, []).append(each)
        now, before = _times(case, case.focus), {} if case.baseline.empty else _times(case, case.baseline)
        wanted = {pid: now.get(pid, 0.0) + sum(each.wait_s for each in waits.get(pid, ())) for pid in {*now, *waits}}
        largest = sorted(wanted, key=lambda pid: -wanted[pid])[:_MOST_PROCESSES]
        names, owners = _names(case, {*largest, *before}), _Owners(case)
        # Keep niced work apart from other work with the same name.
        found: dict[tuple[str, bool], Demand] = {}
        for pid in largest:
            own = waits.get(pid, [])
            owner, cgroup = owners.of(pid, own[0].cgroup if own else None)
            comm = names.get(pid) or (own[0].comm if own else "")
            background = bool(own) and all(each.background for each in own)
            entity = owner.entities[0] if owner.entities else process_entity(comm)
            new = Demand(entity, owner, cgroup, before=None if case.baseline.empty else 0.0, background=background)
            demand = found.setdefault((owner.target or comm, background), new)
            demand.run += now.get(pid, 0.0) / self.seconds
            demand.wait += sum(each.wait_s for each in own) / self.seconds
            demand.pids[pid] = wanted[pid]
        for pid, spent in before.items():
            name = owners.of(pid, None)[0].target or names.get(pid, "")
            same = [each for each in (found.get((name, False)), found.get((name, True))) if each is not None]
            earlier = next((each for each in same if pid in each.pids), same[0] if same else None)
            if earlier is not None and earlier.before is not None:
                earlier.before += spent / case.baseline.seconds
        return sorted(found.values(), key=lambda each: -each.total)


class _Owners:
    """Looks up the owners of processes; processes in the same cgroup have the same owner."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._known: dict[str | None, CgroupOwner] = {}

    def of(self, pid: int, cgroup: str | None) -> tuple[CgroupOwner, str | None]:
        """The owner of a process and its cgroup; `cgroup` is used for a process whose cgroup was not recorded."""
        process = self._case.processes.get(pid)
        path = cgroup if process is None or process.cgroup is None else process.cgroup
        if path not in self._known:
            self._known[path] = owner_of(self._case, path)
        return self._known[path], path


def fair_turns(wanted: Floats, weights: Floats, cores: float) -> Floats:
    """The part of the cores that each thread gets: all it wants if that is less than its turn by weight; the others
    share the rest by weight, as the fair scheduler does (kernel/sched/fair.c)."""
    got, hungry, left = np.zeros(len(wanted)), np.ones(len(wanted), np.bool_), max(0.0, cores)
    while hungry.any():
        turns = weights * left / weights[hungry].sum()
        content = hungry & (wanted <= turns)
        if not content.any():
            got[hungry] = turns[hungry]
            break
        got[content] = wanted[content]
        left -= float(wanted[content].sum())
        hungry &= ~content
    return got


def _times(case: Case, window: Window) -> dict[int, float]:
    """Sampled CPU seconds of each process in a window, without process 0, the idle task."""
    samples = case.samples
    inside = samples.within(window) & (samples.pid > 0)
    pids, members = np.unique(samples.pid[inside], return_inverse=True)
    spent = np.bincount(members, samples.weight[inside], len(pids)) / 1e6
    return dict(zip(pids.tolist(), spent.tolist(), strict=True))


def _names(case: Case, pids: Iterable[int]) -> dict[int, str]:
    """The name of each process's main thread if it was recorded, otherwise that of a sampled thread."""
    samples, wanted = case.samples, list(pids)
    distinct, first = np.unique(samples.pid, return_index=True)
    sampled = {
        pid: samples.comms[int(samples.comm[at])] for pid, at in zip(distinct.tolist(), first.tolist(), strict=True)
    }
    known = {pid: case.processes[pid].comm for pid in wanted if pid in case.processes}
    return {pid: known.get(pid) or sampled[pid] for pid in wanted if known.get(pid) or pid in sampled}


def parse_cores(text: str | None) -> frozenset[int] | None:
    """The cores of a recorded cpulist; None if there is no valid list."""
    try:
        return frozenset(parse_cpulist(text)) or None if text else None
    except ValueError:
        return None


def turnover(case: Case, pids: Collection[int]) -> float:
    """The number of processes seen for each that existed at a time: 1 if all of them lived throughout. If many threads
    wait, even a tiny job takes seconds, so the length of its life says little."""
    samples = case.samples
    inside = samples.within(case.focus) & np.isin(samples.pid, list(pids))
    if not inside.any():
        return 1.0
    distinct, members = np.unique(samples.pid[inside], return_inverse=True)
    wall = samples.wall[inside]
    first, last = np.full(len(distinct), np.iinfo(np.int64).max), np.zeros(len(distinct), np.int64)
    np.minimum.at(first, members, wall)
    np.maximum.at(last, members, wall)
    lives = np.maximum(last - first, _SHORTEST_LIFE_NS)
    return float(len(distinct) * max(last.max() - first.min(), _SHORTEST_LIFE_NS) / lives.sum())
