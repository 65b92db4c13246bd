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
    """The levels that a verdict goes by.

    `many`: a level at which a cloud vendor advises to act; from here on reads and reclaim take noticeable time.
    `normal`: a freshly booted machine with systemd has some twenty.
    `horizon_hours`: growth counts when it would reach `many` within that time.
    `least_growth`: fewer new ones than this may be the ordinary coming and going.
    """

    many: int = 1000
    normal: int = 100
    horizon_hours: int = 24
    least_growth: int = 5


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

    A cgroup that was just removed is counted for an instant, so each end goes by the lower of its two counts.
    """
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
    many = [each for each in census.hierarchies if (each.dying or 0) >= thresholds.many]
    growing = [
        (each, change)
        for each in census.hierarchies
        if (change := growth.get((each.name, each.controller))) is not None and _matters(each, change, thresholds)
    ]
    reasons = [_many(each, thresholds) for each in many] + [_growing(*each, thresholds) for each in growing]
    if many:
        worst = max(many, key=lambda each: each.dying or 0)
        pace = next((f", and {_pace(change.per_hour)}" for each, change in growing if each is worst), "")
        return Verdict(MANY, f"{_zombies(worst)}{pace}", reasons, thresholds)
    if growing:
        each, change = max(growing, key=lambda pair: pair[1].per_hour)
        return Verdict(GROWING, f"{_zombies(each)}, {_pace(change.per_hour)}", reasons, thresholds)
    most = max(census.hierarchies, key=lambda each: each.dying or 0)
    return Verdict(WELL, _well(most, thresholds), [], thresholds)


def hours_until(dying: int, growth: Growth, thresholds: Thresholds) -> float | None:
    """Hours until there are many, at this pace; None when that is not where it goes."""
    if growth.per_hour <= 0 or dying >= thresholds.many:
        return None
    return (thresholds.many - dying) / growth.per_hour


def _matters(each: HierarchyCensus, growth: Growth, thresholds: Thresholds) -> bool:
    if growth.last - growth.first < thresholds.least_growth:
        return False
    hours = hours_until(each.dying or 0, growth, thresholds)
    return hours is None or hours <= thresholds.horizon_hours


def _many(each: HierarchyCensus, thresholds: Thresholds) -> str:
    return f"{_zombies(each)}: {thresholds.many:,} is where a cloud vendor advises to act"


def _growing(each: HierarchyCensus, growth: Growth, thresholds: Thresholds) -> str:
    hours = hours_until(each.dying or 0, growth, thresholds)
    ahead = "" if hours is None else f"; {thresholds.many:,} would be reached in {_hours(hours)}"
    return f"{count(growth.last - growth.first, 'more zombie')} in {_hours(growth.seconds / 3600)}{ahead}"


def _well(each: HierarchyCensus, thresholds: Thresholds) -> str:
    dying = each.dying or 0
    if dying <= thresholds.normal:
        return f"{_zombies(each) if dying else 'no zombies'}: nothing unusual"
    return f"{_zombies(each)}: more than usual, fewer than {thresholds.many:,}, and not growing by much"


def _zombies(each: HierarchyCensus) -> str:
    what = "zombie memory cgroup" if each.controller == "memory" else f"zombie cgroup of {each.controller}"
    many = "zombie memory cgroups" if each.controller == "memory" else f"zombie cgroups of {each.controller}"
    return count(each.dying or 0, what, many)


def _pace(per_hour: float) -> str:
    return f"growing by {per_hour:,.0f} an hour"


def _hours(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.0f} h" if hours >= 10 else f"{hours:.1f} h"
    return f"{hours * 60:.0f} min" if hours * 60 >= 1 else f"{hours * 3600:.1f} s"
