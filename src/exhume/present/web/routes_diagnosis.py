"""What starved the node in a window, as `exhume diagnose` tells it."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from exhume.model.clock import MILLIS
from exhume.model.window import Window
from exhume.present.web.asking import Answers, Moment, Text, refuse, window_of
from exhume.present.web.diagnosed import diagnosed, told
from exhume.present.web.explaining import Explaining
from exhume.present.web.opened import opened_at
from exhume.present.web.routes_timeline import PROBLEMS

router = APIRouter(tags=["diagnosis"], responses=PROBLEMS)
AROUND_MS = 120_000
LONGEST_MS = 24 * 3_600_000
_JSON = "application/json"


@router.get(
    "/diagnosis", responses={200: {"content": {_JSON: {"schema": {"type": "object"}}}}}, response_class=Response
)
async def diagnosis(  # noqa: PLR0917
    request: Request,
    answers: Answers,
    since: Moment = None,
    until: Moment = None,
    at: Moment = None,
    incident: Annotated[Text, Query(description="the id of an incident: its own diagnosis, whatever the times")] = None,
) -> Response:
    """The diagnosis of a window, of what is nearest to a moment, or of an incident. Its shape is that of `exhume
    diagnose --json`, with every time in milliseconds beside it (`at_ms`, `since_ms`, `until_ms`)."""
    if incident is None:
        return await answers.apart(request, _diagnosed, since, until, at, long=True)
    explaining: Explaining = request.app.state.explaining
    moment = await run_in_threadpool(explaining.moment, incident)
    if moment is None:
        raise refuse(404, "no incident of that name is marked in this recording")
    known = explaining.known(moment)
    if known is not None and known.told is not None:
        return Response(known.told, media_type=_JSON)
    return await answers.apart(request, _explained, moment.window, moment.at, long=True)


def _diagnosed(directory: Path, since: int | None, until: int | None, at: int | None) -> Response:
    here = opened_at(directory)
    recording = here.recording()
    if at is not None and since is None and until is None:
        since, until = max(0, at - AROUND_MS), at + AROUND_MS
    window = window_of(here, since, until)
    if window.nanos > LONGEST_MS * MILLIS:
        raise refuse(413, "a diagnosis looks at a day at most: choose a shorter time")
    if window.empty:
        raise refuse(404, "nothing was recorded in that time: choose another")
    found = diagnosed(recording, window, None if at is None else at * MILLIS)
    return Response(told(found), media_type=_JSON)


def _explained(directory: Path, window: Window, at: int) -> Response:
    here = opened_at(directory)
    clamped = window.clamp(here.span())
    if clamped.empty:
        raise refuse(404, "nothing was recorded in that time: choose another")
    return Response(told(diagnosed(here.recording(), clamped, at)), media_type=_JSON)
