"""What starved the node in a window, as `exhume diagnose` tells it."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from exhume.present.web import answers_diagnosis
from exhume.present.web.answers_diagnosis import JSON
from exhume.present.web.asked import refuse
from exhume.present.web.asking import Answers, Moment, Text
from exhume.present.web.explaining import Explaining
from exhume.present.web.routes_timeline import PROBLEMS

router = APIRouter(tags=["diagnosis"], responses=PROBLEMS)


@router.get("/diagnosis", responses={200: {"content": {JSON: {"schema": {"type": "object"}}}}}, response_class=Response)
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
        return await answers.apart(request, answers_diagnosis.diagnosed_in, since, until, at, long=True)
    explaining: Explaining = request.app.state.explaining
    moment = await run_in_threadpool(explaining.moment, incident)
    if moment is None:
        raise refuse(404, "no incident of that name is marked in this recording")
    known = explaining.known(moment)
    if known is not None and known.told is not None:
        return Response(known.told, media_type=JSON)
    return await answers.apart(request, answers_diagnosis.explained, moment.window, moment.at, long=True)
