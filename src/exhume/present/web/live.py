"""Server-sent events while a recording grows."""

import asyncio
import time
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import StreamingResponse

from exhume.present.web.params import NoParams
from exhume.present.web.schemas import LiveShape
from exhume.present.web.workers import Cancelled, JobPool

EVERY_S = 1.0
# So that a client that went away is noticed, and no proxy closes the connection.
HEARTBEAT_S = 15.0


class LiveStatus:
    """The status of the recording, read once a second for all clients."""

    def __init__(self, pool: JobPool) -> None:
        self._pool = pool
        self._lock = asyncio.Lock()
        self._json = ""
        self._read_at = float("-inf")
        #: Set when the server ends, so that browsers see the end of the stream and no error.
        self.stopping = False

    async def json(self) -> str:
        """The newest status."""
        async with self._lock:
            # A little less than a second, so that clients that come each second don't get every other one twice.
            if time.monotonic() - self._read_at >= 0.9 * EVERY_S:
                status = await self._pool.submit("recording.status", NoParams()).result
                if isinstance(status, LiveShape):
                    self._json = status.model_dump_json()
                self._read_at = time.monotonic()
            return self._json

    def stream(self, request: Request) -> StreamingResponse:
        """An event whenever the status changes."""
        return StreamingResponse(self._events(request), media_type="text/event-stream")

    async def _events(self, request: Request) -> AsyncIterator[str]:
        last, quiet_s = "", 0.0
        while not self.stopping and not await request.is_disconnected():
            try:
                now = await self.json()
            except Cancelled:
                return
            if now != last:
                last, quiet_s = now, 0.0
                yield f"data: {now}\n\n"
            elif quiet_s >= HEARTBEAT_S:
                quiet_s = 0.0
                yield ": heartbeat\n\n"
            quiet_s += EVERY_S
            await asyncio.sleep(EVERY_S)
