"""Forecasts for growing counts: mounts, network namespaces, dentries, tracked connections, live cgroups, and zombies,
which every walk over memory cgroups visits.

The pace, the memory that each item takes, and the time of a walk over all of them are measured on this node, in this
recording. A milestone is a kernel limit, a fraction of this node's memory, or a core.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

import numpy as np

from exhume.diagnose.catalogue import catalogue, thresholds
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.rows import Floats, Ints, Mask, Rows
from exhume.diagnose.growth import HOUR_NS, RECORDING, forecast_text, growth_between, held_by_each, mean_of, milestone
from exhume.model.clock import NANOS
from exhume.model.finding import Estimate, Forecast, Milestone

# How far to look back (seconds); of counts that are recorded every second, every tenth is used.
LOOKED_BACK_S, STEP = 600.0, 10
_SINGLE = Estimate(1.0, 1.0, 1.0)
# Counts (or bytes) at wall times, in order.
Points = Sequence[tuple[int, int]]


def _limit(name: str) -> float:
    return float(thresholds("forecast")[name])


def count_forecast(case: Case, what: str, column: str, size: float | None, walk: Load | None = None) -> Forecast | None:
    """When a growing table will be full, or walking it will take a core; None if it doesn't grow, or if neither its
    size nor a walk is known."""
    rows = case.recorded("node", LOOKED_BACK_S)
    return grown_forecast(case, what, _points(rows, rows.numbers(column)), size=size, walk=walk)


def memory_forecast(
    case: Case, what: str, column: str, memory: Sequence[str], less: str | None = None
) -> Forecast | None:
    """When the items counted in a column (minus those in `less`) will take a good part of the node's memory, given the
    kernel memory (columns, in KiB) that grew with them; None if they don't grow or too little is known."""
    rows = case.recorded("node", LOOKED_BACK_S)
    counts = rows.numbers(column) - (rows.numbers(less) if less is not None else 0.0)
    return grown_forecast(case, what, _points(rows, counts), memory)


def grown_forecast(  # noqa: PLR0917
    case: Case,
    what: str,
    points: Points,
    memory: Sequence[str] = (),
    size: float | None = None,
    walk: Load | None = None,
) -> Forecast | None:
    """Forecast the growth of a count: when a table of that size will be full; when the kernel memory that grew with it
    (columns of the node table, in KiB) will be much of the node's memory; when the process that walks the items will
    take a core. None if the count doesn't grow or no milestone is near."""
    growth, rows = growth_between(points, RECORDING), case.recorded("node", LOOKED_BACK_S)
    if growth is None or growth.pace is None or growth.last - growth.first < _limit("least_gained"):
        return None
    pace, ahead, held = growth.pace, [], None
    # Some counts are taken only now and then, so the focus ends after the last one.
    wall, last = points[-1]
    count = round(last + pace.value * max(0, case.focus.until - wall) / HOUR_NS)
    if size is not None:
        ahead.append(milestone("full", size, "", count=count, cost=_SINGLE, pace=pace))
    total = rows.newest("mem_total")
    if memory and total is not None:
        since = [point for point in points if point[0] >= growth.since]
        kernel = np.sum([rows.numbers(each) for each in memory], axis=0) * 1024
        held = held_by_each(since, _points(rows, kernel, 1))
        if held is not None:
            limit = _limit("memory_part") * total * 1024
            ahead.append(milestone("memory", limit, "B", count=count, cost=held, pace=pace))
    cost = None if walk is None else round_cost(case, walk, points)
    share = None if walk is None else _share_of_each(case, walk, points)
    if share is not None:
        ahead.append(milestone("core", _limit("core"), "cores", count=count, cost=share, pace=pace))
    milestones = tuple(sorted((each for each in ahead if each is not None), key=lambda each: each.in_s))
    if not milestones or milestones[0].in_s > _limit("horizon_s"):
        return None
    text = forecast_text(what, pace, milestones, us=cost, bytes=held)
    return Forecast(what, count, pace, milestones, text, cost, held)


def _share_of_each(case: Case, walk: Load, points: Points) -> Estimate | None:
    """Cores' worth that a walk takes per item; its uncertainty depends on the number of samples."""
    if not walk.samples:
        return None
    middle = (case.focus.since + case.focus.until) // 2
    count = np.interp(middle, [wall for wall, _ in points], [number for _, number in points])
    share, error = walk.cores / max(float(count), 1.0), min(1.0, 2 / sqrt(walk.samples))
    return Estimate(share, share * (1 - error), share * (1 + error))


def round_cost(case: Case, walk: Load, counts: Points) -> Estimate | None:
    """The cost of a walk per item (us), from the walker's longest turns that began and ended within the focus; a turn
    in which it had to wait for a core is one. None if it pauses too little to tell one turn from the next."""
    samples, owner = case.samples, walk.main_owner
    if owner is None or not counts:
        return None
    own = np.flatnonzero(walk.mask & (samples.pid == owner.pid))
    own = own[np.argsort(samples.wall[own], kind="stable")]
    walls, weights = samples.wall[own], samples.weight[own]
    if not len(own):
        return None
    period = float(np.median(weights))
    gap = round(_limit("round_gap") * period * 1000)
    pauses = (np.diff(walls) > gap) & ~_waits_between(case, owner.pid, walls, round(period * 1000))
    turns = np.split(np.arange(len(own)), np.flatnonzero(pauses) + 1)
    whole = [
        (float(weights[turn].sum()), int(walls[turn[0]]))
        for turn in turns
        if walls[turn[0]] - case.focus.since > gap
        and case.focus.until - walls[turn[-1]] > gap
        and len(turn) >= _limit("round_samples")
    ]
    # Shorter turns don't walk everything.
    longest = [(took, wall) for took, wall in whole if took >= max(whole)[0] / 2]
    if not longest:
        return None
    # The number of items grows in the meantime.
    known = np.interp([wall for _, wall in longest], [wall for wall, _ in counts], [number for _, number in counts])
    costs = [took / max(count, 1.0) for (took, _), count in zip(longest, known.tolist(), strict=True)]
    return mean_of(costs, period / max(float(known.max()), 1.0))


def _waits_between(case: Case, pid: int, walls: Ints, period: int) -> Mask:
    """Which gaps between samples of a process are waits for a core rather than pauses, by its run delay in each tick:
    it goes to the shortest gaps first, as what takes turns with others waits for milliseconds."""
    gaps = np.diff(walls) - period
    waits, rows = np.zeros(len(gaps), np.bool_), case.now("run_delays")
    rows = rows.where(rows.numbers("pid") == pid)
    if not len(rows) or not len(gaps):
        return waits
    first = int(rows.wall.min())
    ticks = (rows.wall - first + NANOS // 2) // NANOS
    # From the tick before the first row on, as the first sample may be older.
    left = np.bincount(ticks + 1, np.nan_to_num(rows.numbers("wait_ns")), int(ticks.max()) + 2)
    begins, ends = (np.clip((each - first) // NANOS + 1, 0, len(left) - 1) for each in (walls[:-1], walls[1:]))
    for place in np.argsort(gaps, kind="stable").tolist():
        needed, since, until = float(gaps[place]), int(begins[place]), int(ends[place])
        if needed <= 0:
            continue
        waits[place] = left[since : until + 1].sum() >= _limit("waited_part") * needed
        # A wait is counted in the tick in which it ends.
        for tick in range(until, since - 1, -1) if waits[place] else ():
            taken = min(float(left[tick]), needed)
            left[tick] -= taken
            needed -= taken
    return waits


def walk_milestones(tracked: int, cost: Estimate, pace: Estimate) -> list[Milestone]:
    """When one walk over all memory cgroups, to which zombies keep adding, will take long enough to be noticed. `cost`
    is the walk's microseconds per cgroup."""
    zombies, found = catalogue()["zombie-memcgs"], []
    for code, name in (("stall", "stall_s"), ("nic-timeout", "nic_timeout_s"), ("soft-lockup", "soft_lockup_s")):
        limit = zombies.limit(name)
        ahead = milestone(code, limit * 1e6, "us", count=tracked, cost=cost, pace=pace)
        found += [] if ahead is None else [replace(ahead, limit=limit, unit="s")]
    return found


def _points(rows: Rows, values: Floats, step: int = STEP) -> Points:
    """Values at wall times, in order; counts recorded every second are thinned out, as items come and go in between."""
    order = np.argsort(rows.wall, kind="stable")
    order = order[~np.isnan(values[order])]
    often = len(order) > 2 and np.median(np.diff(rows.wall[order])) < step * NANOS / 2
    # Thin out from the end, so that the last value is kept.
    order = order[::-1][:: step if often else 1][::-1]
    return [(int(rows.wall[place]), int(values[place])) for place in order.tolist()]
