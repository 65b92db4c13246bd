"""Events one by one, and pooled into marks; they include losses and clock steps."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.tables import INCIDENT, RATE_CHANGES, RECORDER
from exhume.model.text import duration
from exhume.present.web.handle import BoundQuery, RecordingHandle, ms
from exhume.present.web.params import EventsParams, MarksParams
from exhume.present.web.schemas import EventsShape, Mark, Reply, json_reply
from exhume.store.read.events import LossView
from exhume.store.read.health import HARMLESS_LOSSES
from exhume.store.read.profile import ProfileFilter, meant_by

LONGEST_MARK, LONGEST_EVENT = 300, 1000
LOST = "lost"
CLOCK = "clock-set"
# Smaller steps are the clock being slewed, which also starts new segments.
MIN_STEP_NS = NANOS
_SEVERITIES = ("info", "warning", "critical")
_EVENT_COLUMNS = [
    *("wall", "kind", "severity", "source", "text", "cpu", "device", "value", "pid", "comm", "container"),
    "container_name",
    "trigger",
]


def events(handle: RecordingHandle, params: EventsParams) -> Reply:
    """Events in time order, the first `limit` of them. A filter drops events that name another core, process or
    container; events that name none are kept."""
    query = BoundQuery.of(handle, params)
    kinds, text, limit = params.kinds, params.text, params.limit
    logged = query.recording.read("events", query.window, _EVENT_COLUMNS)
    own = pa.Table.from_pylist(_recorder_events(handle, query.window), schema=logged.schema)
    every_row = _without_repeats(pa.concat_tables([logged, own]))
    rows = _concerning(every_row, query.filter)
    concerned = rows.num_rows
    if text:
        rows = rows.filter(pc.match_substring(rows.column("text"), text, ignore_case=True))
    every = sorted(Counter(rows.column("kind").to_pylist()).items())
    if kinds:
        rows = rows.filter(pc.is_in(rows.column("kind"), pa.array(kinds.split(","), pa.string())))
    rows = rows.sort_by("wall")
    shown = rows.slice(0, limit).to_pylist()
    for row in shown:
        row |= {"at": ms(row.pop("wall")), "text": _short(row["text"], LONGEST_EVENT)}
        del row["trigger"]
        # JSON has no infinity or NaN.
        row["value"] = row["value"] if isfinite(row["value"] or 0) else None
    shape: EventsShape = {
        "events": shown,
        "total": rows.num_rows,
        "truncated": rows.num_rows > limit,
        "kinds": [{"kind": kind, "count": count} for kind, count in every],
        "elsewhere": every_row.num_rows - concerned,
    }
    return json_reply(shape)


def _without_repeats(rows: pa.Table) -> pa.Table:
    """The events without incident marks that repeat the time and text of a logged event; the logged event is `marked`
    instead."""
    columns = [rows.column(name).to_pylist() for name in ("wall", "kind", "source", "text", "trigger")]
    logged, marks = [], []
    for wall, kind, source, text, trigger in zip(*columns, strict=True):
        logged.append(None if kind == INCIDENT else (wall, kind, f"{source}: {text}"))
        marks.append((wall, trigger, text) if kind == INCIDENT else None)
    repeated = set(logged) & set(marks) - {None}
    listed = rows.append_column("marked", pa.array([each in repeated for each in logged], pa.bool_()))
    return listed.filter(pa.array([each not in repeated for each in marks], pa.bool_()))


def _short(text: str, most: int) -> str:
    """The text, cut to a readable length."""
    return text if len(text) <= most else f"{text[:most]} …"


def _filtered_columns(wanted: ProfileFilter) -> list[str]:
    """The columns that `_concerning` looks at."""
    values = {"cpu": wanted.cpus, "comm": wanted.comm, "pid": wanted.pid, "container": wanted.container}
    return [name for name, value in values.items() if value is not None]


def _concerning(rows: pa.Table, wanted: ProfileFilter) -> pa.Table:
    """The events that name what the filter selects, or that name nothing of that kind."""
    kept = pa.array(np.ones(rows.num_rows, np.bool_))
    column = rows.column
    matches = {
        "cpu": wanted.cpus is not None
        and pc.is_in(column("cpu").cast(pa.int64()), pa.array(sorted(wanted.cpus), pa.int64())),
        "comm": wanted.comm is not None and pc.equal(column("comm"), wanted.comm),
        "pid": wanted.pid is not None and pc.equal(column("pid"), wanted.pid),
        "container": wanted.container is not None
        and meant_by(column("container"), wanted.container, wanted.container_ids),
    }
    for name, matching in matches.items():
        if matching is not False:
            names_none = pc.is_null(column(name)) if name in {"cpu", "pid"} else pc.equal(column(name), "")
            kept = pc.and_(kept, pc.or_(pc.fill_null(names_none, True), pc.fill_null(matching, False)))
    return rows.filter(kept)


def marks(handle: RecordingHandle, params: MarksParams) -> Reply:
    """Events of the same kind within a cell, pooled into one mark."""
    query = BoundQuery.of(handle, params)
    window, cells = query.window, params.cells
    columns = ["wall", "kind", "severity", "source", "text", "trigger", *_filtered_columns(query.filter)]
    rows = _concerning(_without_repeats(query.recording.read("events", window, columns)), query.filter)
    own = _recorder_events(handle, window)
    found: dict[tuple[int, str], Mark] = {}
    for row in sorted([*rows.to_pylist(), *own], key=lambda row: row["wall"]):
        at, place = row["wall"], (row["wall"] - window.since) * cells // max(1, window.nanos)
        mark = found.setdefault(
            (place, row["kind"]),
            {"at": ms(at), "until": 0, "kind": row["kind"], "severity": "", "count": 0, "text": ""},
        )
        mark["until"], mark["count"] = ms(at), mark["count"] + 1
        if mark["count"] == 1 or _gravity(row["severity"]) > _gravity(mark["severity"]):
            mark["severity"], mark["text"] = row["severity"], _short(row["text"], LONGEST_MARK)
    return json_reply({"marks": list(found.values())})


def _gravity(severity: str) -> int:
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else 0


def _recorder_events(handle: RecordingHandle, window: Window) -> list[dict[str, Any]]:
    """Losses, rate changes and steps of the wall clock, as event rows."""
    losses = (
        (loss.wall, RECORDER if loss.kind in HARMLESS_LOSSES else LOST, _loss_text(loss)) for loss in handle.losses()
    )
    return [
        {
            "wall": wall,
            "kind": kind,
            "severity": "info" if kind == RECORDER else "warning",
            "source": RECORDER,
            "text": text,
        }
        for wall, kind, text in (*losses, *_clock_sets(handle))
        if window.since <= wall < window.until
    ]


def _loss_text(loss: LossView) -> str:
    # The count of a rate change is the new rate, not a number of losses.
    counted = loss.kind if loss.kind in RATE_CHANGES else f"{loss.count:,} {loss.kind}"
    return f"{loss.source}: {counted}{loss.text and f', {loss.text}'}"


def _clock_sets(handle: RecordingHandle) -> Iterator[tuple[int, str, str]]:
    """Steps of the wall clock: a new segment begins when wall time moves against the recorder's clock, and its name
    has both."""
    for before, after in pairwise(handle.recording().segments):
        step = after.name.offset - before.name.offset
        if before.name.boot != after.name.boot or abs(step) < MIN_STEP_NS:
            continue
        step_text = f"forward by {duration(step)}, or the node slept" if step > 0 else f"back by {duration(-step)}"
        what = "nothing is missing between" if step > 0 else "what was recorded at the same times lies on each other"
        yield after.name.wall_ms * MILLIS, CLOCK, f"the clock was set {step_text}: {what}"
