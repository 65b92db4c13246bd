"""What starved the node in a window, as `exhume diagnose` tells it."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from exhume.present.web.answers_diagnosis import diagnosed
from exhume.present.web.asking import Answers, Moment
from exhume.present.web.routes_timeline import PROBLEMS

router = APIRouter(tags=["diagnosis"], responses=PROBLEMS)


@router.get("/diagnosis", responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}})
async def diagnosis(
    request: Request, answers: Answers, since: Moment = None, until: Moment = None, at: Moment = None
) -> Response:
    """The diagnosis of a window, or of what is nearest to a moment. Its shape is that of `exhume diagnose --json`, with
    every time in milliseconds beside it (`at_ms`, `since_ms`, `until_ms`)."""
    return await answers.apart(request, diagnosed, since, until, at, long=True)
