"""Where growing counts of the node table lead: mounts, network namespaces, dentries, tracked connections;
and zombies, that every walk over memory cgroups passes.

The pace and the memory that each takes are measured on this node, in this recording; a milestone is a limit of the
kernel, or a part of this node's memory.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from exhume.diagnose.catalogue import catalogue, thresholds
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Floats, Rows
from exhume.diagnose.growth import HOUR_NS, RECORDING, forecast_text, growth_between, held_by_each, milestone
from exhume.model.clock import NANOS
from exhume.model.finding import Estimate, Forecast, Milestone

# Looked so far back; what is counted each second is taken at every tenth.
LOOKED_BACK_S, STEP = 600.0, 10
_SINGLE = Estimate(1.0, 1.0, 1.0)


def _limit(name: str) -> float:
    return float(thresholds("forecast")[name])


def count_forecast(case: Case, what: str, column: str, size: float | None) -> Forecast | None:
    """When a table that grows will be full; None where it doesn't grow, or its size is not known."""
    rows = case.recorded("node", LOOKED_BACK_S)
    return _forecast(case, rows, what, rows.numbers(column), size=size)


def memory_forecast(
    case: Case, what: str, column: str, memory: Sequence[str], less: str | None = None
) -> Forecast | None:
    """When what is counted in a column (without what is in another) will take a good part of the node's memory, by the
    kernel memory (columns, in KiB) that grew with it; None where it doesn't grow, or nothing can be said of that."""
    rows = case.recorded("node", LOOKED_BACK_S)
    counts = rows.numbers(column) - (rows.numbers(less) if less is not None else 0.0)
    kernel = np.sum([rows.numbers(each) for each in memory], axis=0) * 1024
    return _forecast(case, rows, what, counts, kernel)


def _forecast(  # noqa: PLR0917
    case: Case, rows: Rows, what: str, counts: Floats, kernel: Floats | None = None, size: float | None = None
) -> Forecast | None:
    points = _points(rows, counts)
    growth = growth_between(points, RECORDING)
    if growth is None or growth.pace is None or growth.last - growth.first < _limit("least_gained"):
        return None
    pace, ahead, held = growth.pace, [], None
    # Some are counted now and then only: the focus ends later than the last count.
    wall, last = points[-1]
    count = round(last + pace.value * max(0, case.focus.until - wall) / HOUR_NS)
    if size is not None:
        ahead.append(milestone("full", size, "", count=count, cost=_SINGLE, pace=pace))
    total = rows.newest("mem_total")
    if kernel is not None and total is not None:
        since = [point for point in points if point[0] >= growth.since]
        held = held_by_each(since, _points(rows, kernel, 1))
        if held is not None:
            limit = _limit("memory_part") * total * 1024
            ahead.append(milestone("memory", limit, "B", count=count, cost=held, pace=pace))
    milestones = tuple(sorted((each for each in ahead if each is not None), key=lambda each: each.in_s))
    if not milestones or milestones[0].in_s > _limit("horizon_s"):
        return None
    text = forecast_text(what, pace, milestones, bytes=held)
    return Forecast(what, count, pace, milestones, text, cost_bytes=held)


def walk_milestones(tracked: int, cost: Estimate, pace: Estimate) -> list[Milestone]:
    """When one walk over all memory cgroups, of which zombies make more and more, will take long enough to be felt.
    `cost` is the walk's microseconds for each of them."""
    zombies, found = catalogue()["zombie-memcgs"], []
    for code, name in (("stall", "stall_s"), ("nic-timeout", "nic_timeout_s"), ("soft-lockup", "soft_lockup_s")):
        limit = zombies.limit(name)
        ahead = milestone(code, limit * 1e6, "us", count=tracked, cost=cost, pace=pace)
        found += [] if ahead is None else [replace(ahead, limit=limit, unit="s")]
    return found


def _points(rows: Rows, values: Floats, step: int = STEP) -> list[tuple[int, int]]:
    """Values at wall times, in order; of those that are known each second only some, which come and go meanwhile."""
    order = np.argsort(rows.wall, kind="stable")
    order = order[~np.isnan(values[order])]
    often = len(order) > 2 and np.median(np.diff(rows.wall[order])) < step * NANOS / 2
    # The last one is among them.
    order = order[::-1][:: step if often else 1][::-1]
    return [(int(rows.wall[place]), int(values[place])) for place in order.tolist()]
