"""Lifetimes: cgroups that follow each other in one place, and processes that live for less than a second."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Mask, Rows
from exhume.model.clock import NANOS

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
    """The cgroups of one place, in the order of their creation."""

    pattern: str
    maker: str | None
    hierarchy: int
    lives: list[Lifetime] = field(default_factory=list)

    @property
    def interval_s(self) -> float:
        """Seconds between two births, in the middle."""
        return float(np.median(np.diff([life.born for life in self.lives]))) / NANOS

    @property
    def life_s(self) -> float:
        return float(np.median([life.ended - life.born for life in self.lives])) / NANOS

    @property
    def longest_pause_s(self) -> float:
        """From the end of one to the birth of the next, at most."""
        ends = np.maximum.accumulate([life.ended for life in self.lives])
        return max(0.0, float(np.max([b.born - e for b, e in zip(self.lives[1:], ends[:-1], strict=True)])) / NANOS)

    @property
    def at_once(self) -> float:
        """How many there were at a time, on average over those times when there was any."""
        total = sum(life.ended - life.born for life in self.lives)
        covered = 0
        reach = 0
        for life in self.lives:
            covered += max(0, life.ended - max(life.born, reach))
            reach = max(reach, life.ended)
        return total / covered if covered else 0.0

    @property
    def irregularity(self) -> float:
        """Deviation of the times between births from their mean, as a part of it: a crowd has 1 and more."""
        steps = np.diff([life.born for life in self.lives]).astype(np.float64)
        return float(steps.std() / steps.mean()) if len(steps) > 1 and steps.mean() > 0 else 0.0


def series_of_cgroups(events: Rows) -> list[Series]:
    """The series in rows of cgroup_events, one for each place: of several hierarchies the one with most rows."""
    born: dict[tuple[int, int], tuple[int, str, str | None]] = {}
    found: dict[tuple[int, str], Series] = {}
    columns = ("wall", "hierarchy", "op", "id", "path", "comm")
    rows = events.matching("op", "mkdir", "rmdir").listed(*columns)
    for wall, hierarchy, op, number, path, comm in sorted(rows, key=lambda row: row[0]):
        if number is None or path is None:
            continue
        if op == "mkdir":
            born[hierarchy, number] = (wall, path, comm)
        elif op == "rmdir" and (hierarchy, number) in born:
            began, name, maker = born.pop((hierarchy, number))
            place = place_of(name)
            if place is not None:
                series = found.setdefault((hierarchy, place), Series(place, maker, hierarchy))
                series.lives.append(Lifetime(name, began, wall))
    return _fullest(found.values())


def place_of(path: str) -> str | None:
    """Where a thing is made, its own id left out: a pod's containers are one place, another pod's are another. None
    for what is new each time by its nature."""
    parent, _, leaf = path.rpartition("/")
    return None if _TRANSIENT.match(leaf) else f"{parent}/{path_pattern(leaf)}"


def _fullest(found: Iterable[Series]) -> list[Series]:
    best: dict[str, Series] = {}
    for series in found:
        series.lives.sort(key=lambda life: life.born)
        if series.pattern not in best or len(series.lives) > len(best[series.pattern].lives):
            best[series.pattern] = series
    return sorted(best.values(), key=lambda series: -len(series.lives))


BRIEF_NS = NANOS
# A shell starts a subshell that starts the command: the parent is searched this far up.
_GENERATIONS = 4


@dataclass(frozen=True)
class ShortLived:
    """The short-lived processes of a focus: the mask of their samples, their parents (pid and number of children, the
    busiest first), and the samples of those parents. `started_by` maps each to its lasting ancestor."""

    mask: Mask
    parents: tuple[tuple[int, int], ...]
    of_parents: Mask
    started_by: Mapping[int, int]

    @property
    def with_parents(self) -> Mask:
        return self.mask | self.of_parents

    def pids_of(self, parent: int) -> list[int]:
        """A parent and the processes that it started."""
        return [parent, *(pid for pid, starter in self.started_by.items() if starter == parent)]


def find_short_lived(case: Case) -> ShortLived:
    """The short-lived processes of the focus and their parents."""
    samples = case.samples
    now = samples.within(case.focus)
    none = np.zeros(len(samples), np.bool_)
    parent_of = {
        pid: ppid for pid, ppid in case.now("processes").listed("pid", "ppid") if ppid is not None and ppid > 0
    }
    if not now.any():
        return ShortLived(none, (), none, {})
    pids, members = np.unique(samples.pid, return_inverse=True)
    first = np.full(len(pids), np.iinfo(np.int64).max)
    last = np.zeros(len(pids), np.int64)
    np.minimum.at(first, members, samples.wall)
    np.maximum.at(last, members, samples.wall)
    born = _born(case)
    # A process that is sampled once may be as old as the node: it has to be known to have begun here.
    young = np.array([born(int(pid)) >= case.focus.since - NANOS for pid in pids], np.bool_)
    brief_pids = young & (last - first < BRIEF_NS) & (pids > 0)
    brief = brief_pids[members] & now
    short = set(pids[brief_pids & (first < case.focus.until) & (last >= case.focus.since)].tolist())
    started_by = {pid: _ancestor(pid, parent_of, short) for pid in short}
    counts = Counter(started_by.values())
    counts.pop(0, None)
    ranked = tuple(counts.most_common())
    of_parents = np.isin(samples.pid, [pid for pid, _ in ranked]) & now & ~brief
    return ShortLived(brief, ranked, of_parents, started_by)


def _born(case: Case) -> Callable[[int], int]:
    """The wall time at which a process began, or was first seen; 0 for one that the recording says nothing of."""
    rows = case.now("processes")
    started: dict[int, int] = {}
    for wall, moment, pid, start in rows.listed("wall", "time", "pid", "start"):
        # Both are on CLOCK_MONOTONIC; one that was gone when it was read has no start, and was young.
        started[pid] = wall if start is None else wall - moment + start
    return lambda pid: started.get(pid, 0)


def _ancestor(pid: int, parent_of: Mapping[int, int], short: set[int]) -> int:
    """The nearest ancestor that isn't brief itself; 0 where it isn't known."""
    for _ in range(_GENERATIONS):
        pid = parent_of.get(pid, 0)
        if pid not in short:
            break
    return pid


_ID = re.compile(
    r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}"  # a UUID, as systemd writes it too
    r"|(?=[a-f]*[0-9])[0-9a-f]{12,}"  # a container's id, whole or short
    r"|(?<![0-9A-Za-z])(?=[a-f]*[0-9])[0-9a-f]{8,11}(?![0-9A-Za-z])"
    r"|[0-9]+(?![0-9A-Za-z])"  # a number, unless a letter follows: k8s and s6 stay what they are
)
_REPEATED = re.compile(r"\*(?:[-_.:]?\*)+")


@lru_cache(maxsize=1 << 16)
def path_pattern(path: str) -> str:
    """The path with `*` for ids and numbers, so that 70,000 of `docker/<id>` are one line."""
    return _REPEATED.sub("*", _ID.sub("*", path))
