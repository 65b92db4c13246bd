"""What lies over one time axis: cores, lines, events, incidents."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from exhume.model.clock import MILLIS, NANOS
from exhume.model.window import Window
from exhume.present.incidents_view import Moment as Episode
from exhume.present.web.answering import Answering
from exhume.present.web.asking import (
    LAST_MS,
    MOST_CORES,
    Answers,
    Asking,
    Cells,
    Moment,
    Question,
    Text,
    ms,
    refuse,
    window_of,
)
from exhume.present.web.explaining import Explaining, moment_id
from exhume.present.web.framed import MEDIA_TYPE, framed, modelled
from exhume.present.web.lanes import LANES, beside, points_of, pool
from exhume.present.web.limits import check_samples
from exhume.present.web.opened import Opened, opened_at
from exhume.present.web.own_words import own_words
from exhume.present.web.readers import Ask
from exhume.present.web.seconds import Pooled
from exhume.present.web.shapes import (
    CellShape,
    EventShape,
    EventsShape,
    IncidentShape,
    IncidentsShape,
    KindCount,
    LaneShape,
    LanesShape,
    Line,
    Mark,
    MarksShape,
    Problem,
    State,
    TopThread,
)
from exhume.store.cores import GAP, LONGEST_ROW_NS, MEASURES, STATES, columns_for
from exhume.store.profile import ProfileFilter, meant_by
from exhume.store.stacks import SAMPLED_STATES

PROBLEMS: dict[int | str, dict[str, Any]] = {code: {"model": Problem} for code in (403, 404, 413, 422)}
FRAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}, "description": "framed numbers"}
}
router = APIRouter(tags=["timeline"], responses=PROBLEMS)
# A byte holds half percents and less; the last value says that nothing was recorded.
FULL, UNRECORDED = 250, 255
MOST_EVENTS = 5000
TOP_THREADS = 5
SAMPLED_MEASURES = ("busy", *SAMPLED_STATES)
LONGEST_MARK, LONGEST_EVENT = 300, 1000
_SEVERITIES = ("info", "warning", "critical")
_EVENT_COLUMNS = [
    *("wall", "kind", "severity", "source", "text", "cpu", "device", "value", "pid", "comm", "container"),
    "container_name",
]


@router.get("/cores", responses=FRAMED, response_class=Response)
async def cores(
    request: Request,
    answers: Answers,
    question: Question,
    cells: Cells = 1000,
    measure: Annotated[str, Query(pattern=f"^({'|'.join(MEASURES)})$")] = "busy",
) -> Response:
    """Cores x time, each cell the worst second in it: bytes of 0 to 250 (all of the time; for `wait`, a second waited
    in each second), 255 where nothing was recorded, then the state that took most of it. With a filter, the part of
    each core's time in the samples that match and were taken in that state (`busy`: in any)."""
    return await heatmap_of(request, answers, question, cells, measure)


async def heatmap_of(request: Request, answers: Answering, question: Asking, cells: int, measure: str) -> Response:
    """Cores x time: put together here from what is remembered of whole seconds, else worked out by a process."""
    since, until = question.since, question.until
    if since is not None and until is not None and until - since < cells * 1000:
        return await answers.apart(request, _closely, question, cells, measure)
    # What looks at every sample of hours lets what reads seconds go first.
    long = question.wanted.looks_at_samples and answers.is_long(since, until)
    return await answers.here(request, _from_seconds, question, cells, measure, long=long)


def _closely(directory: Path, asking: Asking, cells: int, measure: str) -> Response:
    return _from_seconds(opened_at(directory), None, asking, cells, measure)


def _from_seconds(here: Opened, ask: Ask | None, asking: Asking, cells: int, measure: str) -> Response:
    question = asking.of(here)
    recording, window = question.recording, question.window
    if question.filtered:
        if measure not in SAMPLED_MEASURES:
            raise refuse(422, f"a filter looks at samples, which tell {', '.join(SAMPLED_MEASURES)}, not {measure}")
        check_samples(recording, window, "a filter looks at every sample")
        wanted = replace(question.wanted, state=None if measure == "busy" else measure)
        pooled = here.seconds.matching(recording, window, cells, wanted, ask)
    else:
        pooled = here.seconds.measured(recording, window, cells, measure, ask)
    return heatmap(pooled, cells, "matching" if question.filtered and measure == "busy" else measure, question.cpus)


def heatmap(pooled: Pooled, cells: int, measure: str, cpus: frozenset[int] | None) -> Response:
    """Pooled cells on the wire."""
    lines = [i for i, cpu in enumerate(pooled.cpus) if cpus is None or cpu in cpus]
    values, states = pooled.values[lines], pooled.states[lines]
    scaled = np.minimum(values.astype(np.int32) * FULL // 1000, FULL)
    # What is there, however little, is not nothing.
    scaled = np.where((values > 0) & (scaled == 0), 1, scaled)
    header = {
        "since": ms(pooled.window.since),
        "until": ms(pooled.window.until),
        "cells": cells,
        "cpus": [pooled.cpus[i] for i in lines],
        "measure": measure,
        "full": FULL,
        "unrecorded": UNRECORDED,
        "states": list(STATES),
    }
    return framed(
        header,
        np.where(values == GAP, UNRECORDED, scaled).astype(np.uint8),
        np.where(states == GAP, UNRECORDED, states).astype(np.uint8),
    )


@router.get("/cell", responses={200: {"model": CellShape}}, response_class=Response)
async def cell(  # noqa: PLR0917
    request: Request,
    answers: Answers,
    at: Annotated[int, Query(ge=0, le=LAST_MS)],
    cpu: Annotated[int, Query(ge=0, lt=MOST_CORES)],
    span: Annotated[int, Query(ge=1, le=86_400_000, description="milliseconds from `at` on")] = 1000,
    measure: Annotated[str, Query(pattern=f"^({'|'.join(MEASURES)})$")] = "busy",
) -> Response:
    """One cell of the heatmap: all states of its worst second, and who ran then."""
    return await answers.apart(request, _cell, at, cpu, span, measure)


def _cell(directory: Path, at: int, cpu: int, span: int, measure: str) -> Response:
    return modelled(_cell_shape(opened_at(directory), at, cpu, span, measure))


def _cell_shape(here: Opened, at: int, cpu: int, span: int, measure: str) -> CellShape:
    recording = here.recording()
    window = window_of(here, at, at + span)
    reaching = Window(window.since - LONGEST_ROW_NS, window.until)
    rows = recording.read("cpu", reaching, [*columns_for("wait"), "wall"], [cpu])
    starts, lengths = rows.column("wall").to_numpy(), rows.column("span_ms").to_numpy().astype(np.int64) * MILLIS
    inside = (starts + lengths > window.since) & (starts < window.until)
    empty = CellShape(
        cpu=cpu, since=ms(window.since), until=ms(window.until), states=[], wait_ns=None, top=[], samples=0
    )
    if not inside.any():
        return empty
    rows = rows.filter(pa.array(inside))
    worst = rows.slice(int(np.argmax(_measure_of(rows, measure))), 1).to_pylist()[0]
    second = Window(worst["wall"], worst["wall"] + max(1, worst["span_ms"]) * MILLIS)
    states = {state: worst[state] + (worst["nice"] if state == "user" else 0) for state in STATES}
    profile = recording.profile(second, ProfileFilter(frozenset([cpu])))
    return CellShape(
        cpu=cpu,
        since=ms(second.since),
        until=ms(second.until),
        states=[State(name=name, permille=value) for name, value in states.items()],
        wait_ns=worst["wait_ns"],
        top=_top(recording.selected(second, ProfileFilter(frozenset([cpu])), ["pid", "comm", "weight_us"])),
        samples=profile.samples,
    )


def _measure_of(rows: pa.Table, measure: str) -> Any:
    numbers = {name: pc.fill_null(rows.column(name), 0).to_numpy().astype(np.int64) for name in rows.schema.names}
    if measure == "busy":
        return 1000 - numbers["idle"] - numbers["iowait"]
    if measure == "wait":
        return numbers["wait_ns"]
    return numbers[measure] + (numbers["nice"] if measure == "user" else 0)


def _top(found: Any) -> list[TopThread]:
    sums: dict[tuple[str, int], int] = {}
    for _, rows in found:
        threads = zip(
            rows.column("comm").to_pylist(),
            rows.column("pid").to_pylist(),
            rows.column("weight_us").to_pylist(),
            strict=True,
        )
        for comm, pid, weight in threads:
            sums[comm, pid] = sums.get((comm, pid), 0) + weight
    total = sum(sums.values()) or 1
    ranked = sorted(sums.items(), key=lambda each: -each[1])[:TOP_THREADS]
    return [TopThread(comm=comm, pid=pid, share=round(weight / total, 4)) for (comm, pid), weight in ranked]


@router.get("/lanes", responses={200: {"model": LanesShape}}, response_class=Response)
async def lanes(  # noqa: PLR0917
    request: Request,
    answers: Answers,
    since: Moment = None,
    until: Moment = None,
    cells: Cells = 1000,
    names: Annotated[Text, Query(description=f"some of {','.join(LANES)}; all where it is left out")] = None,
) -> Response:
    """Lines over time, each point the greatest value in its cell; and the nearest points before and after."""
    chosen = tuple(name for name in (names.split(",") if names else LANES) if name in LANES)
    return await answers.here(request, _lanes, since, until, cells, chosen)


def _lanes(  # noqa: PLR0917
    here: Opened, ask: Ask, since: int | None, until: int | None, cells: int, names: tuple[str, ...]
) -> Response:
    window = window_of(here, since, until)
    chosen = [LANES[name] for name in names]
    points = points_of(here.memory, here.recording(), window, chosen, ask)
    found = []
    for lane in chosen:
        pooled = pool(points[lane.name], lane, window, cells)
        outside = beside(points[lane.name], lane, window)
        series = [
            Line(name=name, title=title, values=pooled[name], before=outside[name][0], after=outside[name][1])
            for name, title in lane.lines.items()
        ]
        found.append(LaneShape(name=lane.name, title=lane.title, unit=lane.unit, series=series))
    return modelled(LanesShape(since=ms(window.since), until=ms(window.until), cells=cells, lanes=found))


@router.get("/events", responses={200: {"model": EventsShape}}, response_class=Response)
async def events(  # noqa: PLR0917
    request: Request,
    answers: Answers,
    question: Question,
    kinds: Annotated[Text, Query(description="kinds, divided by commas; all where it is left out")] = None,
    text: Annotated[Text, Query(description="only events with these words in their text")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 500,
) -> Response:
    """What happened, in its order; the first `limit` of them. Filters leave out what names another core, process or
    container; what names none happened to all. `kinds` counts every kind that has events with these words."""
    return await answers.apart(request, _events, question, kinds, text, limit)


def _events(directory: Path, asking: Asking, kinds: str | None, text: str | None, limit: int) -> Response:
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


@router.get("/marks", responses={200: {"model": MarksShape}}, response_class=Response)
async def marks(request: Request, answers: Answers, question: Question, cells: Cells = 400) -> Response:
    """The lane of events: those of a kind that fall into the same cell are one mark. What was lost, and when the clock
    was set, are kinds of their own. Filters as for /api/events."""
    return await answers.apart(request, _marks, question, cells)


def _marks(directory: Path, asking: Asking, cells: int) -> Response:
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


@router.get("/incidents")
def incidents(request: Request) -> IncidentsShape:
    """The moments that the recorder marked, each with its cause once it was looked at."""
    explaining: Explaining = request.app.state.explaining
    return IncidentsShape(incidents=[_incident(moment, explaining) for moment in explaining.moments()])


def _incident(moment: Episode, explaining: Explaining) -> IncidentShape:
    known = explaining.known(moment)
    finding = known.finding if known else None
    first, last = moment.marks[0], moment.marks[-1]
    lasted = [int((mark.value or 0) * NANOS) for mark in moment.marks if mark.cpu is not None]
    return IncidentShape(
        id=moment_id(moment),
        since=ms(first.wall),
        until=ms(max([last.wall + NANOS, *[m.wall + n for m, n in zip(moment.marks, lasted, strict=False)]])),
        at=ms(moment.at),
        text=first.text,
        marks=len(moment.marks),
        cpus=sorted({mark.cpu for mark in moment.marks if mark.cpu is not None}),
        state="waiting" if known is None else "known" if finding else "unknown",
        cause=finding.cause if finding else None,
        title=finding.title if finding else None,
        severity=str(finding.severity) if finding else None,
        confidence=finding.confidence if finding else None,
        summary=finding.summary if finding else None,
    )
