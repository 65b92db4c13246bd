"""Where the time of a focus went: CPU time and waiting, by state, by cause and by owner, and how much of it was lost.

All computations use matrices of cores x seconds. The time a thread waited for a core is attributed in proportion to
what that core did meanwhile: a cause gets only the share of the time it ran there. So no cause is charged for waiting
that it had no means to create, and the remainder is shown as unexplained.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from exhume.diagnose import messages
from exhume.diagnose.catalogue import catalogue, thresholds
from exhume.diagnose.evidence.builder import Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Floats, Ints, Rows
from exhume.diagnose.facts.owners import CgroupOwner, owner_of
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Accounting, Severity, TimeKind, TimeRow, TimeTable

# Groups of the cpu table's state columns; the states of a row add up to 1000.
BUSY = ("user", "nice", "guest", "system", "irq", "softirq")
_STATES = {
    "user": ("user", "nice", "guest"),
    "system": ("system",),
    "irq": ("irq",),
    "softirq": ("softirq",),
    "steal": ("steal",),
    "idle": ("idle",),
    "iowait": ("iowait",),
}
QUOTA, STEAL = "cfs-throttling", "cpu-steal"
# Work that competes with other work: it accounts for the waiting that no other cause explains.
OVERCOMMIT = "cpu-overcommit"
_ROUNDED = 6
# Identifies an owner: kind, id and name.
_Key = tuple[TimeKind, str, str]


def _limit(name: str) -> float:
    return float(thresholds("accounting")[name])


@dataclass(frozen=True, slots=True)
class Waiting:
    """Seconds of waiting by what threads waited for: `queued` for a core (cores x seconds), throttled by a quota,
    and stolen by the hypervisor; `usual_*` is the fraction (0 to 1) of each that is no more than in the baseline.
    `estimated`: the kernel doesn't count run delay per core, so `queued` is derived from pressure and runnable
    threads."""

    queued: Floats
    usual_queued: Floats
    throttled: float
    usual_throttled: float
    stolen: float
    usual_stolen: float
    estimated: bool

    @property
    def total(self) -> float:
        return float(self.queued.sum()) + self.throttled + self.stolen


class _Grid:
    """The cores and seconds of a window; sums over them are matrices."""

    def __init__(self, window: Window, cpus: Ints) -> None:
        self.window, self.cpus = window, cpus
        self.seconds = max(1, -(-window.nanos // NANOS))

    def bins(self, walls: Ints) -> Ints:
        return np.clip((walls - self.window.since) // NANOS, 0, self.seconds - 1)

    def cells(self, cpus: Ints, walls: Ints, values: Floats) -> Floats:
        places = np.searchsorted(self.cpus, cpus) * self.seconds + self.bins(walls)
        sums = np.bincount(places, values, len(self.cpus) * self.seconds)
        return sums.astype(np.float64).reshape(len(self.cpus), self.seconds)

    def states(self, rows: Rows, columns: Sequence[str]) -> Floats:
        """Core-seconds in these states."""
        return self.cells(rows.cpu, rows.wall, rows.sums(columns) / 1000 * rows.numbers("span_ms") / 1000)


def _queued(grid: _Grid, cpu: Rows, node: Rows) -> tuple[Floats, bool]:
    """Seconds that threads queued for each core, and whether they are estimated: only kernels with schedstats count
    them. Otherwise pressure gives the time in which at least one thread waited (kernel/sched/psi.c), and the number of
    runnable threads beyond the number of cores gives how many; they wait for the cores that have no idle time."""
    waits = cpu.numbers("wait_ns")
    known = ~np.isnan(waits)
    if known.any() or not len(cpu):
        own = cpu.where(known)
        return grid.cells(own.cpu, own.wall, waits[known] / NANOS), False
    stalled = np.nan_to_num(node.numbers("psi_cpu_some")) / 1e6
    # The recorder itself is runnable while it counts.
    beyond = (node.middle("running") or 0.0) - 1 - len(grid.cpus)
    seconds = np.bincount(grid.bins(node.wall), stalled * max(1.0, beyond), grid.seconds)
    free = grid.states(cpu, ("idle", "iowait"))
    full = free <= _limit("idle_of_full")
    weights = np.where(full.any(axis=0), full, 1.0 / (1e-3 + free))
    return np.asarray(seconds * weights / weights.sum(axis=0), np.float64), True


def _throttled(rows: Rows) -> float:
    return (rows.total("throttled_ns") or 0.0) / NANOS


def _part(of: float, total: float) -> float:
    return min(1.0, of / total) if total else 0.0


class Ledger:
    """The times of one case, attributed to its findings. A sample belongs to the first finding that accounts for it;
    causes that examine what is left come last, and overcommit after all of them."""

    def __init__(self, case: Case, found: Iterable[Found]) -> None:
        self.case = case
        found = sorted(found, key=lambda each: (each.finding.cause == OVERCOMMIT, catalogue()[each.finding.cause].last))
        self._causes = [each.finding.cause for each in found]
        self._grave = [each.finding.severity is not Severity.INFO for each in found]
        self._useful = [catalogue()[cause].useful or cause == OVERCOMMIT for cause in self._causes]
        rows = case.now("cpu")
        cpus = np.unique(np.concatenate((rows.cpu, case.samples.cpu[case.samples.within(case.focus)])))
        self._grid = _Grid(case.focus, cpus)
        self._states = {state: self._grid.states(rows, columns) for state, columns in _STATES.items()}
        self._busy = self._grid.states(rows, BUSY)
        self.taken = self._taken(found)
        self.waiting = self._waits()
        self.waits = self._waits_by_cause()

    def lost_to(self, cause: str) -> float:
        """Seconds lost to a cause: the CPU time that it took from useful work, and the waiting beyond the usual that it
        caused."""
        if cause not in self._causes:
            return 0.0
        at = self._causes.index(cause)
        return (0.0 if self._useful[at] else float(self.taken[at].sum())) + self.waits.get(cause, 0.0)

    def cores_of(self, cause: str) -> float:
        """The cores that a cause took, on average over the focus."""
        if cause not in self._causes:
            return 0.0
        return float(self.taken[self._causes.index(cause)].sum()) / max(self.case.focus.seconds, 1e-9)

    @property
    def lost_s(self) -> float:
        """All seconds lost."""
        return self._lost().total_s

    @property
    def core_seconds(self) -> float:
        """The time of all cores together."""
        return len(self._grid.cpus) * self.case.focus.seconds

    # Matrices

    def _taken(self, found: Sequence[Found]) -> Floats:
        """The core-seconds that each finding accounts for: causes x cores x seconds."""
        samples = self.case.samples
        grid, taken = self._grid, np.zeros((len(found), *self._busy.shape))
        left = samples.within(self.case.focus)
        for at, each in enumerate(found):
            mask = each.mask & left
            left = left & ~mask
            states = [state for state in catalogue()[each.finding.cause].states if state in BUSY]
            if mask.any():
                taken[at] = grid.cells(samples.cpu[mask], samples.wall[mask], samples.weight[mask] / 1e6)
            elif states and each.finding.culprit.cpu is not None:
                here = grid.cpus == each.finding.culprit.cpu
                taken[at][here] = np.sum([self._states[state] for state in states], axis=0)[here]
        # The samples of a second can't stand for more than its busy time; the sampler rounds.
        sums = taken.sum(axis=0)
        over = np.divide(self._busy, sums, out=np.ones_like(sums), where=sums > np.maximum(self._busy, 1e-9))
        return np.asarray(taken * np.minimum(over, 1.0), np.float64)

    def _waits(self) -> Waiting:
        case, grid, seconds = self.case, self._grid, self.case.focus.seconds
        queued, estimated = _queued(grid, case.now("cpu"), case.now("node"))
        throttled, stolen = _throttled(case.now("throttling")), float(self._states["steal"].sum())
        before, scale, usual_stolen = np.zeros(len(grid.cpus)), 0.0, 0.0
        if not case.baseline.empty:
            earlier, rows = _Grid(case.baseline, grid.cpus), case.before("cpu")
            rows, scale = rows.where(np.isin(rows.cpu, grid.cpus)), seconds / case.baseline.seconds
            before = _queued(earlier, rows, case.before("node"))[0].sum(axis=1)
            usual_stolen = float(earlier.states(rows, ("steal",)).sum())
        sums = queued.sum(axis=1)
        usual = np.divide(before * scale, sums, out=np.zeros_like(sums), where=sums > 0)
        # A throttled thread stays runnable, and its wait counts as run delay once it runs again (kernel/sched/stats.h,
        # sched_info_depart): that part belongs to the quota.
        stopped = np.minimum(sums, throttled * self._throttled_cores(sums))
        queued = queued * (1.0 - np.divide(stopped, sums, out=np.zeros_like(sums), where=sums > 0))[:, np.newaxis]
        return Waiting(
            queued,
            np.minimum(usual, 1.0),
            throttled,
            _part(_throttled(case.before("throttling")) * scale, throttled),
            stolen,
            _part(usual_stolen * scale, stolen),
            estimated,
        )

    def _throttled_cores(self, queued: Floats) -> Floats:
        """Each core's share of the work of throttled cgroups; if their threads are unknown, its share of the queued
        time."""
        case, samples = self.case, self.case.samples
        cgroups = {f"{each.rstrip('/')}/" for each in case.now("throttling").texts("cgroup").tolist()}
        inside = [pid for pid, each in case.processes.items() if f"{each.cgroup}/".startswith(tuple(cgroups))]
        own = samples.within(case.focus) & np.isin(samples.pid, inside)
        spent = np.bincount(np.searchsorted(self._grid.cpus, samples.cpu[own]), samples.weight[own], len(queued))
        weights = spent if spent.any() else queued
        return np.asarray(weights / max(float(weights.sum()), 1e-9), np.float64)

    def _waits_by_cause(self) -> dict[str, float]:
        """Waiting beyond the usual, by the cause above `info` severity that is responsible for it."""
        waiting = self.waiting
        unusual = waiting.queued * (1.0 - waiting.usual_queued)[:, np.newaxis]
        found = {
            QUOTA: waiting.throttled * (1.0 - waiting.usual_throttled),
            STEAL: waiting.stolen * (1.0 - waiting.usual_stolen),
        }
        parts = self._parts_of_cores(unusual)
        for at, cause in enumerate(self._causes):
            found[cause] = found.get(cause, 0.0) + float((unusual * parts[at]).sum())
        grave = {cause for cause, is_grave in zip(self._causes, self._grave, strict=True) if is_grave}
        left = float(unusual.sum()) - sum(
            float((unusual * parts[at]).sum()) for at, is_grave in enumerate(self._grave) if is_grave
        )
        if OVERCOMMIT in grave:
            found[OVERCOMMIT] += max(0.0, left)
        return {cause: seconds for cause, seconds in found.items() if cause in grave}

    def _parts_of_cores(self, waits: Floats) -> Floats:
        """Fraction (0 to 1) of what a core did that went to each cause, up to each second. A wait is counted when it
        ends, so it is compared with as many preceding seconds as it may have lasted."""
        longest = int(_limit("longest_wait_s"))
        length = 1 + np.minimum(waits.astype(np.int64), longest)
        ends = np.arange(1, self._grid.seconds + 1)[np.newaxis, :]
        begins = np.maximum(0, ends - length)
        cores = np.arange(len(self._grid.cpus))[:, np.newaxis]

        def up_to(cells: Floats) -> Floats:
            running = np.concatenate((np.zeros((len(cells), 1)), np.cumsum(cells, axis=1)), axis=1)
            return np.asarray(running[cores, ends] - running[cores, begins], np.float64)

        busy = up_to(self._busy)
        if not self._causes:
            return np.zeros((0, *busy.shape))
        return np.stack(
            [
                np.minimum(1.0, np.divide(up_to(cells), busy, out=np.zeros_like(busy), where=busy > 1e-3))
                for cells in self.taken
            ]
        )

    # Tables

    def accounting(self) -> Accounting:
        """All tables."""
        focus, lost = self.case.focus, self._lost()
        text = self._sentence(lost) if lost.total_s >= _limit("reported_s") else ""
        cpu, waiting = self._cpu(), self._waiting()
        cores, estimated = len(self._grid.cpus), self.waiting.estimated
        return Accounting(focus.since, focus.until, cores, cpu, waiting, lost, estimated, text)

    def _cpu(self) -> TimeTable:
        states = {state: float(cells.sum()) for state, cells in self._states.items()}
        recorded = sum(states.values())
        total = max(recorded, len(self._grid.cpus) * self.case.focus.seconds)
        rest = {"idle": states["idle"] + states["iowait"], "stolen": states["steal"], "unrecorded": total - recorded}
        busy = recorded - rest["idle"] - rest["stolen"]
        causes = {cause: float(cells.sum()) for cause, cells in zip(self._causes, self.taken, strict=True)}
        explained = sum(causes.values())
        by_cause = [*_cause_rows(causes), *_rest_rows(other=max(0.0, busy - explained), **rest)]
        owners, sampled = self._owners(busy)
        by_owner = [*owners, *_rest_rows(unsampled=max(0.0, busy - sampled), **rest)]
        by_state = [_Part(TimeKind.STATE, state, state, seconds) for state, seconds in states.items()]
        by_state += _rest_rows(unrecorded=rest["unrecorded"])
        return _table(total, by_state, by_cause, by_owner)

    def _waiting(self) -> TimeTable:
        waiting = self.waiting
        queued = float(waiting.queued.sum())
        by_state = [
            _Part(TimeKind.STATE, "queued", _label("queued"), queued),
            _Part(TimeKind.STATE, "throttled", _label("throttled"), waiting.throttled),
            _Part(TimeKind.STATE, "stolen", _label("stolen"), waiting.stolen),
        ]
        usual = float((waiting.queued * waiting.usual_queued[:, np.newaxis]).sum())
        usual += waiting.throttled * waiting.usual_throttled + waiting.stolen * waiting.usual_stolen
        explained = sum(self.waits.values())
        rest = _rest_rows(usual=usual, unexplained=max(0.0, waiting.total - usual - explained))
        return _table(waiting.total, by_state, [*_cause_rows(self.waits), *rest], self._waiters())

    def _lost(self) -> TimeTable:
        grave = [cause for cause, is_grave in zip(self._causes, self._grave, strict=True) if is_grave]
        causes = {cause: self.lost_to(cause) for cause in grave}
        waiting = self._waiting()
        left = sum(row.seconds for row in waiting.by_cause if row.id == "unexplained")
        rows = [*_cause_rows(causes), *_rest_rows(unexplained=left)]
        return _table(sum(row.seconds for row in rows), [], rows, [])

    def _sentence(self, lost: TimeTable) -> str:
        causes = [row for row in lost.by_cause if row.kind is TimeKind.CAUSE]
        least = _limit("least_share") * lost.total_s
        # The largest cause is always named, however small it is.
        named = [row for place, row in enumerate(causes) if row.seconds >= least or not place]
        parts = [messages.render("time.lost-to", {"seconds": row.seconds, "name": row.id}) for row in named]
        others = sum(row.seconds for row in causes) - sum(row.seconds for row in named)
        unexplained = lost.total_s - sum(row.seconds for row in causes)
        if others >= _limit("reported_s"):
            parts.append(messages.render("time.others", {"seconds": others}))
        if unexplained >= min(least, _limit("reported_s")) or not parts:
            parts.append(messages.render("time.unexplained", {"seconds": unexplained}))
        return messages.render("time.lost", {"total": lost.total_s, "parts": ", ".join(parts)})

    def _owners(self, busy: float) -> "tuple[list[_Part], float]":
        """Sampled CPU time by owner (the largest first, the small ones summed up), and its total."""
        case, samples = self.case, self.case.samples
        now = samples.within(case.focus)
        pids, members = np.unique(samples.pid[now], return_inverse=True)
        spent = np.bincount(members, samples.weight[now] / 1e6, len(pids))
        total = float(spent.sum())
        scale = min(1.0, busy / total) if total else 1.0
        comms = dict(zip(samples.pid[now].tolist(), samples.comm[now].tolist(), strict=True))
        seconds: dict[_Key, float] = {}
        for pid, own in zip(pids.tolist(), (spent * scale).tolist(), strict=True):
            known = case.processes.get(pid)
            owner = self._owner(known.cgroup) if known is not None else None
            key = owner or _process(pid, samples.comms[comms[pid]])
            seconds[key] = seconds.get(key, 0.0) + own
        return _largest(seconds), total * scale

    def _waiters(self) -> "list[_Part]":
        """Waiting by who waited, as far as it is recorded: throttled cgroups, the kernel threads of each core, and the
        threads that were followed. Very short-lived threads are not known."""
        case, waiting = self.case, self.waiting
        throttled: dict[_Key, float] = {}
        for cgroup, nanos in case.now("throttling").listed("cgroup", "throttled_ns"):
            key = self._owner(cgroup) or (TimeKind.CGROUP, cgroup, cgroup)
            throttled[key] = throttled.get(key, 0.0) + nanos / NANOS
        followed: dict[_Key, float] = {}
        known = set()
        for tid, comm, nanos in case.now("threads").listed("tid", "comm", "wait_ns"):
            key = (TimeKind.PROCESS, comm, comm)
            followed[key] = followed.get(key, 0.0) + nanos / NANOS
            known.add(tid)
        for tid, pid, comm, cgroup, nanos in case.now("run_delays").listed("tid", "pid", "comm", "cgroup", "wait_ns"):
            if tid not in known:
                key = self._waiter(pid, comm, cgroup)
                followed[key] = followed.get(key, 0.0) + nanos / NANOS
        # A throttled thread's wait counts as run delay once it runs again: that part is included already.
        left = {key: max(0.0, own - throttled.get(key, 0.0)) for key, own in followed.items()}
        queued, total = float(waiting.queued.sum()), sum(left.values())
        scale = _part(queued, total)
        seconds = {key: throttled.get(key, 0.0) + left.get(key, 0.0) * scale for key in throttled.keys() | left.keys()}
        rest = _rest_rows(stolen=waiting.stolen, unknown=max(0.0, queued - total * scale))
        return [*_largest(seconds), *rest]

    def _waiter(self, pid: int, comm: str, cgroup: str | None) -> _Key:
        """The owner of a thread; for a process that was not recorded, the owner of its path in the cpu controller."""
        process = self.case.processes.get(pid)
        path = cgroup if process is None or process.cgroup is None else process.cgroup
        return self._owner(path) or _process(pid, comm if process is None else process.comm or comm)

    def _owner(self, cgroup: str | None) -> _Key | None:
        owner = owner_of(self.case, cgroup)
        return _named(owner) if owner else None


@dataclass(frozen=True, slots=True)
class _Part:
    kind: TimeKind
    id: str
    name: str
    seconds: float


def _named(owner: CgroupOwner) -> _Key:
    if owner.pod is not None:
        return TimeKind.POD, owner.pod, owner.pod_name or owner.pod
    if owner.container is not None:
        return TimeKind.CONTAINER, owner.container, owner.target
    return TimeKind.UNIT, owner.unit or "", owner.unit or ""


def _process(pid: int, comm: str) -> _Key:
    """Processes outside of units and containers go by their name; time that interrupts the idle task belongs to the
    kernel."""
    return (TimeKind.PROCESS, comm, comm) if pid > 0 else (TimeKind.REST, "kernel", _label("rest-kernel"))


def _label(key: str) -> str:
    return messages.render(f"time.{key}", {})


def _cause_rows(causes: dict[str, float]) -> list[_Part]:
    ordered = sorted(causes.items(), key=lambda each: -each[1])
    return [
        _Part(TimeKind.CAUSE, cause, catalogue()[cause].title, seconds) for cause, seconds in ordered if seconds > 0
    ]


def _rest_rows(**seconds: float) -> list[_Part]:
    return [
        _Part(TimeKind.REST, key, _label(f"rest-{key}"), own) for key, own in seconds.items() if own > 10**-_ROUNDED
    ]


def _largest(seconds: dict[_Key, float]) -> list[_Part]:
    ordered = sorted(seconds.items(), key=lambda each: (-each[1], each[0]))
    most = int(_limit("most_owners"))
    rows = [_Part(*key, own) for key, own in ordered[:most] if own > 0]
    return [*rows, *_rest_rows(small=sum(own for _, own in ordered[most:]))]


def _table(total: float, *breakdowns: Iterable[_Part]) -> TimeTable:
    def rows(parts: Iterable[_Part]) -> tuple[TimeRow, ...]:
        return tuple(
            TimeRow(
                each.kind,
                each.id,
                each.name,
                round(each.seconds, _ROUNDED),
                round(each.seconds / total, _ROUNDED) if total else 0.0,
            )
            for each in parts
        )

    return TimeTable(round(total, _ROUNDED), *map(rows, breakdowns))
