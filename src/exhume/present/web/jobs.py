"""Requests and the jobs that answer them: equal requests share a job, and a job without clients is cancelled."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from exhume.present.web.params import QueryParams
from exhume.present.web.reply import CLIENT_CLOSED_REQUEST, Reply
from exhume.present.web.workers import Cancelled, Job, JobPool

# The header by which a client names its request, to look up its progress.
REQUEST_NAME = "x-exhume-request"
_MAX_NAME = 64


@dataclass(eq=False, slots=True)
class _InFlight:
    job: Job
    clients: int = field(default=0)


class JobRunner:
    """Runs jobs for HTTP requests."""

    def __init__(self, pool: JobPool) -> None:
        self._pool = pool
        self._in_flight: dict[tuple[str, QueryParams], _InFlight] = {}
        self._named: dict[str, Job] = {}

    async def respond(self, request: Request, handler: str, params: QueryParams) -> Response:
        """The answer of a handler; 499 where the client closes the connection before."""
        key = (handler, params)
        shared = self._in_flight.get(key)
        if shared is None:
            shared = _InFlight(self._pool.submit(handler, params, long=params.long))
            self._in_flight[key] = shared
        shared.clients += 1
        job = shared.job
        name = request.headers.get(REQUEST_NAME, "")[:_MAX_NAME]
        if name:
            self._named[name] = job
        disconnect = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({job.result, disconnect}, return_when=asyncio.FIRST_COMPLETED)
            return response(job.result.result()) if job.result.done() else Response(status_code=CLIENT_CLOSED_REQUEST)
        except Cancelled:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        finally:
            disconnect.cancel()
            if self._named.get(name) is job:
                del self._named[name]
            shared.clients -= 1
            if not shared.clients:
                del self._in_flight[key]
                if not job.result.done():
                    self._pool.cancel(job)

    def progress(self, names: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Segments read, and all to read (0 where that is not known), of the requests of these names that are in
        flight."""
        return {name: self._named[name].progress() for name in names if name in self._named}


def response(reply: Reply) -> Response:
    """A reply as Starlette sends it."""
    return Response(reply.body, reply.status, dict(reply.headers), reply.media_type)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
