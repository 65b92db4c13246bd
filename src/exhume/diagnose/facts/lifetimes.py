"""Lifetimes: cgroups that follow each other in one place, things that end again and again, short-lived processes."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf

import numpy as np

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.quotes import quote_column
from exhume.diagnose.evidence.rows import Mask, Rows
from exhume.model import text
from exhume.model.clock import NANOS
from exhume.model.finding import Entity, EntityKind, Evidence
from exhume.model.tables import RESTART

DIED, OUT_OF_MEMORY = "container-die", "container-oom"
UNIT_ENDED, UNIT_RESTARTED = "unit-ended", "unit-restarted"
# Number of intervals between rows that it takes to know whether a pace is regular.
_LEAST_SPANS = 2
# Transient units that systemd numbers, for a login or a command: each is a different thing.
_TRANSIENT = re.compile(r"^(session-\d+|run-[ru]?[0-9a-f]+|user-runtime-dir@.*|user@.*)\.(scope|service)$")


@dataclass(slots=True)
class Lifetime:
    """One cgroup: its path, and when it was created and removed (wall nanoseconds)."""

    path: str
    born: int
    ended: int


@dataclass(slots=True)
class Series:
    """The cgroups of one place, in order of creation."""

    pattern: str
    maker: str | None
    lives: list[Lifetime] = field(default_factory=list)

    @property
    def interval_s(self) -> float:
        """Median of the seconds between two creations."""
        return float(np.median(np.diff([life.born for life in self.lives]))) / NANOS

    @property
    def life_s(self) -> float:
        return float(np.median([life.ended - life.born for life in self.lives])) / NANOS

    @property
    def longest_pause_s(self) -> float:
        """The longest time from the end of one to the creation of the next."""
        ends = np.maximum.accumulate([life.ended for life in self.lives])
        return max(0.0, float(np.max([b.born - e for b, e in zip(self.lives[1:], ends[:-1], strict=True)])) / NANOS)

    @property
    def at_once(self) -> float:
        """How many existed at a time, on average over the time when there was any."""
        total = sum(life.ended - life.born for life in self.lives)
        covered = 0
        reach = 0
        for life in self.lives:
            covered += max(0, life.ended - max(life.born, reach))
            reach = max(reach, life.ended)
        return total / covered if covered else 0.0

    @property
    def irregularity(self) -> float:
        """Coefficient of variation of the intervals between creations: for independent ones it is 1 or more."""
        steps = np.diff([life.born for life in self.lives]).astype(np.float64)
        return float(steps.std() / steps.mean()) if len(steps) > 1 and steps.mean() > 0 else 0.0


def series_of_cgroups(events: Rows) -> list[Series]:
    """The series in rows of cgroup_events, one for each place; if several hierarchies have it, the one with the most
    rows."""
    born: dict[tuple[int, int], tuple[int, str, str | None]] = {}
    found: dict[tuple[int, str], Series] = {}
    rows = events.matching("op", "mkdir", "rmdir").listed("wall", "hierarchy", "op", "id", "path", "comm")
    for wall, hierarchy, op, number, path, comm in sorted(rows, key=lambda row: row[0]):
        if number is None or path is None:
            continue
        if op == "mkdir":
            born[hierarchy, number] = (wall, path, comm)
        elif (hierarchy, number) in born:
            began, name, maker = born.pop((hierarchy, number))
            parent, _, leaf = name.rpartition("/")
            if not _TRANSIENT.match(leaf):
                # The pattern leaves out the cgroup's own id: containers of one pod share a place, those of another pod
                # have another.
                place = f"{parent}/{path_pattern(leaf)}"
                series = found.setdefault((hierarchy, place), Series(place, maker))
                series.lives.append(Lifetime(name, began, wall))
    best: dict[str, Series] = {}
    for series in found.values():
        series.lives.sort(key=lambda life: life.born)
        if series.pattern not in best or len(series.lives) > len(best[series.pattern].lives):
            best[series.pattern] = series
    return sorted(best.values(), key=lambda series: -len(series.lives))


BRIEF_NS = NANOS
# A shell starts a subshell that starts the command, so the parent is searched this far up.
_GENERATIONS = 4


@dataclass(frozen=True)
class ShortLived:
    """The short-lived processes of a focus: the mask of their samples, that mask with the samples of their parents, and
    the parents (pid and number of children, the busiest first). `started_by` maps each to its lasting ancestor."""

    mask: Mask
    with_parents: Mask
    parents: tuple[tuple[int, int], ...]
    started_by: Mapping[int, int]

    def pids_of(self, parent: int) -> list[int]:
        """The parent and the processes it started."""
        return [parent, *(pid for pid, starter in self.started_by.items() if starter == parent)]


def find_short_lived(case: Case) -> ShortLived:
    """Find the short-lived processes of the focus and their parents."""
    samples = case.samples
    now = samples.within(case.focus)
    rows = case.now("processes")
    parent_of = {pid: ppid for pid, ppid in rows.listed("pid", "ppid") if ppid is not None and ppid > 0}
    pids, members = np.unique(samples.pid, return_inverse=True)
    first = np.full(len(pids), np.iinfo(np.int64).max)
    last = np.zeros(len(pids), np.int64)
    np.minimum.at(first, members, samples.wall)
    np.maximum.at(last, members, samples.wall)
    # The wall time at which a process started or was first seen; `time` and `start` are both on CLOCK_MONOTONIC. A
    # process that was gone when it was read has no start, and was young.
    born = {
        pid: wall if start is None else wall - moment + start
        for wall, moment, pid, start in rows.listed("wall", "time", "pid", "start")
    }
    # A process that is sampled once may be as old as the node: it must be known to have started here.
    young = np.array([born.get(pid, 0) >= case.focus.since - NANOS for pid in pids.tolist()], np.bool_)
    brief_pids = young & (last - first < BRIEF_NS) & (pids > 0)
    brief = brief_pids[members] & now
    short = set(pids[brief_pids & (first < case.focus.until) & (last >= case.focus.since)].tolist())
    started_by = {pid: _ancestor(pid, parent_of, short) for pid in short}
    counts = Counter(started_by.values())
    counts.pop(0, None)
    ranked = tuple(counts.most_common())
    of_parents = np.isin(samples.pid, [pid for pid, _ in ranked]) & now
    return ShortLived(brief, brief | of_parents, ranked, started_by)


def _ancestor(pid: int, parent_of: Mapping[int, int], short: set[int]) -> int:
    """The nearest ancestor that isn't short-lived itself; 0 if unknown."""
    for _ in range(_GENERATIONS):
        pid = parent_of.get(pid, 0)
        if pid not in short:
            break
    return pid


# The same paths come up again and again.
path_pattern = lru_cache(maxsize=1 << 16)(text.path_pattern)


@dataclass(frozen=True)
class Restarts:
    """What ended again and again: its name, how often, and whether each end was a failure of a service (False if
    unknown, or if it may have been the result of a helper). `interval_s` is None for a program that was recorded once;
    `line` is the newest event about it. `runs` and `succeeded` are set for units only."""

    name: str
    times: float
    failed: bool
    interval_s: float | None
    line: str
    evidence: Evidence | None
    rows: Rows
    kind: EntityKind = EntityKind.PROCESS
    runs: int | None = None
    succeeded: int | None = None

    @property
    def is_container(self) -> bool:
        return self.kind is EntityKind.CONTAINER

    @property
    def is_unit(self) -> bool:
        return self.kind is EntityKind.UNIT

    @property
    def is_program(self) -> bool:
        return self.kind is EntityKind.PROCESS

    @property
    def entity(self) -> Entity:
        return Entity(self.kind, "" if self.kind is EntityKind.PROCESS else self.name, self.name)

    @property
    def irregularity(self) -> float:
        """Coefficient of variation of the pace between rows; infinite if there are too few rows. A row counts the ends
        since the previous row of its kind."""
        order = np.argsort(self.rows.wall, kind="stable")
        spans = np.diff(self.rows.wall[order]) / NANOS
        if len(spans) < _LEAST_SPANS or not np.all(spans > 0):
            return inf
        paces = self.rows.numbers("value")[order][1:] / spans
        return float(paces.std() / paces.mean()) if paces.mean() > 0 else inf

    @property
    def longest_pause_s(self) -> float:
        """The longest time between two rows."""
        return float(np.max(np.diff(np.sort(self.rows.wall)), initial=0)) / NANOS

    @property
    def containers(self) -> frozenset[str]:
        """The container ids it had."""
        return frozenset(each for each in self.rows.texts("container").tolist() if each)


def find_restarts(events: Rows, least: float) -> list[Restarts]:
    """Find what ended at least that many times, in rows of events."""
    again = events.matching("kind", UNIT_RESTARTED)
    restarted = {name for name, rows in _by(again, "comm") if len(rows) >= least - 1}
    ended = _by(events.matching("kind", UNIT_ENDED), "comm")
    units = [_ended(rows, name, EntityKind.UNIT) for name, rows in ended]
    found = [
        # A unit that succeeds and that systemd does not restart is started on demand.
        *(unit for unit in units if unit.failed or unit.name in restarted),
        *(_program(rows, name) for name, rows in _by(events.matching("kind", RESTART), "comm")),
        *(
            _ended(rows, name, EntityKind.CONTAINER)
            for name, rows in _by(events.matching("kind", DIED), "container_name")
        ),
    ]
    return [each for each in found if each.times >= least]


def _by(rows: Rows, column: str) -> list[tuple[str, Rows]]:
    names = sorted({name for name in rows.texts(column).tolist() if name})
    return [(name, rows.matching(column, name)) for name in names]


def _program(rows: Rows, name: str) -> Restarts:
    evidence = quote_column(rows, "value", "sum", match=(("kind", RESTART), ("comm", name)))
    times, (since, until) = rows.total("value") or 0.0, rows.span
    span = (until - 1 - since) / NANOS
    # The first row counts ends before it, which don't belong to the time between the rows.
    later = times - float(rows.numbers("value")[rows.wall.argmin()])
    pace = span / later if later > 0 and span > 0 else None
    failed = all(severity != "info" for severity in rows.texts("severity").tolist())
    return Restarts(name, times, failed, pace, _newest(rows), evidence, rows)


def _ended(rows: Rows, name: str, kind: EntityKind) -> Restarts:
    """A unit or a container, whose ends are recorded with their exit codes."""
    event, column = (UNIT_ENDED, "comm") if kind is EntityKind.UNIT else (DIED, "container_name")
    pace = float(np.median(np.diff(np.sort(rows.wall)))) / NANOS if len(rows) > 1 else None
    codes = rows.numbers("value")
    known = codes[~np.isnan(codes)]
    # kubelet may have removed a container before its runtime was asked for the exit code, so most of the codes are
    # enough.
    enough = len(known) == len(codes) if kind is EntityKind.UNIT else 2 * len(known) > len(codes)
    failed = enough and bool(np.all(known != 0))
    evidence = quote_column(rows, "kind", "count", match=(("kind", event), (column, name)))
    ended = Restarts(name, float(len(rows)), failed, pace, _newest(rows), evidence, rows, kind)
    return ended if kind is not EntityKind.UNIT else replace(ended, runs=len(rows), succeeded=int(np.sum(codes == 0)))


def _newest(rows: Rows) -> str:
    return str(rows.texts("text")[rows.wall.argmax()])
