"""The server: routes over one recording, with the page's files beside them."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from exhume import __version__
from exhume.model.errors import ExhumeError, RecordingError, UsageError
from exhume.present.web import (
    routes_diagnosis,
    routes_live,
    routes_progress,
    routes_recording,
    routes_stacks,
    routes_timeline,
)
from exhume.present.web.answering import Answering
from exhume.present.web.explaining import Explaining
from exhume.present.web.guard import Guard, Rules
from exhume.present.web.opened import Opened
from exhume.present.web.pages import STATIC, PageFiles


def create_app(directory: Path, rules: Rules, static: Path = STATIC, opened: Opened | None = None) -> FastAPI:
    """The application for one recording, which may have been opened already."""
    opened = opened or Opened(directory)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        opened.readers.want_all()
        explaining = Explaining(opened)
        app.state.explaining = explaining
        app.state.pulse = routes_live.Pulse(opened, explaining)
        explaining.start()
        yield
        opened.readers.give_up_all()
        explaining.stop()

    app = FastAPI(
        title="exhume",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.opened = opened
    app.state.answering = Answering(opened)
    app.state.stopping = threading.Event()
    for routes in (routes_recording, routes_timeline, routes_stacks, routes_diagnosis, routes_live, routes_progress):
        app.include_router(routes.router, prefix="/api")
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _misunderstood)
    app.add_exception_handler(ExhumeError, _explained)
    app.mount("/", PageFiles(static))
    app.add_middleware(Guard, rules=rules)
    return app


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    sentence = error.detail
    if error.status_code == 404 and sentence == "Not Found":
        sentence = "there is nothing at this address; /api/openapi.json lists what there is"
    return JSONResponse({"detail": sentence}, error.status_code, headers=error.headers)


async def _misunderstood(request: Request, error: Exception) -> JSONResponse:
    """Every value that can't be used, in one sentence."""
    assert isinstance(error, RequestValidationError)
    said = "; ".join(f"{each['loc'][-1]}: {each['msg'][:1].lower()}{each['msg'][1:]}" for each in error.errors())
    return JSONResponse({"detail": said}, 422)


async def _explained(request: Request, error: Exception) -> JSONResponse:
    status = 422 if isinstance(error, UsageError) else 404 if isinstance(error, RecordingError) else 500
    return JSONResponse({"detail": str(error)}, status)
