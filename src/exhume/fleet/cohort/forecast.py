"""Nodes at risk: when walking their zombies will take as long as it did where nodes became sick, if growth continues.
The formula is that of the diagnosis (diagnose/growth.py, diagnose/facts/forecasts.py)."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.catalogue import catalogue, thresholds
from exhume.diagnose.facts.forecasts import walk_milestones
from exhume.diagnose.growth import RECORDING, growth_between, mean_of
from exhume.fleet.cohort.census import Bools, Census
from exhume.fleet.cohort.statistics import Floats, Ints
from exhume.model.clock import NANOS, Wall
from exhume.model.finding import Estimate, Milestone

# The counts of the last two days give the current growth.
_RECENT_US = 2 * 86_400_000_000
# Used if no sick node shows how long a walk has to take: the timeout of a NIC's watchdog.
DEFAULT = "nic-timeout"
_LEAST_SICK = 5


@dataclass(frozen=True, slots=True)
class AtRisk:
    """A node whose zombies grow: how many there are, the growth per hour, the cost of a walk per cgroup (us), and when
    a walk will take too long: the best estimate, the earliest, and the latest (None: maybe never)."""

    node: str
    zombies: int
    per_hour: Estimate
    cost_us: Estimate
    code: str
    at: Wall
    earliest: Wall
    latest: Wall | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """Nodes at risk, the soonest first; `code` is the predicted event (see walk_milestones), `limit_s` how long a walk
    takes then. `leaking` counts nodes whose zombies grow, including sick ones."""

    code: str
    limit_s: float
    leaking: int
    nodes: tuple[AtRisk, ...]


def forecast_of(census: Census, sick: Bools) -> Forecast | None:
    """The forecast; None if no node's zombies grow."""
    course, until = census.course, census.window.until // 1000
    newest = _newest_boot(census)
    rows = np.flatnonzero(newest & ~np.isnan(course.dying) & (course.last >= until - _RECENT_US))
    gained = _gained(course.node[rows], course.dying[rows], len(census.nodes))
    leaking = np.flatnonzero(gained >= float(thresholds("forecast")["least_gained"]))
    if not len(leaking):
        return None
    costs, usual = _costs(census)
    code, limit_s = _milestone_of_sick(census, sick, usual)
    begins, ends = np.searchsorted(course.node[rows], leaking), np.searchsorted(course.node[rows], leaking, "right")
    growing, found = 0, []
    for node, begin, end in zip(leaking.tolist(), begins.tolist(), ends.tolist(), strict=True):
        own = rows[begin:end]
        points = [
            (int(moment) * 1000, int(dying))
            for moment, dying in zip(course.last[own].tolist(), course.dying[own].tolist(), strict=True)
        ]
        growth = growth_between(points, RECORDING)
        if growth is None or growth.pace is None:
            continue
        growing += 1
        cost = costs.get(node, usual)
        if sick[node] or cost is None:
            continue
        tracked = course.tracked[own[-1]]
        count = points[-1][1] if np.isnan(tracked) else int(tracked)
        ahead = [each for each in walk_milestones(count, cost, growth.pace) if each.code == code]
        found += [_at_risk(census.nodes[node], points[-1], growth.pace, cost, each) for each in ahead[:1]]
    horizon = census.window.until + int(float(thresholds("forecast")["horizon_s"]) * NANOS)
    nodes = sorted((each for each in found if each.at <= horizon), key=lambda each: (each.at, each.node))
    return Forecast(code, limit_s, growing, tuple(nodes)) if growing else None


def _at_risk(node: str, newest: tuple[int, int], pace: Estimate, cost: Estimate, ahead: Milestone) -> AtRisk:
    def moment(seconds: float) -> int:
        return newest[0] + int(min(seconds, 1e9) * NANOS)

    latest = None if ahead.latest_s is None else moment(ahead.latest_s)
    return AtRisk(node, newest[1], pace, cost, ahead.code, moment(ahead.in_s), moment(ahead.earliest_s), latest)


def _newest_boot(census: Census) -> Bools:
    """The rows of each node's newest boot."""
    course = census.course
    newest = np.full(len(census.nodes), -1)
    # Rows are in time order, so the last one of each node wins.
    newest[course.node] = course.boot
    rows: Bools = course.boot == newest[course.node]
    return rows


def _gained(node: Ints, dying: Floats, nodes: int) -> Floats:
    low, high = np.full(nodes, np.inf), np.full(nodes, -np.inf)
    np.minimum.at(low, node, dying)
    np.maximum.at(high, node, dying)
    return np.where(np.isfinite(low), high - low, 0.0)


def _costs(census: Census) -> tuple[dict[int, Estimate], Estimate | None]:
    """The cost of a walk per cgroup (us): for each node whose findings measured it, and for a typical node of the
    fleet."""
    course = census.course
    rows = np.flatnonzero(~np.isnan(course.cost) & (course.cost > 0))
    if not len(rows):
        return {}, None
    nodes, begins = np.unique(course.node[rows], return_index=True)
    parts = np.split(course.cost[rows], begins[1:])
    found = {
        node: mean_of(part.tolist(), 0.1 * float(part.mean())) for node, part in zip(nodes.tolist(), parts, strict=True)
    }
    low, value, high = np.quantile([each.value for each in found.values()], (0.1, 0.5, 0.9))
    return found, Estimate(float(value), float(low), float(high))


def _milestone_of_sick(census: Census, sick: Bools, usual: Estimate | None) -> tuple[str, float]:
    """The milestone closest to the walk times at which nodes became sick."""
    zombies = catalogue()["zombie-memcgs"]
    limits = {code: zombies.limit(f"{code.replace('-', '_')}_s") for code in ("stall", "nic-timeout", "soft-lockup")}
    first, course = census.first_incident, census.course
    if usual is not None:
        # The last count before each first incident.
        rows = np.flatnonzero(sick[course.node] & (course.first <= first[course.node]) & ~np.isnan(course.tracked))
        last = {int(node): int(row) for node, row in zip(course.node[rows].tolist(), rows.tolist(), strict=True)}
        walks = [
            course.tracked[row] * (course.cost[row] if course.cost[row] > 0 else usual.value) / 1e6
            for row in last.values()
        ]
        if len(walks) >= _LEAST_SICK:
            typical = max(float(np.median(walks)), 1e-3)
            code = min(limits, key=lambda each: abs(np.log(limits[each] / typical)))
            return code, limits[code]
    return DEFAULT, limits[DEFAULT]
