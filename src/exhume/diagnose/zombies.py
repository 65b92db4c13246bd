"""What a count of zombies means: a verdict, and the thresholds that it goes by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from exhume.model.clock import NANOS, Wall
from exhume.model.text import count
from exhume.model.zombies import Census, HierarchyCensus

# Where growth is known from: what was recorded, a short look, or a longer one that is still going on.
RECORDING, SAMPLING, WATCHING = "recording", "sampling", "watching"
WELL, GROWING, MANY, UNKNOWN = "well", "growing", "many", "unknown"
HOUR_NS = 3600 * NANOS


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The levels that a verdict goes by."""

    many: int = 1000  # where a cloud vendor advises to act; from here on reads and reclaim take noticeable time
    normal: int = 100  # a freshly booted machine with systemd has some twenty
    horizon_hours: int = 24  # growth counts when it would reach `many` within that time
    least_growth: int = 5  # fewer new ones than this may be the ordinary coming and going


THRESHOLDS = Thresholds()


# Parts of a growth by which it is followed, and how much longer than any pause in it a calm is that ends it.
_STEPS, _CALM = 50, 2
_SHORTEST_CALM_NS = 30 * NANOS


@dataclass(frozen=True, slots=True)
class Episode:
    """A growth that ended: the counts at its begin and at its end (wall times)."""

    since: Wall
    until: Wall
    first: int
    last: int

    @property
    def gained(self) -> int:
        return self.last - self.first

    @property
    def seconds(self) -> float:
        return (self.until - self.since) / NANOS

    @property
    def per_second(self) -> float:
        return self.gained / max(self.seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Growth:
    """How a count changed over a while that ends now. `since` is wall time. `ended` is a growth that was over by
    then: the rest is what came after it."""

    per_hour: float
    seconds: float
    first: int
    last: int
    since: Wall
    source: str
    ended: Episode | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a node's zombies. `level` is well, growing, many or unknown."""

    level: str
    summary: str
    reasons: list[str] = field(default_factory=list)
    thresholds: Thresholds = THRESHOLDS

    @property
    def is_finding(self) -> bool:
        return self.level in (GROWING, MANY)


def growth_between(points: Sequence[tuple[int, int]], source: str, shortest_s: float = 30.0) -> Growth | None:
    """Growth over counts at wall times, in their order; None where they cover too short a time.

    A cgroup that was just removed is counted for an instant, so each end goes by the lower of its two counts. Once most
    were freed, growth counts from there on.
    """
    counts = [dying for _, dying in points]
    freed = (at for at in range(1, len(counts)) if THRESHOLDS.normal < counts[at - 1] > 2 * counts[at])
    points = points[max(freed, default=0) :]
    if len(points) < 2 or points[-1][0] - points[0][0] < shortest_s * NANOS:
        return None
    begin, end = points[:2] if len(points) > 3 else points[:1], points[-2:] if len(points) > 3 else points[-1:]
    first, last = min(begin, key=lambda point: point[1]), min(end, key=lambda point: point[1])
    if last[0] <= first[0]:
        return None
    began, ended = _course(points[points.index(first) : points.index(last) + 1])
    if ended is None:
        return _growth(began, last, source)
    return replace(_growth(ended, last, source), ended=Episode(began[0], ended[0], began[1], ended[1]))


def _growth(first: tuple[int, int], last: tuple[int, int], source: str) -> Growth:
    nanos = last[0] - first[0]
    return Growth((last[1] - first[1]) * HOUR_NS / nanos, nanos / NANOS, first[1], last[1], first[0], source)


def _course(points: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """From which count on it grew, and the count with which that ended; None where it goes on.

    It is followed in steps. A calm before the first or after the last one is no part of the growth when it is longer
    than any pause between two of them: a job that leaks every ten minutes goes on.
    """
    first, last = points[0], points[-1]
    step = max(THRESHOLDS.least_growth, (last[1] - first[1]) / _STEPS)
    reached, edges = first[1], []
    for before, point, after in zip(points[:-1], points[1:], [*points[2:], last], strict=True):
        # What the next count doesn't confirm was removed just then.
        confirmed = min(point[1], after[1])
        if confirmed >= reached + step:
            reached = confirmed
            # The count after it has the rest, less than a step.
            edges.append((before, point, after))
    if not edges:
        return first, None
    times = [edges[0][0][0], *(point[0] for _, point, _ in edges)]
    calm = max(_SHORTEST_CALM_NS, _CALM * max(later - earlier for earlier, later in pairwise(times)))
    began = edges[0][0] if times[0] - first[0] >= calm else first
    return began, edges[-1][2] if last[0] - times[-1] >= calm else None


def judge(census: Census, growth: Mapping[tuple[str, str], Growth], thresholds: Thresholds = THRESHOLDS) -> Verdict:
    """The verdict on a census; growth is by (hierarchy, controller)."""
    if not any(each.controller == "memory" and each.dying is not None for each in census.hierarchies):
        notes = [*dict.fromkeys(each.note for each in census.hierarchies if each.note), *census.blind_spots]
        return Verdict(UNKNOWN, "memory cgroups can't be counted here", notes[:1], thresholds)
    limit = f"{thresholds.many:,}"
    many = [each for each in census.hierarchies if (each.dying or 0) >= thresholds.many]
    reasons = [f"{_zombies(each)}: {limit} is where a cloud vendor advises to act" for each in many]
    growing = []
    for each in census.hierarchies:
        change = growth.get((each.name, each.controller))
        if change is not None and change.ended is not None:
            over = change.ended
            gained, took, ago = count(over.gained, "more zombie"), _hours(over.seconds / 3600), change.seconds / 3600
            reasons.append(f"{gained} in {took}, {over.per_second:,.1f} a second; that ended {_hours(ago)} ago")
        if change is None or change.last - change.first < thresholds.least_growth:
            continue
        hours = hours_until(each.dying or 0, change, thresholds)
        if hours is None or hours <= thresholds.horizon_hours:
            growing.append((change.per_hour, each))
            ahead = "" if hours is None else f"; {limit} would be reached in {_hours(hours)}"
            gained = count(change.last - change.first, "more zombie")
            reasons.append(f"{gained} in {_hours(change.seconds / 3600)}{ahead}")
    most = max(census.hierarchies, key=lambda each: each.dying or 0)
    if many:
        also = next((f", and growing by {pace:,.0f} an hour" for pace, each in growing if each is most), "")
        return Verdict(MANY, f"{_zombies(most)}{also}", reasons, thresholds)
    if growing:
        pace, each = max(growing, key=lambda pair: pair[0])
        return Verdict(GROWING, f"{_zombies(each)}, growing by {pace:,.0f} an hour", reasons, thresholds)
    well = f"{_zombies(most) if most.dying else 'no zombies'}: nothing unusual"
    if (most.dying or 0) > thresholds.normal:
        well = f"{_zombies(most)}: more than usual, fewer than {limit}, and not growing by much"
    return Verdict(WELL, well, [], thresholds)


def hours_until(dying: int, growth: Growth, thresholds: Thresholds) -> float | None:
    """Hours until there are many, at this pace; None when that is not where it goes."""
    if growth.per_hour <= 0 or dying >= thresholds.many:
        return None
    return (thresholds.many - dying) / growth.per_hour


def _zombies(each: HierarchyCensus) -> str:
    what = ("zombie memory cgroup", "") if each.controller == "memory" else ("zombie cgroup", f" of {each.controller}")
    return count(each.dying or 0, f"{what[0]}{what[1]}", f"{what[0]}s{what[1]}")


def _hours(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.0f} h" if hours >= 10 else f"{hours:.1f} h"
    return f"{hours * 60:.0f} min" if hours * 60 >= 1 else f"{hours * 3600:.1f} s"
