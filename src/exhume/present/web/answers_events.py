"""Events: one by one, and as marks where those of a kind fall together."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from starlette.responses import Response

from exhume.present.web.asked import Asking, ms
from exhume.present.web.framed import modelled
from exhume.present.web.opened import opened_at
from exhume.present.web.own_words import own_words
from exhume.present.web.shapes import EventShape, EventsShape, KindCount, Mark, MarksShape
from exhume.store.read.profile import ProfileFilter, meant_by

LONGEST_MARK, LONGEST_EVENT = 300, 1000
_SEVERITIES = ("info", "warning", "critical")
_EVENT_COLUMNS = [
    *("wall", "kind", "severity", "source", "text", "cpu", "device", "value", "pid", "comm", "container"),
    "container_name",
]


def events(directory: Path, asking: Asking, kinds: str | None, text: str | None, limit: int) -> Response:
    question = asking.of(opened_at(directory))
    logged = question.recording.read("events", question.window, _EVENT_COLUMNS)
    own = pa.Table.from_pylist(own_words(question.opened, question.window), schema=logged.schema)
    every_row = pa.concat_tables([logged, own])
    rows = _concerning(every_row, question.wanted)
    elsewhere = every_row.num_rows - rows.num_rows
    if text:
        rows = rows.filter(pc.match_substring(rows.column("text"), text, ignore_case=True))
    every = sorted(Counter(rows.column("kind").to_pylist()).items())
    if kinds:
        rows = rows.filter(pc.is_in(rows.column("kind"), pa.array(kinds.split(","), pa.string())))
    rows = rows.sort_by("wall")
    shown = [_event(row) for row in rows.slice(0, limit).to_pylist()]
    return modelled(
        EventsShape(
            events=shown,
            total=rows.num_rows,
            truncated=rows.num_rows > limit,
            kinds=[KindCount(kind=kind, count=count) for kind, count in every],
            elsewhere=elsewhere,
        )
    )


def _event(row: dict[str, Any]) -> EventShape:
    return EventShape(at=ms(row.pop("wall")), **row | {"text": _short(row["text"], LONGEST_EVENT)})


def _short(text: str, most: int = LONGEST_MARK) -> str:
    """A line that something wrote by the megabyte is not for reading whole."""
    return text if len(text) <= most else f"{text[:most]} …"


def _concerning(rows: pa.Table, wanted: ProfileFilter) -> pa.Table:
    """The events that name what is wanted, or name nothing of the kind."""
    kept = pa.array(np.ones(rows.num_rows, np.bool_))
    column = rows.column
    matches = {
        "cpu": wanted.cpus is not None and pc.is_in(column("cpu").cast(pa.int64()), _numbers(wanted.cpus)),
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


def _numbers(cpus: Collection[int]) -> pa.Array:
    return pa.array(sorted(cpus), pa.int64())


def marks(directory: Path, asking: Asking, cells: int) -> Response:
    question = asking.of(opened_at(directory))
    window = question.window
    columns = ["wall", "kind", "severity", "text", "cpu", "comm", "pid", "container"]
    rows = _concerning(question.recording.read("events", window, columns), question.wanted)
    own = own_words(question.opened, window)
    found: dict[tuple[int, str], Mark] = {}
    for row in sorted([*rows.to_pylist(), *own], key=lambda row: row["wall"]):
        at, place = row["wall"], (row["wall"] - window.since) * cells // max(1, window.nanos)
        mark = found.get((place, row["kind"]))
        if mark is None:
            found[place, row["kind"]] = Mark(
                at=ms(at), until=ms(at), kind=row["kind"], severity=row["severity"], count=1, text=_short(row["text"])
            )
            continue
        mark.until, mark.count = ms(at), mark.count + 1
        if _gravity(row["severity"]) > _gravity(mark.severity):
            mark.severity, mark.text = row["severity"], _short(row["text"])
    return modelled(MarksShape(marks=list(found.values())))


def _gravity(severity: str) -> int:
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else 0
