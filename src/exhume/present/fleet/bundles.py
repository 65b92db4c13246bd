"""The pages of incidents: the recording page over the bundle that a node sent, at /node/NODE/incident/ID/.

A bundle is unpacked when its page is first opened. A limited number stay open; the least recently used is closed and
removed first.
"""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from exhume.model.errors import ExhumeError
from exhume.present.fleet.params import BundleParams, BundlePathParams
from exhume.present.web.app import Api, PageFiles, refuse
from exhume.present.web.params import QueryParams
from exhume.present.web.pool import Job, JobPool, response
from exhume.present.web.schemas import Reply
from exhume.store.read.bundle import Unpacked, unpack

MAX_OPEN = 8


class BundlePool(JobPool):
    """A job pool for one bundle's recording, backed by the fleet's workers."""

    def __init__(self, pool: JobPool, directory: Path) -> None:
        super().__init__()
        self._pool = pool
        self._directory = str(directory)

    def submit(self, name: str, params: QueryParams) -> Job:
        return self._pool.submit(name, self._wrapped(params))

    def submit_background(self, name: str, params: QueryParams) -> Job:
        return self._pool.submit_background(name, self._wrapped(params))

    def cancel(self, job: Job) -> None:
        self._pool.cancel(job)

    def progress_of(self, job: Job) -> tuple[int, int]:
        return self._pool.progress_of(job)

    def _wrapped(self, params: QueryParams) -> BundleParams:
        return BundleParams(directory=self._directory, inner=params)


@dataclass(frozen=True, slots=True)
class _Opened:
    """The opened page of a bundle."""

    unpacked: Unpacked
    api: Api
    router: Router
    tracking: "asyncio.Task[None]"

    async def close(self) -> None:
        self.api.status.stop()
        self.tracking.cancel()
        with suppress(asyncio.CancelledError, ExhumeError):
            await self.tracking
        await asyncio.to_thread(self.unpacked.close)


class IncidentPages:
    """ASGI application that serves the pages of all incidents."""

    def __init__(self, pool: JobPool, files: PageFiles) -> None:
        self._pool = pool
        self._files = files
        self._opened: OrderedDict[tuple[str, str], _Opened] = OrderedDict()
        #: Ensures that concurrent requests for a page that is not open yet open it once.
        self._opening: dict[tuple[str, str], asyncio.Lock] = {}

    async def redirect(self, request: Request) -> Response:
        """Redirect to the address with a trailing slash, which the page's relative links need."""
        return RedirectResponse(f"{quote(request.path_params['incident'], safe='')}/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = scope["path_params"]
        try:
            opened = await self._open(given["node"], given["incident"])
        except ExhumeError as error:
            answer = await refuse(Request(scope, receive), error)
            await answer(scope, receive, send)
            return
        if isinstance(opened, Reply):
            await response(opened)(scope, receive, send)
            return
        inner = {**scope, "path": f"/{given['rest']}", "root_path": "", "path_params": {}}
        try:
            await opened.router(inner, receive, send)
        except ExhumeError as error:
            await (await refuse(Request(scope, receive), error))(scope, receive, send)

    def stop(self) -> None:
        """End the streams of all pages."""
        for opened in self._opened.values():
            opened.api.status.stop()

    async def close(self) -> None:
        """Remove all unpacked bundles."""
        while self._opened:
            await self._opened.popitem()[1].close()

    async def _open(self, node: str, incident: str) -> _Opened | Reply:
        key = (node, incident)
        lock = self._opening.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if key not in self._opened:
                    found = await self._pool.submit(
                        "incidents.bundle_path", BundlePathParams(node=node, incident=incident)
                    ).result
                    if isinstance(found, Reply):
                        return found
                    self._opened[key] = self._page(await asyncio.to_thread(_unpack, *found))
        finally:
            self._opening.pop(key, None)
        self._opened.move_to_end(key)
        opened = self._opened[key]
        while len(self._opened) > MAX_OPEN:
            await self._opened.popitem(last=False)[1].close()
        return opened

    def _page(self, unpacked: Unpacked) -> _Opened:
        api = Api(BundlePool(self._pool, unpacked.directory))
        router = Router(api.routes(self._files))
        return _Opened(unpacked, api, router, asyncio.create_task(api.trackers["this"].run()))


def _unpack(path: str, fetched: bool) -> Unpacked:
    try:
        return unpack(Path(path))
    finally:
        if fetched:
            Path(path).unlink(missing_ok=True)
