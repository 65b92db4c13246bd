"""The lanes of the timeline: counts and pressures of the node by the second, pooled into maxima."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.present.web.handle import RecordingHandle
from exhume.present.web.params import LanesParams
from exhume.present.web.query import ms, window_of
from exhume.present.web.reply import Reply, json_reply
from exhume.present.web.schemas import LaneShape, LanesShape, Line
from exhume.store.format.schema import UnreadableFile
from exhume.store.read.index import Segment
from exhume.store.read.reader import Request, read_segment

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# Milliseconds of wall time, and the value.
Point = tuple[int, float]
# The longest time between two reads of a source.
_RARE = 60 * NANOS
Series = Mapping[str, tuple[Ints, Floats]]
_MEMORY_HIERARCHIES = ("memory", "unified", "v2", "")


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane: the table that it is read from, the titles of its lines, and how rows become points (times by the
    recorder's clock, values)."""

    name: str
    title: str
    unit: str
    table: str
    columns: tuple[str, ...]
    lines: Mapping[str, str]
    points: Callable[[pa.Table], Series]


@dataclass(frozen=True, slots=True)
class Points:
    """Points of one segment by line: wall nanoseconds and values."""

    lines: Mapping[str, tuple[Ints, Floats]]


@dataclass(frozen=True, slots=True)
class TablePoints:
    """Points of one segment for every lane of a table: it is read once for all of them."""

    lanes: Mapping[str, Points]

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes + b.nbytes for points in self.lanes.values() for a, b in points.lines.values())


def lanes(handle: RecordingHandle, params: LanesParams) -> Reply:
    """Lines over time, each point the greatest value in its cell; and the nearest points before and after."""
    window = window_of(handle, params.since, params.until)
    chosen = [LANES[name] for name in (params.names.split(",") if params.names else LANES) if name in LANES]
    points = _points(handle, window, chosen)
    found = []
    for lane in chosen:
        pooled = _pool(points[lane.name], lane, window, params.cells)
        outside = _nearest_outside(points[lane.name], lane, window)
        series = [
            Line(name=name, title=title, values=pooled[name], before=outside[name][0], after=outside[name][1])
            for name, title in lane.lines.items()
        ]
        found.append(LaneShape(name=lane.name, title=lane.title, unit=lane.unit, series=series))
    return json_reply(LanesShape(since=ms(window.since), until=ms(window.until), cells=params.cells, lanes=found))


def _points(handle: RecordingHandle, window: Window, lanes: Sequence[Lane]) -> dict[str, list[Points]]:
    """The points of each lane in the segments of a window, and in those next to it."""
    segments = handle.recording().holding(Window(window.since - _RARE, window.until + _RARE))
    found: dict[str, list[Points]] = {}
    for table in dict.fromkeys(lane.table for lane in lanes):
        read = handle.cache.get(segments, ("lanes", table), partial(_read, table=table))
        found |= {lane.name: [each.lanes[lane.name] for each in read] for lane in lanes if lane.table == table}
    return found


def _read(segment: Segment, table: str) -> TablePoints:
    """A file that can't be read is left out; the recording reports it elsewhere."""
    lanes = [lane for lane in LANES.values() if lane.table == table]
    columns = list(dict.fromkeys(["time", *(column for lane in lanes for column in lane.columns)]))
    try:
        rows = read_segment(segment, Request(table, None, columns))
    except UnreadableFile as error:
        rows = error.rows
    if rows is None:
        return TablePoints({lane.name: Points({}) for lane in lanes})
    offset = segment.name.offset
    return TablePoints(
        {
            lane.name: Points({line: (times + offset, values) for line, (times, values) in lane.points(rows).items()})
            for lane in lanes
        }
    )


def _pool(points: list[Points], lane: Lane, window: Window, cells: int) -> dict[str, list[float | None]]:
    """For each line the greatest value in each cell; None where there is none."""
    pooled = {}
    for line in lane.lines:
        greatest = np.full(cells, -np.inf)
        known = [each.lines[line] for each in points if line in each.lines]
        times = np.concatenate([np.zeros(0, np.int64), *(each[0] for each in known)])
        values = np.concatenate([np.zeros(0), *(each[1] for each in known)])
        inside = (times >= window.since) & (times < window.until) & ~np.isnan(values)
        cell = (times[inside] - window.since) // MILLIS * cells // max(1, window.nanos // MILLIS)
        np.maximum.at(greatest, np.clip(cell, 0, cells - 1), values[inside])
        pooled[line] = [None if value == -np.inf else round(value, 4) for value in greatest.tolist()]
    return pooled


def _nearest_outside(points: list[Points], lane: Lane, window: Window) -> dict[str, tuple[Point | None, Point | None]]:
    """For each line the last point before a window and the first one after it: what is sampled every ten seconds has
    a line in a view of one second, too."""
    found = {}
    for line in lane.lines:
        known = [each.lines[line] for each in points if line in each.lines]
        times = np.concatenate([np.zeros(0, np.int64), *(each[0] for each in known)])
        values = np.concatenate([np.zeros(0), *(each[1] for each in known)])
        measured = ~np.isnan(values)
        times, values = times[measured], values[measured]
        before, after = times < window.since, times >= window.until
        found[line] = (
            _point(times[before], values[before], last=True),
            _point(times[after], values[after], last=False),
        )
    return found


def _point(times: Ints, values: Floats, *, last: bool) -> Point | None:
    if not len(times):
        return None
    place = int(np.argmax(times) if last else np.argmin(times))
    return int(times[place]) // MILLIS, round(float(values[place]), 4)


def _numbers(rows: pa.Table, column: str) -> Floats:
    """A column with NaN for null."""
    values: Floats = pc.fill_null(rows.column(column).cast(pa.float64()), float("nan")).to_numpy()
    return values


def _times(rows: pa.Table) -> Ints:
    times: Ints = rows.column("time").to_numpy()
    return times


def _per_second(rows: pa.Table, **lines: str) -> Series:
    seconds = np.maximum(_numbers(rows, "span_ms"), 1) / 1000
    return {line: (_times(rows), _numbers(rows, column) / seconds) for line, column in lines.items()}


def _memcgs(rows: pa.Table) -> Series:
    tops = rows.filter(pc.equal(rows.column("parent"), pa.scalar("", pa.string())))
    names = set(tops.column("hierarchy").to_pylist())
    chosen = next((name for name in _MEMORY_HIERARCHIES if name in names), next(iter(sorted(names)), ""))
    tops = tops.filter(pc.equal(tops.column("hierarchy"), pa.scalar(chosen, pa.string())))
    return {line: (_times(tops), _numbers(tops, line)) for line in ("kernel", "visible", "dying")}


def _pressure(rows: pa.Table) -> Series:
    # Stalled microseconds of a second are a share of it: percent.
    found = _per_second(rows, cpu="psi_cpu_some", memory="psi_memory_some", io="psi_io_some")
    return {line: (times, np.minimum(values / 1e4, 100.0)) for line, (times, values) in found.items()}


def _reclaim(rows: pa.Table) -> Series:
    return _per_second(rows, kswapd="pgscan_kswapd", direct="pgscan_direct")


def _wait(rows: pa.Table) -> Series:
    waited = _numbers(rows, "wait_ns") / (np.maximum(_numbers(rows, "span_ms"), 1) * MILLIS)
    # Of all cores at a moment only the worst is drawn.
    times, place = np.unique(_times(rows), return_inverse=True)
    worst = np.full(len(times), -np.inf)
    known = ~np.isnan(waited)
    np.maximum.at(worst, place[known], waited[known])
    return {"worst": (times, np.where(worst == -np.inf, np.nan, worst))}


def _throttling(rows: pa.Table) -> Series:
    times, place = np.unique(_times(rows), return_inverse=True)
    throttled: Floats = np.bincount(place, _numbers(rows, "throttled_ns") / NANOS, len(times)).astype(np.float64)
    return {"throttled": (times, throttled)}


LANES: dict[str, Lane] = {
    lane.name: lane
    for lane in (
        Lane(
            "memcgs",
            "memory cgroups",
            "cgroups",
            "cgroups",
            ("hierarchy", "parent", "kernel", "visible", "dying"),
            {"kernel": "tracked by the kernel", "visible": "visible as directories", "dying": "zombies"},
            _memcgs,
        ),
        Lane(
            "pressure",
            "pressure",
            "% of the second stalled",
            "node",
            ("span_ms", "psi_cpu_some", "psi_memory_some", "psi_io_some"),
            {"cpu": "CPU", "memory": "memory", "io": "I/O"},
            _pressure,
        ),
        Lane(
            "reclaim",
            "reclaim",
            "pages scanned a second",
            "node",
            ("span_ms", "pgscan_kswapd", "pgscan_direct"),
            {"direct": "by tasks that need memory", "kswapd": "by kswapd"},
            _reclaim,
        ),
        Lane(
            "wait",
            "run-queue wait",
            "seconds waited a second, worst core",
            "cpu",
            ("span_ms", "wait_ns"),
            {"worst": "worst core"},
            _wait,
        ),
        Lane(
            "throttling",
            "throttling",
            "seconds throttled a second, all groups",
            "throttling",
            ("throttled_ns",),
            {"throttled": "throttled"},
            _throttling,
        ),
    )
}
