"""The ASGI application: a table of endpoints over one recording, and the page's static files."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from mimetypes import guess_type
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from exhume.model.errors import ExhumeError
from exhume.present.web import params as p
from exhume.present.web import schemas
from exhume.present.web.guard import Guard, Rules
from exhume.present.web.live import IncidentTracker, LiveStatus
from exhume.present.web.pool import JobPool, ThreadPool
from exhume.present.web.schemas import BINARY, EVENT_STREAM, FILES, JSON, OBJECT, Endpoint, openapi_document
from exhume.present.web.source import RecordingSource

STATIC = Path(__file__).parent / "static"
UNBUILT = """exhume's page was not built into this installation.
Build it with `make web`, or reinstall exhume with pip. The endpoints under /api work without it.
"""

ENDPOINTS = (
    Endpoint("recording", p.RecordingParams, schemas.RecordingShape, "The recording as a whole", "recording.recording"),
    Endpoint(
        "cores",
        p.CoresParams,
        BINARY,
        "Cores x time, each cell the worst second in it: bytes of 0 to 250 (all of the time; for `wait`, a second"
        " waited in each second), 255 where nothing was recorded, then the state that took most of it. With a filter,"
        " the share of each core's time in the samples that match and were taken in that state (`busy`: in any);"
        " samples have the states user, system and softirq, other measures are refused with a filter.",
        "timeline.cores",
    ),
    Endpoint(
        "cell",
        p.CellParams,
        schemas.CellShape,
        "One cell of the heatmap: all states of its worst second, and the threads that ran then.",
        "timeline.cell",
    ),
    Endpoint(
        "slices",
        p.SlicesParams,
        BINARY,
        "Who had each core when, from single samples: slices of threads, and of cores that idled, over at most 30 s."
        " With a filter, only what matches.",
        "slices.slices",
    ),
    Endpoint(
        "lanes",
        p.LanesParams,
        schemas.LanesShape,
        "Lines over time, each point the greatest value in its cell; and the nearest points before and after.",
        "counters.lanes",
    ),
    Endpoint(
        "events",
        p.EventsParams,
        schemas.EventsShape,
        "Events in order of time, the first `limit` of them. Filters drop those that name another core, process or"
        " container. `kinds` counts every kind that has events with this text.",
        "events.events",
    ),
    Endpoint(
        "marks",
        p.MarksParams,
        schemas.MarksShape,
        "Events of a kind that fall into the same cell as one mark; losses and clock steps are kinds of their own.",
        "events.marks",
    ),
    Endpoint(
        "incidents", p.RecordingParams, schemas.IncidentsShape, "The incidents that the recorder marked, with causes."
    ),
    Endpoint(
        "flame",
        p.FlameParams,
        schemas.FlameShape,
        "The stacks of a time and cores as one tree; with a baseline, both sides in the same tree.",
        "stacks.flame",
    ),
    Endpoint(
        "export/{form}",
        p.ExportParams,
        FILES,
        "The same flame graph as a file for other tools, as the page shows it.",
        "stacks.export",
    ),
    Endpoint(
        "subsecond",
        p.SubsecondParams,
        BINARY,
        "Samples by their offset in the second (or longer column), column after column.",
        "stacks.subsecond",
    ),
    Endpoint(
        "processes",
        p.ProcessesParams,
        schemas.ProcessesShape,
        "Processes by CPU time, the most first, with the cores that they ran on; and the same for containers.",
        "processes.processes",
    ),
    Endpoint(
        "interrupts",
        p.InterruptsParams,
        schemas.InterruptsShape,
        "Interrupt lines by their count, the most first, with the cores that took them. The kernel's own (timer,"
        " rescheduling) are recorded only where a core took 5,000 of them in a second.",
        "counters.interrupts",
    ),
    Endpoint(
        "frame-times",
        p.FrameTimesParams,
        BINARY,
        "When a frame was on a core: the share of each core's time in stacks that hold it, as in /api/cores.",
        "timeline.frame_times",
    ),
    Endpoint(
        "diagnosis",
        p.DiagnosisParams,
        OBJECT,
        "The diagnosis of a window, of what is nearest to a moment, or of an incident: the JSON of `exhume diagnose`"
        " with every time in milliseconds too (`at_ms`, `since_ms`, `until_ms`).",
    ),
    Endpoint(
        "live",
        p.QueryParams,
        EVENT_STREAM,
        "Server-sent events: the recording's span, whether it grows, losses and incidents, whenever they change.",
    ),
    Endpoint(
        "progress",
        p.ProgressParams,
        schemas.ProgressShape,
        "Segments read, and all to read (0 where that is not known), of requests in flight.",
    ),
)


class EndpointApi:
    """Endpoints backed by a pool: those with a handler run as jobs, the others are methods of a subclass."""

    def __init__(self, pool: JobPool) -> None:
        self.pool = pool

    def route(self, endpoint: Endpoint) -> Route:
        """Route an endpoint to the method of its name, or to its handler."""

        async def call(request: Request) -> Response:
            params = endpoint.params.parse(request.query_params, request.path_params)
            if endpoint.handler is not None:
                return await self.pool.respond(request, endpoint.handler, params)
            own: Callable[[Request, p.QueryParams], Awaitable[Response]] = getattr(self, endpoint.path)
            return await own(request, params)

        return Route(f"/api/{endpoint.path}", call, methods=["GET"])

    async def progress(self, request: Request, params: p.ProgressParams) -> Response:
        found = self.pool.progress(params.requests.split(","))
        return JSONResponse({"requests": {name: {"done": done, "of": of} for name, (done, of) in found.items()}})


class Api(EndpointApi):
    """The endpoints of a recording that the server process answers itself."""

    def __init__(self, pool: JobPool, compared: bool = False) -> None:
        super().__init__(pool)
        served: tuple[p.Which, ...] = ("this", "other") if compared else ("this",)
        self.trackers = {which: IncidentTracker(pool, which) for which in served}
        self.status = LiveStatus(pool)

    def tracker(self, params: p.RecordingParams) -> IncidentTracker:
        """The incident tracker of a recording. Raises Refusal if there is no such recording."""
        if params.recording not in self.trackers:
            raise p.Refusal(404, p.NOT_COMPARED)
        return self.trackers[params.recording]

    def routes(self, files: "PageFiles") -> list[BaseRoute]:
        """All routes below a recording's address."""

        async def document(request: Request) -> Response:
            return JSONResponse(openapi_document(ENDPOINTS))

        return [
            *map(self.route, ENDPOINTS),
            Route("/api/openapi.json", document, methods=["GET"]),
            Mount("/", files),
        ]

    async def incidents(self, request: Request, params: p.RecordingParams) -> Response:
        return JSONResponse({"incidents": [shape for shape, _ in await self.tracker(params).incidents()]})

    async def diagnosis(self, request: Request, params: p.DiagnosisParams) -> Response:
        if params.incident is None:
            return await self.pool.respond(request, "diagnosis.diagnosis", params)
        tracker = self.tracker(params)
        incident = await tracker.incident(params.incident)
        if incident is None:
            raise p.Refusal(404, "no incident of that id is marked in this recording")
        kept = tracker.diagnosis(incident[0])
        if kept is not None:
            return Response(kept, media_type=JSON)
        return await self.pool.respond(request, "diagnosis.incident", incident[1])

    async def live(self, request: Request, params: p.QueryParams) -> Response:
        return StreamingResponse(self.status.events(request), media_type="text/event-stream")


class PageFiles:
    """Serves the files that exist at startup, by their exact names, so no path can lead anywhere else. The files are
    small and are held in memory."""

    def __init__(self, directory: Path, page: str = "index.html") -> None:
        self._page = f"/{page}"
        self._files: dict[str, Response] = {}
        for file in sorted(directory.rglob("*")):
            if file.is_file() and not file.name.startswith("."):
                # Names of built files contain a content hash, so they can be cached for good; pages are requested each
                # time.
                kept = "no-cache" if file.suffix in (".html", ".md") else "public, max-age=31536000, immutable"
                self._files["/" + file.relative_to(directory).as_posix()] = Response(
                    file.read_bytes(), headers={"cache-control": kept}, media_type=guess_type(file.name)[0]
                )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] or "/"
        if path == "/" and not self._files:
            found: Response = PlainTextResponse(UNBUILT, 503)
        else:
            missing = PlainTextResponse("there is nothing at this address\n", 404)
            found = self._files.get(self._page if path == "/" else path, missing)
        await found(scope, receive, send)


def create_app(
    source: RecordingSource | Path,
    rules: Rules,
    static: Path = STATIC,
    pool: JobPool | None = None,
) -> Starlette:
    """Create the application for one recording; its jobs run in threads if no pool is given."""
    api = Api(pool or ThreadPool(source), isinstance(source, RecordingSource) and source.compared is not None)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        api.pool.start()
        tracking = [asyncio.create_task(tracker.run()) for tracker in api.trackers.values()]
        yield
        for task in tracking:
            task.cancel()
        api.pool.stop()
        for task in tracking:
            with suppress(asyncio.CancelledError, ExhumeError):
                await task

    app = Starlette(
        routes=api.routes(PageFiles(static)),
        middleware=[Middleware(Guard, rules=rules)],
        exception_handlers={ExhumeError: refuse},
        lifespan=lifespan,
    )
    app.state.api = api
    app.state.stop = api.status.stop
    return app


async def refuse(request: Request, error: Exception) -> Response:
    """The response for an error that a user can do something about."""
    return JSONResponse({"detail": str(error)}, error.status if isinstance(error, p.Refusal) else 503)
