"""Counts of cgroups, and leaks: recorded mkdir, rmdir and release events, paired by path pattern, and their owner.

A cgroup that was removed more than two seconds ago and not released is a zombie. Its path identifies its leaker.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from exhume.collect.cgroup.dying import UNIFIED
from exhume.collect.containers.identity import identify
from exhume.diagnose import messages
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Rows
from exhume.diagnose.facts.lifetimes import path_pattern
from exhume.diagnose.facts.owners import CgroupOwner, owner_of
from exhume.diagnose.facts.unit_starts import UnitStarter, find_starter
from exhume.diagnose.growth import RECORDING, Episode, Growth, growth_between
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Entity, Evidence, process_entity

# A clean removal is released within some 40 ms (measured on 6.18).
RELEASED_WITHIN_NS = 2 * NANOS
_HOUR_NS = 3600 * NANOS

# A leak has ended if no zombie came for this many times its longest pause, and at least for this long.
_CALM, _SHORTEST_CALM_NS = 2, 30 * NANOS

# Columns of cgroup_events, including the wall time.
COLUMNS = ("wall", "op", "id", "path", "pid", "comm")


@dataclass(slots=True)
class Life:
    """One cgroup. Times are wall nanoseconds; `born` is unknown if it was created before the recording began."""

    path: str
    born: int | None = None
    pid: int | None = None
    comm: str | None = None
    removed: int | None = None


@dataclass(slots=True)
class Leaker:
    """All cgroups of one path pattern: how many were created, how many are zombies now, who created them, and when the
    first and the last zombie were removed. `lives` are the zombies, in order of removal."""

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
        """Zombies per hour between the first and the last; None if there are too few to tell."""
        span = self.last - self.first
        return (self.zombies - 1) * _HOUR_NS / span if self.zombies > 2 and span >= NANOS else None

    def ended_ago(self, now: int) -> float | None:
        """How many seconds before a wall time the leak ended; None if it may still be going on."""
        pauses = np.diff([life.removed or 0 for life in self.lives])
        longest = max(_SHORTEST_CALM_NS, _CALM * int(pauses.max(initial=0)))
        return (now - self.last) / NANOS if now - self.last > longest else None

    @property
    def creators(self) -> list[tuple[str, int]]:
        """Names of the creating processes, the busiest first."""
        return Counter(life.comm for life in self.lives if life.comm).most_common()


@dataclass(frozen=True, slots=True)
class LeakReport:
    """All leakers, those with the most zombies first, and the number of cgroups created in all. `unseen` counts cgroups
    that the kernel released without a recorded release."""

    leakers: list[Leaker] = field(default_factory=list)
    zombies: int = 0
    made: int = 0
    unseen: int = 0


def find_leakers(events: Mapping[str, Sequence[Any]], now: int, counts: Iterable[tuple[int, int]] = ()) -> LeakReport:
    """Pair the events (columns of one hierarchy and one boot, in order of time) as of a wall time.

    Release events may be missing: if tens of thousands are freed at once, the ring buffer, or the share of it that
    their place may use, is full. `counts` are the numbers of zombies at wall times, in order; no more than that can be
    left.
    """
    alive: dict[int, Life] = {}
    # In order of removal.
    removed: dict[int, Life] = {}
    leakers: dict[str, Leaker] = {}
    made = unseen = 0
    pending = deque(counts)
    for wall, op, number, path, pid, comm in zip(*(events[name] for name in COLUMNS), strict=True):
        # A row of counts has the time when its tick began: what was released in that tick is recorded as released by
        # then.
        while pending and pending[0][0] + RELEASED_WITHIN_NS <= wall:
            unseen += _forget_oldest(removed, *pending.popleft())
        # Summary rows (op = churn) name no cgroup.
        if number is None or path is None:
            continue
        if op == "mkdir":
            made += 1
            removed.pop(number, None)
            alive[number] = Life(path, wall, pid, comm)
            leakers.setdefault(path_pattern(path), Leaker(path_pattern(path))).made += 1
        elif op == "rmdir":
            life = alive.pop(number, None) or removed.pop(number, None) or Life(path)
            life.removed = wall
            removed[number] = life
        elif op == "release":
            alive.pop(number, None)
            removed.pop(number, None)
    unseen += sum(_forget_oldest(removed, wall, dying) for wall, dying in pending)
    zombies = [life for life in removed.values() if (life.removed or 0) <= now - RELEASED_WITHIN_NS]
    for life in zombies:
        leakers.setdefault(path_pattern(life.path), Leaker(path_pattern(life.path))).lives.append(life)
    guilty = [leaker for leaker in leakers.values() if leaker.lives]
    guilty.sort(key=lambda leaker: (-leaker.zombies, leaker.pattern))
    return LeakReport(guilty, len(zombies), made, unseen)


def _forget_oldest(removed: dict[int, Life], wall: int, dying: int) -> int:
    """Drop the cgroups that were removed first if there are more than the zombies counted; return how many were
    dropped."""
    lately = 0
    for life in reversed(removed.values()):
        if (life.removed or 0) <= wall - RELEASED_WITHIN_NS:
            break
        lately += 1
    gone = list(removed)[: max(0, len(removed) - lately - dying)]
    for number in gone:
        del removed[number]
    return len(gone)


# Most leaks go on while they do harm; for one that stopped, look back up to a day.
NEAR_S, FAR_S = 3600.0, 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Leak:
    """The worst leaker: its zombies, the process that created them, their owner, and how many containers they belonged
    to. `starter` is the unit that starts these containers, if one is known to."""

    leaker: Leaker
    owner: CgroupOwner
    maker: str | None
    maker_pid: int | None
    containers: int
    evidence: tuple[Evidence, ...]
    starter: UnitStarter | None = None

    def __str__(self) -> str:
        values: dict[str, object] = {"owner": self.owner or None, "maker": self.maker, "many": self.containers > 1}
        values |= {"starter": self.starter}
        return messages.render("leak.owner" if self.owner else "leak.maker", values)

    @property
    def entities(self) -> tuple[Entity, ...]:
        maker = (process_entity(self.maker, self.maker_pid),) if self.maker else ()
        starter = (self.starter.entity,) if self.starter is not None else ()
        return (*self.owner.entities, *starter, *maker)

    @property
    def stoppable(self) -> CgroupOwner:
        """The owner that has to be stopped: a unit that starts the container would start it again."""
        return CgroupOwner(unit=self.starter.unit) if self.starter is not None else self.owner


def find_leak(case: Case) -> Leak | None:
    """Find the leaker with the most zombies up to the end of the focus; None if no cgroup events were recorded."""
    for seconds in (NEAR_S, FAR_S):
        rows = case.recorded("cgroup_events", seconds)
        found = _worst(case, rows)
        if found is not None:
            return _described(case, rows, *found)
    return None


def _worst(case: Case, rows: Rows) -> tuple[int, LeakReport] | None:
    """The hierarchy with the most zombies: other hierarchies release theirs, as only memory stays charged for long."""
    reports = {}
    numbers = rows.numbers("hierarchy")
    counted = case.recorded("cgroups", FAR_S).matching("parent", "")
    for hierarchy in np.unique(numbers[~np.isnan(numbers)]).astype(int).tolist():
        listed = sorted(rows.where(numbers == hierarchy).listed(*COLUMNS), key=lambda row: row[0])
        # Judge at the end of the focus: what was removed just before may still be released.
        columns = dict(zip(COLUMNS, zip(*listed, strict=True), strict=True))
        # Other v1 hierarchies keep hardly any zombies; v2 is number 0 (kernel/cgroup/cgroup.c, cgrp_dfl_root).
        points = _dying_of(counted.matching("hierarchy", MEMORY_V1 if hierarchy else UNIFIED))
        reports[hierarchy] = find_leakers(columns, case.focus.until, points)
    worst = max(reports, key=lambda each: reports[each].zombies, default=None)
    return (worst, reports[worst]) if worst is not None and reports[worst].leakers else None


def _dying_of(counts: Rows) -> list[tuple[int, int]]:
    """The number of zombies at wall times, in order."""
    return sorted((wall, dying) for wall, dying in counts.listed("wall", "dying") if dying is not None)


def _described(case: Case, rows: Rows, hierarchy: int, report: LeakReport) -> Leak:
    leaker = report.leakers[0]
    maker = leaker.creators[0][0] if leaker.creators else None
    pid = next((life.pid for life in reversed(leaker.lives) if life.comm == maker), None)
    owner = _owner(case, leaker)
    if not owner:
        owner = owner_of(case, _cgroup_of(case, pid, maker))
        if owner.container is not None and any(identify(life.path) for life in leaker.lives):
            # What starts containers may run inside the container that it starts: that container is one of the leaked
            # ones, not the leaker.
            owner = owner.without_container()
    found = {identity.container for life in leaker.lives if (identity := identify(life.path)) and identity.container}
    # Quote the removals of that time, and the last removal of the pattern.
    removed = rows.where(rows.numbers("hierarchy") == hierarchy).matching("op", "rmdir")
    removed = removed.within(Window(leaker.first, leaker.last + 1))
    match: tuple[tuple[str, str], ...] = (("op", "rmdir"), ("hierarchy", str(hierarchy)))
    paths = {life.path for life in leaker.lives}
    levels = {level for path, level in removed.listed("path", "level") if path in paths}
    if len(levels) == 1 and (level := levels.pop()) is not None:
        # Cgroups of other places, such as those of pods, come and go in the same time.
        removed = removed.where(removed.numbers("level") == level)
        match = (*match, ("level", str(level)))
    quotes = (
        Evidence("cgroup_events", "path", "count", len(removed), leaker.first, leaker.last + 1, match=match),
        Evidence("cgroup_events", "path", "last", leaker.lives[-1].path, leaker.last, leaker.last + 1, match=match),
    )
    starter = find_starter(case, owner.name, found) if found and owner.unit is None else None
    return Leak(leaker, owner, maker, pid, len(found), (*quotes, *owner.evidence), starter)


def _owner(case: Case, leaker: Leaker) -> CgroupOwner:
    """The owner of most of the zombies' paths. A container that is recreated each time keeps its name."""
    names = case.container_names
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
    # If many containers leak alike, no single one is the leaker: what they have in common is.
    return owner if count >= max(2, leaker.zombies / 3) else owner.without_container()


def _cgroup_of(case: Case, pid: int | None, comm: str | None) -> str | None:
    """The cgroup of a process that created a zombie, as recorded around that time. Pids are reused: a process with
    another name is a different one."""
    if pid is None:
        return None
    rows = case.recorded("processes", NEAR_S)
    rows = rows.where(rows.numbers("pid") == pid)
    known = [cgroup for name, cgroup in rows.listed("comm", "cgroup") if name == comm and cgroup]
    return known[-1] if known else None


# Counts come every ten seconds; growth is searched for over up to an hour.
LOOKED_BACK_S = 3600.0
# The recorder's name for the v1 hierarchy with the memory controller.
MEMORY_V1 = "memory"
# A parent stands out if at least this fraction of all dying cgroups is below it.
MOST_OF = 0.5


@dataclass(frozen=True, slots=True)
class CgroupCounts:
    """The last counts of one hierarchy at or before the end of a focus. `dying` is None if the directories could not be
    counted at the time of the kernel's own count."""

    hierarchy: str
    at: int
    growth: Growth | None
    kernel: int | None
    visible: int | None
    dying: int | None

    def evidence(self, column: str) -> Evidence:
        """Evidence of the last count, as stored."""
        value = {"kernel": self.kernel, "visible": self.visible, "dying": self.dying}[column] or 0
        return Evidence("cgroups", column, "last", value, self.at, self.at + 1, match=self._match)

    @property
    def evidence_of_growth(self) -> Evidence | None:
        """Evidence of the count from which the growth is measured."""
        if self.growth is None:
            return None
        return self._dying_at(self.growth.since, self.growth.first)

    def evidence_of_episode(self, episode: Episode) -> tuple[Evidence, Evidence]:
        """Evidence of the counts at the beginning and at the end of a growth that ended."""
        return self._dying_at(episode.since, episode.first), self._dying_at(episode.until, episode.last)

    def _dying_at(self, at: int, dying: int) -> Evidence:
        return Evidence("cgroups", "dying", "first", dying, at, at + 1, match=self._match)

    @property
    def _match(self) -> tuple[tuple[str, str], ...]:
        return (("hierarchy", self.hierarchy), ("parent", ""))


def cgroup_counts(case: Case) -> list[CgroupCounts]:
    """The counts of every hierarchy, the one with the most dying cgroups first; empty if nothing was counted."""
    whole = case.recorded("cgroups", LOOKED_BACK_S + case.focus.seconds).matching("parent", "")
    found = [_of_hierarchy(whole.matching("hierarchy", name), name) for name in sorted(set(whole.texts("hierarchy")))]
    return sorted(found, key=lambda each: (-(each.dying or 0), -(each.kernel or 0)))


def memory_counts(case: Case) -> CgroupCounts | None:
    """The counts of the hierarchy with the memory controller: if v1 has it, v2 counts other cgroups."""
    found = cgroup_counts(case)
    return next((each for each in found if each.hierarchy == MEMORY_V1), found[0] if found else None)


def leaking_parent(case: Case, counts: CgroupCounts) -> tuple[str, int, Evidence] | None:
    """The innermost cgroup with most of a hierarchy's dying cgroups below it, their number, and the evidence. Only v2
    counts them per parent; None if no parent stands out."""
    rows = case.recorded("cgroups", LOOKED_BACK_S + case.focus.seconds).matching("hierarchy", counts.hierarchy)
    found: list[tuple[str, int]] = [
        (parent, dying)
        for wall, parent, dying in rows.listed("wall", "parent", "dying")
        if wall == counts.at and parent not in ("", "/") and (dying or 0) >= MOST_OF * (counts.dying or 0)
    ]
    if not found:
        return None
    parent, dying = max(found, key=lambda each: each[0].count("/"))
    match = (("hierarchy", counts.hierarchy), ("parent", parent))
    quote = Evidence("cgroups", "dying", "last", dying, counts.at, counts.at + 1, match=match)
    return parent, dying, quote


def _of_hierarchy(rows: Rows, name: str) -> CgroupCounts:
    order = np.argsort(rows.wall, kind="stable")
    walls = rows.wall[order]
    columns = [rows.numbers(column)[order] for column in ("kernel", "visible", "dying")]
    dying = columns[-1]
    known = np.flatnonzero(~np.isnan(dying))
    # Prefer a count with all three values; the kernel's count alone is better than nothing.
    last = int(known[-1]) if len(known) else len(walls) - 1
    newest = [None if np.isnan(column[last]) else int(column[last]) for column in columns]
    return CgroupCounts(name, int(walls[last]), growth_between(_dying_of(rows), RECORDING), *newest)
