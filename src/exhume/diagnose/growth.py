"""Growth of a count: whether it continues, how fast, and when it will cause trouble."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import hypot, sqrt
from statistics import fmean

from exhume.diagnose import messages
from exhume.model.clock import NANOS, Wall
from exhume.model.finding import Estimate, Milestone
from exhume.model.text import size

# The data that a growth is known from: a recording, a short measurement, or a longer one that is still running.
RECORDING, SAMPLING, WATCHING = "recording", "sampling", "watching"
HOUR_NS = 3600 * NANOS


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The thresholds of a verdict."""

    many: int = 1000  # where a cloud vendor advises to act; from here on reads and reclaim take noticeable time
    normal: int = 100  # a freshly booted machine with systemd has some twenty
    horizon_hours: int = 24  # growth counts when it would reach `many` within that time
    least_growth: int = 5  # fewer new ones than this may be the ordinary coming and going


THRESHOLDS = Thresholds()


# A growth is followed in this many steps; a calm ends it if it is this many times longer than any pause within it.
_STEPS, _CALM = 50, 2
_SHORTEST_CALM_NS = 30 * NANOS


@dataclass(frozen=True, slots=True)
class Episode:
    """A growth that ended: the counts at its beginning and at its end (wall times)."""

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
    """How a count changed over a period that ends now. `since` is wall time. `ended` is a growth that was over by then;
    the other fields describe what came after it. `pace` is the increase per hour with its uncertainty; None if there
    are too few counts."""

    per_hour: float
    seconds: float
    first: int
    last: int
    since: Wall
    source: str
    ended: Episode | None = None
    pace: Estimate | None = None


def growth_between(points: Sequence[tuple[int, int]], source: str, shortest_s: float = 30.0) -> Growth | None:
    """Growth over counts at wall times, in order; None if they cover too short a time.

    A cgroup that was just removed is counted for an instant, so each end uses the lower of its two counts. If most were
    freed in between, growth is counted from there on.
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
        course = [point for point in points if began[0] <= point[0] <= last[0]]
        return replace(_growth(began, last, source), pace=pace_of(course))
    return replace(_growth(ended, last, source), ended=Episode(began[0], ended[0], began[1], ended[1]))


def _growth(first: tuple[int, int], last: tuple[int, int], source: str) -> Growth:
    nanos = last[0] - first[0]
    return Growth((last[1] - first[1]) * HOUR_NS / nanos, nanos / NANOS, first[1], last[1], first[0], source)


def _course(points: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], tuple[int, int] | None]:
    """The count at which the growth began, and the count at which it ended; None if it continues.

    It is followed in steps. A calm before the first or after the last step is not part of the growth if it is longer
    than any pause between two steps: a job that leaks every ten minutes is still growing.
    """
    first, last = points[0], points[-1]
    step = max(THRESHOLDS.least_growth, (last[1] - first[1]) / _STEPS)
    reached, edges = first[1], []
    for before, point, after in zip(points[:-1], points[1:], [*points[2:], last], strict=True):
        # What the next count doesn't confirm had only just been removed.
        confirmed = min(point[1], after[1])
        if confirmed >= reached + step:
            reached = confirmed
            # The next count contains the rest, which is less than a step.
            edges.append((before, point, after))
    if not edges:
        return first, None
    times = [edges[0][0][0], *(point[0] for _, point, _ in edges)]
    calm = max(_SHORTEST_CALM_NS, _CALM * max(later - earlier for earlier, later in pairwise(times)))
    began = edges[0][0] if times[0] - first[0] >= calm else first
    return began, edges[-1][2] if last[0] - times[-1] >= calm else None


# Number of counts needed to know how steady a growth is, and the standard errors that bound a value.
_LEAST_COUNTS, _ERRORS = 4, 2.0


def _variance(values: Sequence[float]) -> float:
    """The variance in floating point: `statistics.pvariance` computes it in fractions, which takes a report over
    10,000 nodes an eighth of its time after the queries."""
    mean = fmean(values)
    return fmean([(each - mean) ** 2 for each in values])


def pace_of(points: Sequence[tuple[int, int]]) -> Estimate | None:
    """The increase per hour over counts at wall times. Steps between counts are treated as independent, or as a
    Poisson process if they look steadier than one; for a growth that accelerates or slows down, the range includes
    both halves."""
    if len(points) < _LEAST_COUNTS or points[-1][1] <= points[0][1]:
        return None
    hours = (points[-1][0] - points[0][0]) / HOUR_NS
    gained = points[-1][1] - points[0][1]
    steps = [after[1] - before[1] for before, after in pairwise(points)]
    error = max(sqrt(gained), sqrt(len(steps) * _variance(steps))) / hours
    parts = pairwise((points[0], points[len(points) // 2], points[-1]))
    halves = [(end[1] - begin[1]) * HOUR_NS / (end[0] - begin[0]) for begin, end in parts]
    pace = gained / hours
    return Estimate(pace, max(0.0, min(pace - _ERRORS * error, *halves)), max(pace + _ERRORS * error, *halves))


def mean_of(values: Sequence[float], resolution: float) -> Estimate:
    """The mean of measured values, each with a known resolution."""
    mean = fmean(values)
    error = hypot(sqrt(_variance(values)), resolution) / sqrt(len(values))
    return Estimate(mean, max(0.0, mean - _ERRORS * error), mean + _ERRORS * error)


def milestone(code: str, limit: float, unit: str, *, count: int, cost: Estimate, pace: Estimate) -> Milestone | None:
    """When the total cost of a growing count will reach a limit, given the cost of each item; None if it already has,
    or if the growth does not lead there."""
    if pace.value <= 0 or cost.value <= 0 or count * cost.value >= limit:
        return None

    def seconds(cost: float, pace: float) -> float:
        return max(0.0, (limit / cost - count) / pace * 3600)

    latest = seconds(cost.low, pace.low) if cost.low > 0 and pace.low > 0 else None
    needed = limit / cost.value
    return Milestone(code, limit, unit, needed, seconds(cost.value, pace.value), seconds(cost.high, pace.high), latest)


def slope_of(points: Sequence[tuple[float, float]]) -> Estimate | None:
    """The slope of y over x by least squares; None if x doesn't vary, or if y doesn't clearly grow with it."""
    if len(points) < _LEAST_COUNTS:
        return None
    x_mean, y_mean = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - x_mean) ** 2 for x, _ in points)
    if not spread:
        return None
    slope = sum((x - x_mean) * (y - y_mean) for x, y in points) / spread
    rest = sum((y - y_mean - slope * (x - x_mean)) ** 2 for x, y in points) / (len(points) - 2)
    error = _ERRORS * sqrt(rest / spread)
    return Estimate(slope, slope - error, slope + error) if slope > error else None


# Change in the number of zombies from which on the kernel memory that each holds stands out from other allocations.
LEAST_FOR_COST = 200


def held_by_each(counts: Sequence[tuple[int, int]], memory: Sequence[tuple[int, int]]) -> Estimate | None:
    """The kernel memory (bytes) that each of a changing number of items holds, from how the total kernel memory changed
    with their number. Both are at wall times, in order; None if the number changed too little to tell."""
    if not counts or not memory:
        return None
    numbers, walls = [number for _, number in counts], [wall for wall, _ in memory]
    if max(numbers) - min(numbers) < LEAST_FOR_COST:
        return None
    nearest = (min(bisect_left(walls, wall), len(walls) - 1) for wall, _ in counts)
    return slope_of([(number, memory[place][1]) for number, place in zip(numbers, nearest, strict=True)])


def forecast_text(what: str, pace: Estimate, milestones: Sequence[Milestone], **costs: Estimate | None) -> str:
    """A sentence with the rate, the costs and the milestones; `costs` are `us` and `bytes`."""
    us, held = costs.get("us"), costs.get("bytes")
    values = {
        "what": messages.render(f"forecast.{what}", {}),
        "rate": pace.value / 60,
        "error": max(pace.high - pace.value, pace.value - pace.low) / 60,
        "us": None if us is None else us.value,
        "held": None if held is None else size(held.value),
    }
    ahead = [
        messages.render(
            f"forecast.{each.code}",
            {
                "limit": size(each.limit) if each.unit == "B" else f"{each.limit:,.0f}",
                "about": _roughly(each.in_s),
                "earliest": _roughly(each.earliest_s),
                "latest": None if each.latest_s is None else _roughly(each.latest_s),
            },
        )
        for each in milestones
    ]
    return messages.render("forecast.sentence", {**values, "ahead": "; ".join(ahead) or None})


_DAY_S, _HOUR_S = 86_400.0, 3600.0


def _roughly(seconds: float) -> str:
    """A duration ahead, rounded to the precision of a forecast."""
    for length, unit in ((_DAY_S, "days"), (_HOUR_S, "hours"), (60.0, "minutes")):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}" if seconds < 10 * length else f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s"
