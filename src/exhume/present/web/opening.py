"""The server while it is being loaded: the page's own files are answered at once, and so is what the page asks first,
the recording as a whole, so that a browser reads and draws while the rest is loaded beside. Whoever asks for more waits
until it is there."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from exhume.model.errors import ExhumeError
from exhume.present.web.answers_recording import about
from exhume.present.web.framed import modelled
from exhume.present.web.guard import Guard, Rules
from exhume.present.web.opened import Opened
from exhume.present.web.pages import STATIC, PageFiles

if TYPE_CHECKING:
    from fastapi import FastAPI


class Opening:
    """Guards and answers like the application of `create_app`, which takes its place once it is loaded. Where it can't
    be loaded, `failed` is called, and `check` raises why."""

    def __init__(self, opened: Opened, rules: Rules, failed: Callable[[], None], static: Path = STATIC) -> None:
        self._opened = opened
        self._rules = rules
        self._failed = failed
        self._static = static
        self._files = Guard(PageFiles(static), rules)
        self._first = Guard(self._about, rules)
        self._loading: asyncio.Task[FastAPI] | None = None
        self._lifespan = AsyncExitStack()
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Tell streams that would go on."""
        self._stopping.set()

    def check(self) -> None:
        """Raises what kept the application from being loaded."""
        if self._loading is not None and self._loading.done() and not self._loading.cancelled():
            self._loading.result()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        loading = self._loading
        assert loading is not None
        if not loading.done() and scope["path"] == "/api/recording":
            await self._first(scope, receive, send)
        elif loading.done() or scope["path"].startswith("/api"):
            await self._whole(scope, receive, send)
        else:
            await self._files(scope, receive, send)

    async def _about(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            shape = await asyncio.get_running_loop().run_in_executor(None, about, self._opened)
        except ExhumeError:
            # The application has the words for it.
            await self._whole(scope, receive, send)
            return
        await modelled(shape)(scope, receive, send)

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._loading is not None
        # Whoever goes away does not take the application along.
        whole = await asyncio.shield(self._loading)
        await whole(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._loading = asyncio.ensure_future(self._loaded())
        self._loading.add_done_callback(self._ended)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await asyncio.wait({self._loading})
        await self._lifespan.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    async def _loaded(self) -> "FastAPI":
        whole = await asyncio.get_running_loop().run_in_executor(None, self._create)
        await self._lifespan.enter_async_context(whole.router.lifespan_context(whole))
        return whole

    def _create(self) -> "FastAPI":
        # The framework takes longer to load than everything else: nobody waits for it who wants a file.
        from exhume.present.web.app import create_app

        whole = create_app(self._opened.directory, self._rules, self._static, self._opened)
        whole.state.stopping = self._stopping
        return whole

    def _ended(self, loading: "asyncio.Task[FastAPI]") -> None:
        if not loading.cancelled() and loading.exception() is not None:
            self._failed()
