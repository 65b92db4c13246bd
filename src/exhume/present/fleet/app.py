"""The ASGI application of the fleet page: endpoints over one lake, the pages of incidents, and static files."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from exhume.model.errors import ExhumeError
from exhume.present.fleet import params as p
from exhume.present.fleet import schemas
from exhume.present.fleet.bundles import IncidentPages
from exhume.present.fleet.report_job import ReportJob
from exhume.present.web.app import STATIC, EndpointApi, PageFiles, refuse
from exhume.present.web.guard import Guard, Rules
from exhume.present.web.params import ProgressParams, QueryParams
from exhume.present.web.pool import JobPool, ThreadPool
from exhume.present.web.schemas import (
    BINARY,
    Endpoint,
    Problem,
    ProgressShape,
    Reading,
    openapi_document,
    shapes_in,
)

PACKAGE = "exhume.present.fleet"
PAGE = "fleet.html"
ENDPOINTS = (
    Endpoint("fleet", QueryParams, schemas.FleetShape, "The lake as a whole: its hours and measures.", "nodes.fleet"),
    Endpoint(
        "cells",
        p.CellsParams,
        BINARY,
        "Each node's value of an hour for each measure: a header in JSON, then 32-bit floats.",
        "nodes.cells",
    ),
    Endpoint(
        "attributes",
        p.AttributesParams,
        BINARY,
        "Attributes of each node at the end of an hour, dictionary-encoded: a header in JSON, then the codes.",
        "nodes.attributes",
    ),
    Endpoint(
        "node", p.NodeParams, schemas.NodeShape, "One node: its minutes in an hour, its attributes.", "nodes.node"
    ),
    Endpoint(
        "histogram",
        p.HistogramParams,
        schemas.FleetHistogramShape,
        "How many incidents began in each hour.",
        "incidents.histogram",
    ),
    Endpoint(
        "incidents",
        p.IncidentsParams,
        schemas.FleetIncidentsShape,
        "Incidents of all nodes, of those with a value of an attribute, or of one; the newest first.",
        "incidents.incidents",
    ),
    Endpoint(
        "report",
        QueryParams,
        schemas.FleetReportShape,
        "What separates sick nodes from healthy ones; computed once in the background, then again when it is old.",
    ),
    Endpoint("progress", ProgressParams, ProgressShape, "Files read, and all to read, of requests in flight."),
)


class FleetApi(EndpointApi):
    """The endpoints that the server process answers itself."""

    def __init__(self, pool: JobPool, lake: Path | str) -> None:
        super().__init__(pool)
        self.job = ReportJob(lake)

    async def report(self, request: Request, params: QueryParams) -> Response:
        return JSONResponse(self.job.newest())


def create_app(lake: Path | str, rules: Rules, static: Path = STATIC, pool: JobPool | None = None) -> Starlette:
    """Create the application for one lake; its jobs run in a thread if no pool is given."""
    api = FleetApi(pool or ThreadPool(lake, PACKAGE), lake)
    pages = IncidentPages(api.pool, PageFiles(static))

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        api.pool.start()
        yield
        await pages.close()
        await api.job.close()
        api.pool.stop()

    async def document(request: Request) -> Response:
        shapes = [*shapes_in(vars(schemas)), Problem, Reading, ProgressShape]
        return JSONResponse(openapi_document(ENDPOINTS, shapes))

    app = Starlette(
        routes=[
            *map(api.route, ENDPOINTS),
            Route("/api/openapi.json", document, methods=["GET"]),
            Route("/node/{node}/incident/{incident}", pages.redirect, methods=["GET"]),
            Route("/node/{node}/incident/{incident}/{rest:path}", pages),
            Mount("/", PageFiles(static, PAGE)),
        ],
        middleware=[Middleware(Guard, rules=rules)],
        exception_handlers={ExhumeError: refuse},
        lifespan=lifespan,
    )
    app.state.api = api
    app.state.stop = pages.stop
    return app
