"""Counters of the node: the lanes of the timeline (counts and pressure by the second, pooled into maxima), and
interrupts by line and core."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.present.web.handle import RecordingHandle, cpus_of, ms
from exhume.present.web.params import InterruptsParams, LanesParams
from exhume.present.web.schemas import InterruptLine, InterruptsShape, LaneShape, LanesShape, Line, Reply, json_reply
from exhume.store.format.schema import UnreadableFile
from exhume.store.read.index import Segment
from exhume.store.read.reader import Request, read_available, read_segment, with_wall
from exhume.store.read.recording import Recording

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
# The points of each line: times and values.
Series = Mapping[str, tuple[Ints, Floats]]
# The longest interval between two reads of a source.
_RARE = 60 * NANOS
_MEMORY_HIERARCHIES = ("memory", "unified", "v2", "")


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane of the timeline: the table it is read from, the titles of its lines, and the function that converts rows
    to points (times by the recorder's clock, values)."""

    name: str
    title: str
    unit: str
    table: str
    columns: tuple[str, ...]
    lines: Mapping[str, str]
    points: Callable[[pa.Table], Series]


@dataclass(frozen=True, slots=True)
class TablePoints:
    """The points of one segment by lane and line, in wall nanoseconds, for all lanes of a table, so that it is read
    only once."""

    lanes: Mapping[str, Series]

    @property
    def nbytes(self) -> int:
        return sum(times.nbytes + values.nbytes for lane in self.lanes.values() for times, values in lane.values())


def lanes(handle: RecordingHandle, params: LanesParams) -> Reply:
    """Lines over time, each point being the maximum of its cell; and the nearest points outside the window."""
    window = handle.window(params.since, params.until)
    chosen = [LANES[name] for name in (params.names.split(",") if params.names else LANES) if name in LANES]
    segments = handle.recording().holding(Window(window.since - _RARE, window.until + _RARE))
    read = {
        table: handle.cache.get(segments, ("lanes", table), partial(_read, table=table))
        for table in dict.fromkeys(lane.table for lane in chosen)
    }
    found: list[LaneShape] = [
        {
            "name": lane.name,
            "title": lane.title,
            "unit": lane.unit,
            "series": [
                _line(name, title, [each.lanes[lane.name] for each in read[lane.table]], window, params.cells)
                for name, title in lane.lines.items()
            ],
        }
        for lane in chosen
    ]
    shape: LanesShape = {"since": ms(window.since), "until": ms(window.until), "cells": params.cells, "lanes": found}
    return json_reply(shape)


def _read(segment: Segment, table: str) -> TablePoints:
    """Read the rows of a segment; unreadable files are skipped, and the recording reports them separately."""
    lanes = [lane for lane in LANES.values() if lane.table == table]
    columns = list(dict.fromkeys(["time", *(column for lane in lanes for column in lane.columns)]))
    try:
        rows = read_segment(segment, Request(table, None, columns))
    except UnreadableFile as error:
        rows = error.rows
    if rows is None:
        return TablePoints({lane.name: {} for lane in lanes})
    return TablePoints(
        {
            lane.name: {
                line: (times + segment.name.offset, values) for line, (times, values) in lane.points(rows).items()
            }
            for lane in lanes
        }
    )


def _line(name: str, title: str, points: list[Series], window: Window, cells: int) -> Line:
    """The maximum of each cell, None where there is none, with the last point before the window and the first one
    after it: a source sampled every ten seconds then still has a line in a view of one second."""
    known = [each[name] for each in points if name in each]
    times = np.concatenate([np.zeros(0, np.int64), *(each[0] for each in known)])
    values = np.concatenate([np.zeros(0), *(each[1] for each in known)])
    measured = ~np.isnan(values)
    times, values = times[measured], values[measured]
    before, after = times < window.since, times >= window.until
    inside = ~before & ~after
    cell = (times[inside] - window.since) // MILLIS * cells // max(1, window.nanos // MILLIS)
    greatest = np.full(cells, -np.inf)
    np.maximum.at(greatest, np.clip(cell, 0, cells - 1), values[inside])
    return {
        "name": name,
        "title": title,
        "values": [None if value == -np.inf else round(value, 4) for value in greatest.tolist()],
        "before": _point(times[before], values[before], last=True),
        "after": _point(times[after], values[after], last=False),
    }


def _point(times: Ints, values: Floats, *, last: bool) -> tuple[int, float] | None:
    """A point: wall time in milliseconds, and the value."""
    if not len(times):
        return None
    place = int(np.argmax(times) if last else np.argmin(times))
    return int(times[place]) // MILLIS, round(float(values[place]), 4)


def _numbers(rows: pa.Table, column: str) -> Floats:
    """A column with NaN for null, which is how Arrow converts it to numpy: faster than casting and filling it."""
    values: Floats = rows.column(column).to_numpy().astype(np.float64, copy=False)
    return values


def _per_second(rows: pa.Table, **lines: str) -> Series:
    seconds = np.maximum(_numbers(rows, "span_ms"), 1) / 1000
    return {line: (rows.column("time").to_numpy(), _numbers(rows, column) / seconds) for line, column in lines.items()}


def _memcgs(rows: pa.Table) -> Series:
    tops = rows.filter(pc.equal(rows.column("parent"), pa.scalar("", pa.string())))
    names = set(tops.column("hierarchy").to_pylist())
    chosen = next((name for name in _MEMORY_HIERARCHIES if name in names), next(iter(sorted(names)), ""))
    tops = tops.filter(pc.equal(tops.column("hierarchy"), pa.scalar(chosen, pa.string())))
    return {line: (tops.column("time").to_numpy(), _numbers(tops, line)) for line in ("kernel", "visible", "dying")}


def _pressure(rows: pa.Table) -> Series:
    # Stalled microseconds per second are a share, given as percent.
    found = _per_second(rows, cpu="psi_cpu_some", memory="psi_memory_some", io="psi_io_some")
    return {line: (times, np.minimum(values / 1e4, 100.0)) for line, (times, values) in found.items()}


def _wait(rows: pa.Table) -> Series:
    waited = _numbers(rows, "wait_ns") / (np.maximum(_numbers(rows, "span_ms"), 1) * MILLIS)
    # Only the worst core at each time is drawn.
    times, place = np.unique(rows.column("time").to_numpy(), return_inverse=True)
    worst = np.full(len(times), -np.inf)
    known = ~np.isnan(waited)
    np.maximum.at(worst, place[known], waited[known])
    return {"worst": (times, np.where(worst == -np.inf, np.nan, worst))}


def _throttling(rows: pa.Table) -> Series:
    times, place = np.unique(rows.column("time").to_numpy(), return_inverse=True)
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
            partial(_per_second, kswapd="pgscan_kswapd", direct="pgscan_direct"),
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


_LINE = ["irq", "name"]
_LINE_FACTS = ["device", "queue", "affinity"]


@dataclass(frozen=True, slots=True)
class InterruptCounts:
    """Interrupts of a window: the count by line and core, the greatest count of each line in one read, and the device
    last recorded for the line."""

    by_core: pa.Table
    worst: pa.Table
    facts: pa.Table

    @classmethod
    def of(cls, rows: pa.Table) -> "InterruptCounts":
        reads = rows.group_by([*_LINE, "wall"]).aggregate([("count", "sum")]).rename_columns({"count_sum": "count"})
        return cls._fold(rows.select([*_LINE, "cpu", "count"]), reads, rows.select([*_LINE, "wall", *_LINE_FACTS]))

    @classmethod
    def merge(cls, parts: list["InterruptCounts"]) -> "InterruptCounts":
        """Merge all parts, of which there must be at least one."""
        return cls._fold(*(pa.concat_tables(getattr(part, name) for part in parts) for name in cls.__slots__))

    @classmethod
    def _fold(cls, by_core: pa.Table, worst: pa.Table, facts: pa.Table) -> "InterruptCounts":
        # Aggregations that depend on row order must use a single thread.
        worst = worst.sort_by([("count", "descending"), ("wall", "ascending")]).group_by(_LINE, use_threads=False)
        latest = facts.sort_by("wall").group_by(_LINE, use_threads=False)
        return cls(
            _named(by_core.group_by([*_LINE, "cpu"]).aggregate([("count", "sum")])),
            _named(worst.aggregate([("count", "first"), ("wall", "first")])),
            _named(latest.aggregate([(name, "last") for name in ("wall", *_LINE_FACTS)])),
        )

    @property
    def nbytes(self) -> int:
        return int(self.by_core.nbytes + self.worst.nbytes + self.facts.nbytes)


def _named(aggregated: pa.Table) -> pa.Table:
    """Columns with their original names: without the suffixes `_sum`, `_first`, `_last`."""
    plain = {name: name.rpartition("_")[0] for name in aggregated.column_names if "_" in name}
    return aggregated.rename_columns(plain)


def interrupts(handle: RecordingHandle, params: InterruptsParams) -> Reply:
    """Interrupt lines with the cores that served them, sorted by count, greatest first."""
    recording, cpus = handle.recording(), cpus_of(params)
    window = handle.window(params.since, params.until)
    # Segments entirely inside the window give the same counts for every window around them. A row may begin before its
    # segment does.
    inner = Window(window.since + _RARE, window.until)
    segments = recording.holding(window)
    inside = [each for each in segments if each.sealed and each.name.span.clamp(inner) == each.name.span]
    edges = [segment for segment in segments if segment not in inside]
    counted = [
        *handle.cache.get(inside, ("interrupts", cpus), partial(_count, recording, None, cpus)),
        *handle.cache.get(edges, ("interrupts", cpus, window), partial(_count, recording, window, cpus)),
    ]
    known = [each for each in counted if each is not None]
    shape: InterruptsShape = {"lines": [], "total": 0, "left_out": 0}
    if known:
        recorded_s = window.seconds - sum(gap.seconds for gap in recording.gaps(window))
        lines = _ranked(InterruptCounts.merge(known), recorded_s)
        shape["lines"] = lines[: params.limit]
        shape["total"] = sum(line["count"] for line in lines)
        shape["left_out"] = max(0, len(lines) - params.limit)
    return json_reply(shape)


def _count(
    recording: Recording, window: Window | None, cpus: frozenset[int] | None, segment: Segment
) -> InterruptCounts | None:
    """The interrupts of a segment within the window; None if there were none."""
    request = Request("interrupts", window, ["time", "cpu", "count", *_LINE, *_LINE_FACTS], cpus)
    rows = read_available(segment, request, recording.note_unreadable)
    return InterruptCounts.of(with_wall(rows, request.table, segment.name)) if rows is not None and len(rows) else None


def _ranked(counts: InterruptCounts, recorded_s: float) -> list[InterruptLine]:
    by_core: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in counts.by_core.sort_by([("count", "descending"), ("cpu", "ascending")]).to_pylist():
        by_core.setdefault((row["irq"], row["name"]), []).append((row["cpu"], row["count"]))
    worst = {(row["irq"], row["name"]): row for row in counts.worst.to_pylist()}
    lines: list[InterruptLine] = []
    for facts in counts.facts.to_pylist():
        line = facts["irq"], facts["name"]
        count = sum(of_core for _, of_core in by_core[line])
        lines.append(
            {
                "irq": facts["irq"],
                "name": facts["name"],
                "device": facts["device"],
                "queue": facts["queue"],
                "affinity": facts["affinity"],
                "count": count,
                "per_second": round(count / max(recorded_s, 0.001), 2),
                "worst": worst[line]["count"],
                "worst_at": ms(worst[line]["wall"]),
                "per_cpu": by_core[line],
            }
        )
    return sorted(lines, key=lambda line: (-line["count"], line["irq"], line["name"]))
