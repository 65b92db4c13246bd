"""What is new, sent while a recording grows."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from exhume.model.errors import RecordingError
from exhume.present.web.asking import Here, ms
from exhume.present.web.explaining import Explaining
from exhume.present.web.opened import Opened
from exhume.present.web.routes_recording import lost_count
from exhume.present.web.shapes import LiveShape, Problem

router = APIRouter(tags=["live"], responses={403: {"model": Problem}})
EVERY_S = 1.0
# So that whoever went away is noticed, and nothing between closes the connection.
HEARTBEAT_S = 15.0


@router.get("/live", responses={200: {"content": {"text/event-stream": {}}, "description": "server-sent events"}})
async def live(request: Request, here: Here) -> StreamingResponse:
    """Server-sent events: the recording's span, whether it grows, losses and incidents, whenever they change."""
    explaining: Explaining = request.app.state.explaining
    return StreamingResponse(_news(request, here, explaining), media_type="text/event-stream")


async def _news(request: Request, here: Opened, explaining: Explaining) -> AsyncIterator[str]:
    last, quiet = "", 0.0
    while not await request.is_disconnected() and not request.app.state.stopping.is_set():
        now = (await run_in_threadpool(_look, here, explaining)).model_dump_json()
        if now != last:
            last, quiet = now, 0.0
            yield f"data: {now}\n\n"
        elif quiet >= HEARTBEAT_S:
            quiet = 0.0
            yield ": still here\n\n"
        quiet += EVERY_S
        await asyncio.sleep(EVERY_S)


def _look(here: Opened, explaining: Explaining) -> LiveShape:
    span = here.span()
    try:
        moments = len(explaining.moments())
    except RecordingError:
        moments = 0
    return LiveShape(
        since=ms(span.since), until=ms(span.until), live=here.live(), lost=lost_count(here), incidents=moments
    )
