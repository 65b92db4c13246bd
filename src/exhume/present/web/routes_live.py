"""What is new, sent while a recording grows."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from exhume.model.errors import RecordingError
from exhume.present.web.answers_recording import lost_count, skipped_count
from exhume.present.web.asked import ms
from exhume.present.web.explaining import Explaining
from exhume.present.web.opened import Opened
from exhume.present.web.shapes import LiveShape, Problem

router = APIRouter(tags=["live"], responses={403: {"model": Problem}})
EVERY_S = 1.0
# So that whoever went away is noticed, and nothing between closes the connection.
HEARTBEAT_S = 15.0


@router.get("/live", responses={200: {"content": {"text/event-stream": {}}, "description": "server-sent events"}})
async def live(request: Request) -> StreamingResponse:
    """Server-sent events: the recording's span, whether it grows, losses and incidents, whenever they change."""
    pulse: Pulse = request.app.state.pulse
    return StreamingResponse(_news(request, pulse), media_type="text/event-stream")


class Pulse:
    """How the recording stands, looked at once a second however many follow it."""

    def __init__(self, opened: Opened, explaining: Explaining) -> None:
        self._opened = opened
        self._explaining = explaining
        self._lock = threading.Lock()
        self._said = ""
        self._looked = float("-inf")

    def said(self) -> str:
        """The newest state, as JSON."""
        with self._lock:
            # A little less than a second, so that those who come each second don't hear every other one.
            if time.monotonic() - self._looked >= 0.9 * EVERY_S:
                self._said = _look(self._opened, self._explaining).model_dump_json()
                self._looked = time.monotonic()
            return self._said


async def _news(request: Request, pulse: Pulse) -> AsyncIterator[str]:
    last, quiet = "", 0.0
    while not await request.is_disconnected() and not request.app.state.stopping.is_set():
        now = await run_in_threadpool(pulse.said)
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
        since=ms(span.since),
        until=ms(span.until),
        live=here.live(),
        lost=lost_count(here),
        skipped=skipped_count(here),
        incidents=moments,
    )
