"""What a count of zombies means: a verdict, and the thresholds that it goes by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class Growth:
    """How a count changed over a while that ends now. `since` is wall time."""

    per_hour: float
    seconds: float
    first: int
    last: int
    since: Wall
    source: str


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
    nanos = last[0] - first[0]
    if nanos <= 0:
        return None
    return Growth((last[1] - first[1]) * HOUR_NS / nanos, nanos / NANOS, first[1], last[1], first[0], source)


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
