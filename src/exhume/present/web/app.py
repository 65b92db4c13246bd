"""The application: a table of endpoints over one recording, and the page's files."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from exhume.model.errors import ExhumeError
from exhume.present.web import params as p
from exhume.present.web import schemas
from exhume.present.web.guard import Guard, Rules
from exhume.present.web.incidents import IncidentTracker
from exhume.present.web.jobs import JobRunner, response
from exhume.present.web.live import LiveStatus
from exhume.present.web.peer import PeerCheck
from exhume.present.web.reply import JSON, Refusal, json_reply
from exhume.present.web.schemas import BINARY, EVENT_STREAM, FILES, OBJECT, Endpoint, openapi_document
from exhume.present.web.static import STATIC, PageFiles
from exhume.present.web.workers import Cancelled, JobPool, ThreadPool

ENDPOINTS = (
    Endpoint("recording", p.NoParams, schemas.RecordingShape, "The recording as a whole", "recording.recording"),
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
        "lanes",
        p.LanesParams,
        schemas.LanesShape,
        "Lines over time, each point the greatest value in its cell; and the nearest points before and after.",
        "lanes.lanes",
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
    Endpoint("incidents", p.NoParams, schemas.IncidentsShape, "The incidents that the recorder marked, with causes."),
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
        p.NoParams,
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


class Api:
    """The endpoints that the server answers itself; the others are jobs."""

    def __init__(self, pool: JobPool) -> None:
        self.pool = pool
        self.jobs = JobRunner(pool)
        self.tracker = IncidentTracker(pool)
        self.status = LiveStatus(pool)

    async def incidents(self, request: Request, params: p.NoParams) -> Response:
        found = await self.tracker.incidents()
        return response(json_reply(schemas.IncidentsShape(incidents=[each.shape for each in found])))

    async def diagnosis(self, request: Request, params: p.DiagnosisParams) -> Response:
        if params.incident is None:
            return await self.jobs.respond(request, "diagnosis.diagnosis", params)
        incident = await self.tracker.incident(params.incident)
        if incident is None:
            raise Refusal(404, "no incident of that id is marked in this recording")
        kept = self.tracker.diagnosis(incident)
        if kept is not None:
            return Response(kept, media_type=JSON)
        return await self.jobs.respond(request, "diagnosis.incident", incident.moment)

    async def live(self, request: Request, params: p.NoParams) -> Response:
        return self.status.stream(request)

    async def progress(self, request: Request, params: p.ProgressParams) -> Response:
        found = self.jobs.progress(params.requests.split(","))
        requests = {name: schemas.Reading(done=done, of=of) for name, (done, of) in found.items()}
        return response(json_reply(schemas.ProgressShape(requests=requests)))


def create_app(
    directory: Path,
    rules: Rules,
    static: Path = STATIC,
    pool: JobPool | None = None,
    users: Collection[int] | None = None,
) -> Starlette:
    """The application for one recording; its jobs run in threads unless there is a pool. With `users`, it answers only
    processes of these."""
    api = Api(pool or ThreadPool(directory))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        api.pool.start()
        tracking = asyncio.create_task(api.tracker.run())
        yield
        tracking.cancel()
        api.pool.cancel_all()
        with suppress(asyncio.CancelledError, ExhumeError):
            await tracking

    peer_check = [] if users is None else [Middleware(PeerCheck, users=users)]
    app = Starlette(
        routes=[*_routes(api), Mount("/", PageFiles(static))],
        middleware=[*peer_check, Middleware(Guard, rules=rules)],
        exception_handlers={Refusal: _refused, Cancelled: _refused, ExhumeError: _refused},
        lifespan=lifespan,
    )
    app.state.api = api
    return app


def _routes(api: Api) -> list[BaseRoute]:
    routes: list[BaseRoute] = [
        Route(f"/api/{endpoint.path}", _function(api, endpoint), methods=["GET"]) for endpoint in ENDPOINTS
    ]
    return [*routes, Route("/api/openapi.json", _document, methods=["GET"])]


def _function(api: Api, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    own = getattr(api, endpoint.path) if endpoint.handler is None else None

    async def call(request: Request) -> Response:
        params = endpoint.params.parse(request.query_params, request.path_params)
        if own is not None:
            result: Response = await own(request, params)
            return result
        assert endpoint.handler is not None
        return await api.jobs.respond(request, endpoint.handler, params)

    return call


async def _document(request: Request) -> Response:
    return JSONResponse(openapi_document(ENDPOINTS))


async def _refused(request: Request, error: Exception) -> Response:
    status = error.status if isinstance(error, Refusal) else 503
    return JSONResponse({"detail": str(error)}, status)
