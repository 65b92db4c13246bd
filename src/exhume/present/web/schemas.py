"""Models of all JSON answers, and the OpenAPI document made of them.

The TypeScript types of the page are generated from them. Times are milliseconds of wall time since 1970."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from exhume import __version__
from exhume.present.web.params import QueryParams
from exhume.present.web.reply import JSON


class _Answer(BaseModel):
    """Base of all models: serializers are built with the first answer, which makes the start faster."""

    model_config = ConfigDict(defer_build=True)


class Problem(_Answer):
    """Why a request was refused, in a sentence that says what to do."""

    detail: str


class Loss(_Answer):
    source: str
    kind: str
    count: int
    text: str


class Cost(_Answer):
    """The recorder's own, lately: percent of one core, and megabytes."""

    cpu_percent: float
    memory_mb: float


class MissingSource(_Answer):
    """A source that is unavailable, why, and what would enable it."""

    source: str
    reason: str
    remedy: str


class RecordingShape(_Answer):
    """The recording as a whole. `state` is empty while nothing is recorded yet; then `hint` says why."""

    version: int
    state: Literal["empty", "young", "ready"]
    hint: str
    node: str
    kernel: str
    arch: str
    boot: str
    cores: int
    timezone: str
    since: int
    until: int
    live: bool
    rate_hz: int
    event_source: str
    segments: int
    lost: int
    losses: list[Loss]
    gaps: list[tuple[int, int]]
    missing: list[MissingSource]
    skipped: list[str]
    measures: list[str]
    states: list[str]
    cost: Cost | None


class State(_Answer):
    name: str
    permille: int


class TopThread(_Answer):
    comm: str
    pid: int
    share: float


class CellShape(_Answer):
    """The worst row of one core in a stretch of time, and the threads that ran there."""

    cpu: int
    since: int
    until: int
    states: list[State]
    wait_ns: int | None
    top: list[TopThread]
    samples: int


class Line(_Answer):
    name: str
    title: str
    values: list[float | None]
    #: The nearest measured points outside of the window: milliseconds and value.
    before: tuple[int, float] | None = None
    after: tuple[int, float] | None = None


class LaneShape(_Answer):
    name: str
    title: str
    unit: str
    series: list[Line]


class LanesShape(_Answer):
    since: int
    until: int
    cells: int
    lanes: list[LaneShape]


class EventShape(_Answer):
    at: int
    kind: str
    severity: str
    source: str
    text: str
    cpu: int | None
    device: str | None
    value: float | None
    pid: int | None
    comm: str | None
    container: str | None
    container_name: str | None


class KindCount(_Answer):
    kind: str
    count: int


class EventsShape(_Answer):
    """`kinds` are all kinds in the window that match filters and text, whichever were requested."""

    events: list[EventShape]
    total: int
    truncated: bool
    kinds: list[KindCount]
    elsewhere: int


class Mark(_Answer):
    """Events of a kind that fall together at this zoom."""

    at: int
    until: int
    kind: str
    severity: str
    count: int
    text: str


class MarksShape(_Answer):
    marks: list[Mark]


class IncidentShape(_Answer):
    """A moment that the recorder marked. `state` is waiting until it was diagnosed, then known or unknown."""

    id: str
    since: int
    until: int
    at: int
    text: str
    marks: int
    cpus: list[int]
    state: Literal["waiting", "known", "unknown"]
    cause: str | None
    title: str | None
    severity: str | None
    confidence: float | None
    summary: str | None


class IncidentsShape(_Answer):
    incidents: list[IncidentShape]


class Labels(_Answer):
    name: list[str]
    module: list[str]
    kind: list[str]


class FlameShape(_Answer):
    """A tree of frames, parents first; node 0 is everything. `base_weight` is empty without a baseline. `dropped`
    counts frames that are too thin to be drawn; their time is their parents' own."""

    since: int
    until: int
    base_since: int | None
    base_until: int | None
    baseline: str
    differential: bool
    samples: int
    weight_us: int
    base_samples: int
    base_weight_us: int
    blind_spots: list[str]
    states: list[str]
    labels: Labels
    label: list[int]
    parent: list[int]
    weight: list[int]
    samples_of: list[int]
    base_weight: list[int]
    state: list[int]
    dropped: int
    changes: list[str]


class ProcessShape(_Answer):
    comm: str
    pid: int | None
    cmdline: str | None
    container: str | None
    container_name: str | None
    pod: str | None
    pod_name: str | None
    cgroup: str | None
    share: float
    seconds: float
    per_cpu: list[tuple[int, float]]


class ProcessesShape(_Answer):
    """Processes by CPU time, the most first. `share` is of the CPU time in the matching samples."""

    processes: list[ProcessShape]
    containers: list[ProcessShape]
    total_seconds: float
    left_out: int


class LiveShape(_Answer):
    """What `/api/live` sends."""

    since: int
    until: int
    live: bool
    lost: int
    skipped: int
    incidents: int


class Reading(_Answer):
    """The progress of a request: segments read, of how many."""

    done: int
    of: int


class ProgressShape(_Answer):
    requests: dict[str, Reading]


class CoresHeader(_Answer):
    """The header of `/api/cores` and `/api/frame-times`: cores x cells, core by core. Behind it are two arrays of
    bytes: the values (0 to `full`, or `unrecorded`) and the dominant state of each cell, an index into `states`."""

    since: int
    until: int
    cells: int
    cpus: list[int]
    measure: str
    full: int
    unrecorded: int
    states: list[str]


class SubsecondHeader(_Answer):
    """The header of `/api/subsecond`. Behind it is an array of 32-bit counts, column by column; row 0 is the start of
    a column. `since` is the start of the first column, `from` that of the window."""

    since: int
    start: int = Field(alias="from")
    until: int
    column_ms: int
    rows: int
    columns: int
    most: int
    samples: int


#: The models of whole answers; those that they refer to come with them.
API_MODELS: tuple[type[BaseModel], ...] = (
    Problem,
    RecordingShape,
    CellShape,
    LanesShape,
    EventsShape,
    MarksShape,
    IncidentsShape,
    FlameShape,
    ProcessesShape,
    LiveShape,
    ProgressShape,
    CoresHeader,
    SubsecondHeader,
)


#: Answers that no model describes, as the `content` of a response.
BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
EVENT_STREAM: dict[str, Any] = {"text/event-stream": {}}
OBJECT = {JSON: {"schema": {"type": "object"}}}
FILES: dict[str, Any] = {media: {} for media in ("text/plain", "application/gzip", JSON, "image/svg+xml", "text/html")}
_REFERENCE = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path below /api/: its parameters, its answer, and the handler that makes it (none: the server itself)."""

    path: str
    params: type[QueryParams]
    answer: type[BaseModel] | dict[str, Any]
    summary: str
    handler: str | None = None

    @property
    def content(self) -> dict[str, Any]:
        if isinstance(self.answer, dict):
            return self.answer
        return {JSON: {"schema": {"$ref": _REFERENCE.format(model=self.answer.__name__)}}}


def openapi_document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The whole document."""
    _, schemas = models_json_schema([(model, "serialization") for model in API_MODELS], ref_template=_REFERENCE)
    return {
        "openapi": "3.1.0",
        "info": {"title": "exhume", "version": __version__},
        "paths": {f"/api/{endpoint.path}": {"get": _operation(endpoint)} for endpoint in endpoints},
        "components": {"schemas": schemas["$defs"]},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    refused = {JSON: {"schema": {"$ref": _REFERENCE.format(model=Problem.__name__)}}}
    refusals = {str(code): {"description": "refused", "content": refused} for code in (401, 403, 404, 413, 422)}
    return {
        "summary": endpoint.summary,
        "parameters": _parameters(endpoint),
        "responses": {"200": {"description": "the answer", "content": endpoint.content}, **refusals},
    }


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    schema = endpoint.params.model_json_schema()
    in_path = [name for name in schema.get("properties", {}) if f"{{{name}}}" in endpoint.path]
    return [
        {
            "name": name,
            "in": "path" if name in in_path else "query",
            "required": name in schema.get("required", ()),
            "description": field.get("description", ""),
            "schema": _without_null(field),
        }
        for name, field in schema.get("properties", {}).items()
    ]


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    """A parameter is left out rather than null."""
    kept = {key: value for key, value in field.items() if key not in ("anyOf", "title", "description", "default")}
    for option in field.get("anyOf", ()):
        if option.get("type") != "null":
            kept |= option
    return kept
