"""The onset: by uptime (a life table of first incidents), by calendar (a change point), and the changes on the sick
nodes before it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.fleet.cohort.census import DAY_US, Bools, Census
from exhume.fleet.cohort.clusters import Clustering
from exhume.fleet.cohort.separators import LEAST_NODES, Condition
from exhume.fleet.cohort.statistics import (
    ChangePoint,
    Floats,
    Ints,
    adjusted_p,
    change_point,
    fisher_exact,
    g_statistic,
    greatest_by_chance,
    poisson_rate,
    risk_ratio,
)
from exhume.model.clock import Wall
from exhume.model.finding import Estimate

# Longer uptimes are pooled into one line.
MOST_DAYS = 60
# Fewer first incidents do not show when they begin.
LEAST_EVENTS = 5
# Quantiles of first incidents for "from ... to ...": the middle 80%.
_LOW, _HIGH = 0.1, 0.9
# The number of calendar cells in a window, and the shortest cell.
_CELLS, _SHORTEST_CELL_US = 168, 600_000_000
# A change counts if it came at most this long before the first incident, and if chance explains it with a probability
# below this.
LOOKED_BACK_US, ALPHA = 10 * DAY_US, 0.001
# A change on a smaller share of the sick nodes is not what made them sick.
LEAST_COVERAGE = 0.1
MOST_CHANGES = 5
# If sick nodes come in clusters: how many changes are compared when clusters are shuffled, and in how many rounds.
_MOST_COMPARED, _ROUNDS, _SEED = 200, 1999, 1
# Nearly all sick nodes have an incident within this time.
_WASHOUT_US = DAY_US
# Packs a node number into the high bits and seconds into the low ones.
_SECONDS = 1 << 33


@dataclass(frozen=True, slots=True)
class UptimeDay:
    """A day of uptime: the node-days observed that were free of incidents so far, the first incidents on that day,
    their rate, and the share of nodes that would have had one by the end of the day."""

    day: int
    node_days: float
    first_incidents: int
    per_node_day: Estimate
    had_one: float


@dataclass(frozen=True, slots=True)
class Hazard:
    """First incidents of boots by uptime. `from_days` to `to_days`: the middle 80% of them, as if all nodes had been
    observed since boot. `rises_at` is the day from which they are more frequent than before; None if no dependence of
    the rate on uptime is visible."""

    days: tuple[UptimeDay, ...]
    first_incidents: int
    from_days: float | None
    to_days: float | None
    rises_at: int | None
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Onset:
    """When first incidents became more frequent: the best estimate and its range, and the number of nodes per day
    before and after."""

    at: Wall
    earliest: Wall
    latest: Wall
    per_day_before: float
    per_day_after: float


@dataclass(frozen=True, slots=True)
class Change:
    """An attribute that changed on sick nodes before their first incident more often than on the others in that time:
    its new value, the most frequent old value, and how long before (seconds, median)."""

    to: Condition
    before: str
    sick: int
    of_sick: int
    healthy: int
    of_healthy: int
    risk_ratio: Estimate
    p: float
    lead_s: float


def hazard_of(census: Census, members: Bools | None) -> Hazard | None:
    """The life table of some or all nodes; None if there are no first incidents."""
    course = census.course
    width = int(course.boot.max(initial=0)) + 1
    boots, boot_of = np.unique(course.node * width + course.boot, return_inverse=True)
    nodes = boots // width
    started = np.full(len(boots), np.iinfo(np.int64).max)
    np.minimum.at(started, boot_of, course.started)
    incident = _first_incidents(census, nodes, started)
    observed = members[nodes] if members is not None else np.ones(len(nodes), bool)
    begins = _entries(census, boot_of, started)
    # A boot that was sick before is no longer at risk of a first incident.
    observed &= (incident < 0) | (incident >= begins)
    ends = np.where(incident >= 0, incident, np.iinfo(np.int64).max)[boot_of]
    counted = (course.first < ends) & (course.first >= begins[boot_of]) & observed[boot_of]
    minutes = np.where(counted, course.minutes, 0)
    # Of the step that contains the incident, count only the part before it.
    length = np.maximum(course.last - course.first, 1)
    minutes = minutes * np.clip((ends - course.first) / length, 0.0, 1.0)
    uptime = (np.minimum(course.last, ends) + course.first) / 2 - started[boot_of]
    days = np.clip(uptime // DAY_US, 0, MOST_DAYS).astype(np.int64)
    exposure = np.bincount(days, minutes / 1440.0, MOST_DAYS + 1).astype(np.float64)
    sick = observed & (incident >= 0)
    event_days = np.clip((incident[sick] - started[sick]) // DAY_US, 0, MOST_DAYS).astype(np.int64)
    events = np.bincount(event_days, minlength=MOST_DAYS + 1).astype(np.float64)
    if not sick.any():
        return None
    return _hazard(events, exposure)


def _entries(census: Census, boot_of: Ints, started: Ints) -> Ints:
    """When the observation of each boot begins. If the lake holds no incidents from before the window, a boot that was
    up already may have been sick already: such boots count only after some time without an incident."""
    course = census.course
    first = np.full(len(started), np.iinfo(np.int64).max)
    np.minimum.at(first, boot_of, course.first)
    if len(census.earlier.node):
        return first
    wait = int(min(_WASHOUT_US, census.window.nanos // 1000 // 4))
    return np.where(first - started > wait, first + wait, first)


def _hazard(events: Floats, exposure: Floats) -> Hazard:
    last = int(max(np.flatnonzero(events)[-1], *np.flatnonzero(exposure > 0)[-1:], 0)) + 1
    events, exposure = events[:last], exposure[:last]
    # A day with an incident has exposure, even if less than a minute was observed.
    exposure = np.maximum(exposure, events / 1440.0)
    rate = np.where(exposure > 0, events / np.where(exposure > 0, exposure, 1.0), 0.0)
    had_one = 1 - np.exp(-np.cumsum(rate))
    days = tuple(
        UptimeDay(day, observed, int(count), poisson_rate(int(count), observed), share)
        for day, (observed, count, share) in enumerate(
            zip(exposure.tolist(), events.tolist(), had_one.tolist(), strict=True)
        )
    )
    total = int(events.sum())
    change: ChangePoint | None = None
    low = high = None
    if total >= LEAST_EVENTS:
        low, high = (_when(had_one, part * had_one[-1]) for part in (_LOW, _HIGH))
        change = change_point(events, exposure)
    if change is not None and change.after < change.before:
        change = None
    if change is None:
        return Hazard(days, total, low, high, None, None, None)
    return Hazard(days, total, low, high, change.at, change.before, change.after)


def _when(had_one: Floats, share: float) -> float:
    """The uptime in days at which this share had a first incident."""
    day = int(np.searchsorted(had_one, share))
    before = had_one[day - 1] if day else 0.0
    step = had_one[min(day, len(had_one) - 1)] - before
    return day + (float((share - before) / step) if step > 0 else 0.0)


def _first_incidents(census: Census, nodes: Ints, started: Ints) -> Ints:
    """The time of the first incident of each boot; -1 for none."""
    order = np.lexsort((started, nodes))
    keys = nodes[order] * _SECONDS + started[order] // 1_000_000
    found = np.full(len(nodes), np.iinfo(np.int64).max)
    for episodes in (census.earlier, census.episodes):
        place = np.searchsorted(keys, episodes.node * _SECONDS + episodes.moment // 1_000_000, "right") - 1
        known = place >= 0
        boot, moment = order[place[known]], episodes.moment[known]
        same = nodes[boot] == episodes.node[known]
        np.minimum.at(found, boot[same], moment[same])
    return np.where(found == np.iinfo(np.int64).max, -1, found)


def onset_of(census: Census, sick: Bools) -> Onset | None:
    """When first incidents of these nodes became more frequent; None if no such moment stands out."""
    since, until = census.window.since // 1000, census.window.until // 1000
    cell = max(_SHORTEST_CELL_US, -(-(until - since) // _CELLS))
    cells = max(2, -(-(until - since) // cell))
    before = np.zeros(len(census.nodes), bool)
    before[census.earlier.node] = True
    # Nodes that were sick before the window have no onset in it.
    first = census.first_incident[sick & ~before & (census.first_incident >= 0)]
    if len(first) < LEAST_EVENTS:
        return None
    events = np.bincount(np.clip((first - since) // cell, 0, cells - 1), minlength=cells).astype(np.float64)
    # A node that had its first incident is no longer at risk of one.
    left = len(census.nodes) - np.concatenate(([0.0], np.cumsum(events)[:-1]))
    change = change_point(events, np.maximum(left, 1.0))
    if change is None or change.after <= change.before:
        return None
    a_day = DAY_US / cell * len(census.nodes)
    at, earliest, latest = ((since + each * cell) * 1000 for each in (change.at, change.earliest, change.latest))
    return Onset(at, earliest, latest, change.before * a_day, change.after * a_day)


def changes_before(census: Census, sick: Bools, clusterings: Sequence[Clustering] = ()) -> tuple[Change, ...]:
    """Changes on these nodes in the days before their first incident that the others did not have. If there are
    clusterings, changes must also exceed what is likely by chance when whole clusters are sick."""
    values, reference = census.values, census.reference
    rows = np.flatnonzero(~values.begins & (values.value >= 0)) if len(values.node) else np.empty(0, np.int64)
    since = reference[values.node[rows]] - values.moment[rows]
    rows = rows[(since >= 0) & (since < LOOKED_BACK_US)]
    if not len(rows) or not 0 < sick.sum() < len(sick):
        return ()
    code = values.key[rows] * len(values.values) + values.value[rows]
    codes, column = np.unique(code, return_inverse=True)
    # For each change a node counts once, with its last time.
    pairs, last = np.unique(np.stack([column, values.node[rows]])[:, ::-1], axis=1, return_index=True)
    last = len(rows) - 1 - last
    hits = np.bincount(pairs[0], sick[pairs[1]], len(codes)).astype(np.float64)
    members = np.bincount(pairs[0], minlength=len(codes)).astype(np.float64)
    nodes, total = len(sick), int(sick.sum())
    gained = g_statistic(hits, members, float(total), nodes)
    by_chance = _changes_by_chance(pairs, gained, sick, clusterings)
    found: list[Change] = []
    for place in np.argsort(-gained, kind="stable")[: 4 * MOST_CHANGES].tolist():
        changed, had = int(members[place]), int(hits[place])
        p = np.exp(min(0.0, fisher_exact(had, changed, total, nodes) + np.log(len(codes))))
        p = max([p, *(adjusted_p(float(gained[place]), each) for each in by_chance)])
        if had < max(LEAST_NODES, LEAST_COVERAGE * total) or p > ALPHA or len(found) == MOST_CHANGES:
            continue
        own = rows[last[pairs[0] == place]]
        of_sick = own[sick[values.node[own]]]
        lead = float(np.median(reference[values.node[of_sick]] - values.moment[of_sick])) / 1e6
        old = values.value[of_sick - 1]
        usual = int(np.bincount(old[old >= 0]).argmax()) if (old >= 0).any() else -1
        key, value = divmod(int(codes[place]), len(values.values))
        others = nodes - changed
        found.append(
            Change(
                Condition(values.keys[key], values.values[value]),
                values.values[usual] if usual >= 0 else "",
                had,
                total,
                changed - had,
                nodes - total,
                risk_ratio(had, changed, total - had, others),
                float(p),
                lead,
            )
        )
    return tuple(found)


def _changes_by_chance(pairs: Ints, gained: Floats, sick: Bools, clusterings: Sequence[Clustering]) -> list[Floats]:
    """For each clustering, the greatest G of all changes when whole clusters are sick by chance. The first row of
    `pairs` has the change, the second the node."""
    if not clusterings:
        return []
    compared = np.argsort(-gained, kind="stable")[:_MOST_COMPARED]
    place = np.full(len(gained), -1)
    place[compared] = np.arange(len(compared))
    kept = place[pairs[0]] >= 0
    matrix = np.zeros((len(sick), len(compared)), np.float32)
    matrix[pairs[1][kept], place[pairs[0][kept]]] = 1.0
    label = sick[:, None].astype(np.float32)
    return [greatest_by_chance(matrix, label, _ROUNDS, _SEED, each.draw)[:, 0] for each in clusterings]
