"""What ran: flame graphs, sub-second offsets, processes, and when a frame was on a core."""

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import StringConstraints
from starlette.responses import Response

from exhume.present.web import answers_stacks
from exhume.present.web.answering import Answering
from exhume.present.web.answers_stacks import Against
from exhume.present.web.asked import Asking
from exhume.present.web.asking import Answers, Cells, Moment, Question, Text
from exhume.present.web.exports import FORMATS
from exhume.present.web.routes_timeline import FRAMED, PROBLEMS, heatmap_of
from exhume.present.web.shapes import FlameShape, ProcessesShape

router = APIRouter(tags=["stacks"], responses=PROBLEMS)
BASELINES = "^(none|before|others|window)$"

FILES: dict[int | str, dict[str, Any]] = {
    200: {"description": "a file", "content": {media.partition(";")[0]: {} for _, media in FORMATS.values()}}
}

Baseline = Annotated[
    str,
    Query(
        pattern=BASELINES,
        description="before: the same cores earlier; others: the other cores; window: base_since to base_until",
    ),
]
Frame = Annotated[str, StringConstraints(max_length=4000)]
Least = Annotated[float, Query(ge=0, le=1, description="thinner frames are left out: a part of the whole")]


@router.get("/flame", responses={200: {"model": FlameShape}}, response_class=Response)
async def flame(  # noqa: PLR0917
    request: Request,
    answers: Answers,
    question: Question,
    baseline: Baseline = "none",
    base_since: Moment = None,
    base_until: Moment = None,
    least: Least = 1 / 20_000,
) -> Response:
    """The stacks of a time and cores as one tree; with a baseline, both sides in the same tree."""
    against = Against(baseline, base_since, base_until)
    return await answers.apart(request, answers_stacks.flame, question, against, least, long=_long(question, answers))


@router.get("/export/{form}", responses=FILES, response_class=Response)
async def export(  # noqa: PLR0917
    request: Request,
    answers: Answers,
    question: Question,
    form: Annotated[str, Path(pattern=f"^({'|'.join(FORMATS)})$")],
    baseline: Baseline = "none",
    base_since: Moment = None,
    base_until: Moment = None,
    root: Annotated[list[Frame], Query(max_length=500, description="frames that lead to the one to begin at")] = [],  # noqa: B006
    hide: Annotated[list[Frame], Query(max_length=100, description="frames to leave out, with what they call")] = [],  # noqa: B006
) -> Response:
    """The same flame graph as a file for other tools, as it is seen on the page."""
    against = Against(baseline, base_since, base_until)
    long = _long(question, answers)
    return await answers.apart(
        request, answers_stacks.export, question, against, form, tuple(root), tuple(hide), long=long
    )


@router.get("/subsecond", responses=FRAMED, response_class=Response)
async def subsecond(
    request: Request,
    answers: Answers,
    question: Question,
    column_ms: Annotated[int, Query(ge=100, le=60_000, description="milliseconds of a column")] = 1000,
    rows: Annotated[int, Query(ge=1, le=1000, description="parts that a column is divided into")] = 50,
) -> Response:
    """Samples by when in their second (or longer column) they were taken: column after column, its beginning first.
    Columns begin at whole ones of the clock, the first at `since`; what is before `from` was not asked for."""
    return await answers.apart(
        request, answers_stacks.subsecond, question, column_ms, rows, long=_long(question, answers)
    )


@router.get("/processes", responses={200: {"model": ProcessesShape}}, response_class=Response)
async def processes(
    request: Request, answers: Answers, question: Question, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> Response:
    """Who ran, the most first, with the cores that they ran on; and the same for containers."""
    return await answers.apart(request, answers_stacks.processes, question, limit, long=_long(question, answers))


@router.get("/frame-times", responses=FRAMED, response_class=Response)
async def frame_times(  # noqa: PLR0917
    request: Request,
    answers: Answers,
    question: Question,
    name: Annotated[str, Query(max_length=4000)],
    module: Text = None,
    kind_of_frame: Annotated[str, Query(pattern="^(kernel|user|jit|comm|)$")] = "kernel",
    cells: Cells = 1000,
) -> Response:
    """When a frame was on a core: the part of each core's time in stacks that hold it, as in /api/cores."""
    if kind_of_frame == "comm":
        wanted = replace(question.wanted, comm=name)
    else:
        wanted = replace(question.wanted, frame=(kind_of_frame, module or "", name))
    return await heatmap_of(request, answers, replace(question, wanted=wanted), cells, "busy")


def _long(question: Asking, answers: Answering) -> bool:
    return answers.is_long(question.since, question.until)
