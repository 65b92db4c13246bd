"""What lies over one time axis: cores, lines, events, incidents."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from exhume.model.clock import NANOS
from exhume.present.incidents_view import Moment as Episode
from exhume.present.web import answers_cell, answers_cores, answers_events
from exhume.present.web.answering import Answering
from exhume.present.web.asked import LAST_MS, MOST_CORES, Asking, ms, window_of
from exhume.present.web.asking import Answers, Cells, Moment, Question, Text
from exhume.present.web.explaining import Explaining, moment_id
from exhume.present.web.framed import MEDIA_TYPE, modelled
from exhume.present.web.lanes import LANES, beside, points_of, pool
from exhume.present.web.opened import Opened
from exhume.present.web.readers import Ask
from exhume.present.web.shapes import (
    CellShape,
    EventsShape,
    IncidentShape,
    IncidentsShape,
    LaneShape,
    LanesShape,
    Line,
    MarksShape,
    Problem,
)
from exhume.store.read.core_grid import MEASURES

PROBLEMS: dict[int | str, dict[str, Any]] = {code: {"model": Problem} for code in (403, 404, 413, 422)}
FRAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}, "description": "framed numbers"}
}
router = APIRouter(tags=["timeline"], responses=PROBLEMS)
MOST_EVENTS = 5000


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
        return await answers.apart(request, answers_cores.closely, question, cells, measure)
    # What looks at every sample of hours lets what reads seconds go first.
    long = question.wanted.looks_at_samples and answers.is_long(since, until)
    return await answers.here(request, answers_cores.from_seconds, question, cells, measure, long=long)


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
    return await answers.apart(request, answers_cell.cell, at, cpu, span, measure)


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
    return await answers.apart(request, answers_events.events, question, kinds, text, limit)


@router.get("/marks", responses={200: {"model": MarksShape}}, response_class=Response)
async def marks(request: Request, answers: Answers, question: Question, cells: Cells = 400) -> Response:
    """The lane of events: those of a kind that fall into the same cell are one mark. What was lost, and when the clock
    was set, are kinds of their own. Filters as for /api/events."""
    return await answers.apart(request, answers_events.marks, question, cells)


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
