"""Leaks of cgroups: recorded mkdir, rmdir and release events, paired and grouped by path pattern, and their owner.

A cgroup that was removed two seconds ago and was not released is a zombie. Its path names its leaker.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from exhume.collect.containers.identity import identify
from exhume.diagnose import messages
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Rows
from exhume.diagnose.facts.cgroup_counts import CgroupCounts, heaviest_parent
from exhume.diagnose.facts.lifetimes import path_pattern
from exhume.diagnose.facts.owners import CgroupOwner, container_names, owner_of
from exhume.model.clock import NANOS
from exhume.model.finding import Entity, Evidence, process_entity

# A clean removal is released within some 40 ms (measured on 6.18).
RELEASED_WITHIN_NS = 2 * NANOS
_HOUR_NS = 3600 * NANOS

# Columns of cgroup_events, with the wall time.
COLUMNS = ("wall", "op", "id", "path", "pid", "comm")


@dataclass(slots=True)
class Life:
    """What is known of one cgroup. Times are wall nanoseconds; `born` and its maker are unknown for one that was made
    before the recording began."""

    path: str
    born: int | None = None
    pid: int | None = None
    comm: str | None = None
    removed: int | None = None


@dataclass(slots=True)
class Leaker:
    """All cgroups of one pattern: how many were made and how many of them are zombies now, by whom, and from when to
    when those were removed. `lives` are the zombies, in the order of their removal."""

    pattern: str
    made: int = 0
    lives: list[Life] = field(default_factory=list)

    @property
    def zombies(self) -> int:
        return len(self.lives)

    @property
    def first(self) -> int:
        return self.lives[0].removed or 0

    @property
    def last(self) -> int:
        return self.lives[-1].removed or 0

    @property
    def per_hour(self) -> float | None:
        """How fast they came, between the first and the last; None for too few to tell."""
        span = self.last - self.first
        return (self.zombies - 1) * _HOUR_NS / span if self.zombies > 2 and span >= NANOS else None

    @property
    def creators(self) -> list[tuple[str, int]]:
        """The names of the processes that made them, the busiest first."""
        return Counter(life.comm for life in self.lives if life.comm).most_common()


@dataclass(frozen=True, slots=True)
class LeakReport:
    """Everybody who left zombies, those with the most first; and how many cgroups were made in all."""

    leakers: list[Leaker] = field(default_factory=list)
    zombies: int = 0
    made: int = 0


def find_leakers(events: Mapping[str, Sequence[object]], now: int) -> LeakReport:
    """Pair the events (columns of one hierarchy and one boot, in the order of time) as of a wall time."""
    alive: dict[int, Life] = {}
    leakers: dict[str, Leaker] = {}
    made = 0
    for wall, op, number, path, pid, comm in _rows(events):
        if op == "mkdir":
            made += 1
            alive[number] = Life(path, wall, pid, comm)
            _leaker(leakers, path).made += 1
        elif op == "rmdir":
            alive.setdefault(number, Life(path)).removed = wall
        elif op == "release":
            alive.pop(number, None)
    zombies = [life for life in alive.values() if life.removed is not None and life.removed <= now - RELEASED_WITHIN_NS]
    for life in sorted(zombies, key=lambda life: life.removed or 0):
        _leaker(leakers, life.path).lives.append(life)
    guilty = [leaker for leaker in leakers.values() if leaker.lives]
    guilty.sort(key=lambda leaker: (-leaker.zombies, leaker.pattern))
    return LeakReport(guilty, len(zombies), made)


def _leaker(leakers: dict[str, Leaker], path: str) -> Leaker:
    pattern = path_pattern(path)
    if pattern not in leakers:
        leakers[pattern] = Leaker(pattern)
    return leakers[pattern]


def _rows(events: Mapping[str, Sequence[object]]) -> Iterable[tuple[int, str, int, str, int | None, str | None]]:
    for wall, op, number, path, pid, comm in zip(*(events[name] for name in COLUMNS), strict=True):
        # Rows that only count (op = churn) name no cgroup.
        if isinstance(wall, int) and isinstance(number, int) and isinstance(path, str):
            yield (
                wall,
                str(op),
                number,
                path,
                pid if isinstance(pid, int) else None,
                comm if isinstance(comm, str) else None,
            )


# Most leaks go on while it hurts; one that stopped is looked for as far back as a day.
NEAR_S, FAR_S = 3600.0, 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Leak:
    """The worst leaker: how many of its cgroups became zombies, who made them, what that belongs to, and of how many
    containers they were."""

    leaker: Leaker
    owner: CgroupOwner
    maker: str | None
    maker_pid: int | None
    hierarchy: int
    containers: int
    evidence: tuple[Evidence, ...]

    def __str__(self) -> str:
        values = {"owner": self.owner or None, "maker": self.maker, "many": self.containers > 1}
        return messages.render("leak.owner" if self.owner else "leak.maker", values)

    @property
    def entities(self) -> tuple[Entity, ...]:
        maker = (process_entity(self.maker, self.maker_pid),) if self.maker else ()
        return (*self.owner.entities, *maker)


def find_leak(case: Case) -> Leak | None:
    """Who left the most zombies up to the end of the focus; None where no births and ends of cgroups were recorded."""
    for seconds in (NEAR_S, FAR_S):
        rows = case.recorded("cgroup_events", seconds)
        found = _worst(case, rows)
        if found is not None:
            return _described(case, rows, *found)
    return None


@dataclass(frozen=True, slots=True)
class LeakingParent:
    """The cgroup below which most zombies are, its owner, and the count behind it."""

    path: str
    dying: int
    owner: CgroupOwner
    evidence: Evidence


def leaking_parent(case: Case, counts: CgroupCounts) -> LeakingParent | None:
    """Where most of the zombies are, for when no process was recorded creating them."""
    found = heaviest_parent(case, counts)
    if found is None:
        return None
    parent, dying, evidence = found
    return LeakingParent(parent, dying, owner_of(case, parent), evidence)


def _worst(case: Case, rows: Rows) -> tuple[int, LeakReport] | None:
    """The hierarchy in which most were left: others let go of theirs, as only memory is charged for long."""
    if not len(rows):
        return None
    # As of the end of what was recorded near the focus: what was removed just then may still be released.
    now = case.focus.until
    reports = {}
    numbers = rows.numbers("hierarchy")
    for hierarchy in np.unique(numbers[~np.isnan(numbers)]).astype(int).tolist():
        own = rows.where(numbers == hierarchy)
        order = np.argsort(own.wall, kind="stable")
        listed = own.listed(*COLUMNS)
        ordered = [listed[i] for i in order.tolist()]
        columns = dict(zip(COLUMNS, zip(*ordered, strict=True), strict=True))
        reports[hierarchy] = find_leakers(columns, now)
    worst = max(reports, key=lambda each: reports[each].zombies)
    return (worst, reports[worst]) if reports[worst].leakers else None


def _described(case: Case, rows: Rows, hierarchy: int, report: LeakReport) -> Leak:
    leaker = report.leakers[0]
    maker = leaker.creators[0][0] if leaker.creators else None
    pid = next((life.pid for life in reversed(leaker.lives) if life.comm == maker), None)
    owner = _owner(case, leaker)
    if not owner:
        owner = owner_of(case, _cgroup_of(case, pid, maker))
        if owner.container is not None and any(identify(life.path) for life in leaker.lives):
            # What starts containers runs in the one that it starts: that is one of those that leak, not who leaks them.
            owner = owner.without_container()
    found = {identity.container for life in leaker.lives if (identity := identify(life.path)) and identity.container}
    return Leak(
        leaker, owner, maker, pid, hierarchy, len(found), (*_evidence(rows, hierarchy, leaker), *owner.evidence)
    )


def _owner(case: Case, leaker: Leaker) -> CgroupOwner:
    """What most of the zombies' paths belong to. A container that is created each time keeps its name."""
    names = container_names(case)
    owners: Counter[str] = Counter()
    newest: dict[str, str] = {}
    for life in leaker.lives:
        identity = identify(life.path)
        number = identity.container if identity else None
        key = names[number].name if number in names else number
        if key is not None:
            owners[key] += 1
            newest[key] = life.path
    if not owners:
        return owner_of(case, leaker.lives[-1].path)
    key, count = owners.most_common(1)[0]
    owner = owner_of(case, newest[key])
    # One of many containers that leak alike is not the leaker: what they have in common is.
    return owner if count >= max(2, leaker.zombies / 3) else owner.without_container()


def _cgroup_of(case: Case, pid: int | None, comm: str | None) -> str | None:
    """The cgroup of a process that made one, as the recorder saw it around that time. Numbers are given out again: what
    has another name is another process."""
    if pid is None:
        return None
    rows = case.recorded("processes", NEAR_S)
    rows = rows.where(rows.numbers("pid") == pid)
    known = [cgroup for name, cgroup in rows.listed("comm", "cgroup") if name == comm and cgroup]
    return known[-1] if known else None


def _evidence(rows: Rows, hierarchy: int, leaker: Leaker) -> tuple[Evidence, ...]:
    """The removals of that time, and the last one of the pattern."""
    since, until = leaker.first, leaker.last + 1
    removed = rows.matching("op", "rmdir")
    removed = removed.where((removed.wall >= since) & (removed.wall < until))
    removed = removed.where(removed.numbers("hierarchy") == hierarchy)
    match = (("op", "rmdir"), ("hierarchy", str(hierarchy)))
    last = leaker.lives[-1]
    return (
        Evidence("cgroup_events", "path", "count", len(removed), since, until, match=match),
        Evidence("cgroup_events", "path", "last", last.path, leaker.last, leaker.last + 1, match=match),
    )
