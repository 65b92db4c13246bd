"""Answers: how workers send them, the shapes of their JSON, and the OpenAPI document made of these.

The TypeScript types of the page are generated from the shapes. Times are milliseconds of wall time since 1970.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired

# pydantic, which makes the document, takes no typing.TypedDict before Python 3.12.
from typing_extensions import TypedDict, is_typeddict

from exhume import __version__
from exhume.present.web.params import REQUIRED, Grouping, QueryParams

JSON, OCTETS = "application/json", "application/octet-stream"
#: nginx's code for a client that closed the connection before the answer was ready.
CLIENT_CLOSED_REQUEST = 499


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer that can be sent from a worker to the server."""

    body: bytes
    media_type: str = JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def json_reply(content: Any, status: int = 200) -> Reply:
    """Compact JSON. A lone surrogate, which UTF-8 does not have, becomes a question mark."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Reply(text.encode("utf-8", "replace"), status=status)


def framed(header: Any, *arrays: bytes) -> Reply:
    """A header in JSON, its length before it, and arrays behind it."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(4 + len(text)) % 4)
    return Reply(b"".join([struct.pack("<I", len(text)), text, *arrays]), OCTETS)


class Span(TypedDict):
    since: int
    until: int


class Problem(TypedDict):
    """Why a request was refused, in a sentence that says what to do."""

    detail: str


class Loss(TypedDict):
    source: str
    kind: str
    count: int
    text: str


class Cost(TypedDict):
    """The recorder's own, lately: percent of one core, and megabytes."""

    cpu_percent: float
    memory_mb: float


class MissingSource(TypedDict):
    """A source that is unavailable, why, and what would enable it."""

    source: str
    reason: str
    remedy: str


class RecordingShape(Span):
    """The recording as a whole. `state` is empty while nothing is recorded yet; then `hint` says why. `compared`:
    whether there is another recording to compare with."""

    version: int
    state: Literal["empty", "young", "ready"]
    hint: str
    node: str
    labels: dict[str, str]
    kernel: str
    arch: str
    boot: str
    cores: int
    timezone: str
    live: bool
    compared: bool
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


class State(TypedDict):
    name: str
    permille: int


class TopThread(TypedDict):
    comm: str
    pid: int
    share: float


class CellShape(Span):
    """A cell of the heatmap: its `value` of the measure and the state that has it, as in `/api/cores` (null where
    nothing was recorded), with the row that gave it and the threads that ran there."""

    cpu: int
    value: int | None
    state: str | None
    states: list[State]
    wait_ns: int | None
    top: list[TopThread]
    samples: int


class Line(TypedDict):
    """`before` and `after` are the nearest measured points outside of the window: milliseconds and value."""

    name: str
    title: str
    values: list[float | None]
    before: NotRequired[tuple[int, float] | None]
    after: NotRequired[tuple[int, float] | None]


class LaneShape(TypedDict):
    name: str
    title: str
    unit: str
    series: list[Line]


class LanesShape(Span):
    cells: int
    lanes: list[LaneShape]


class EventShape(TypedDict):
    """An event; `marked` where the recorder marked it as an incident."""

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
    marked: bool


class KindCount(TypedDict):
    kind: str
    count: int


class EventsShape(TypedDict):
    """`kinds` are all kinds in the window that match filters and text, whichever were requested."""

    events: list[EventShape]
    total: int
    truncated: bool
    kinds: list[KindCount]
    elsewhere: int


class Mark(TypedDict):
    """Events of a kind that fall together at this zoom."""

    at: int
    until: int
    kind: str
    severity: str
    count: int
    text: str


class MarksShape(TypedDict):
    marks: list[Mark]


class IncidentShape(Span):
    """A moment that the recorder marked. `state` is waiting until it was diagnosed, then known or unknown."""

    id: str
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


class IncidentsShape(TypedDict):
    incidents: list[IncidentShape]


class Labels(TypedDict):
    """What frames are called. `own` and `total` are microseconds of CPU time in the function itself and with what it
    called, in all its places (those that are dropped included), `base_own` that of the baseline in itself."""

    name: list[str]
    module: list[str]
    kind: list[str]
    own: list[int]
    total: list[int]
    base_own: list[int]


class FlameShape(Span):
    """A tree of frames, parents first; node 0 is everything. `base_weight` and `base_own` are empty without a baseline.
    `dropped` counts frames that are too thin to be drawn; their time is part of their parents' weight, not of their
    own."""

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
    own: list[int]
    samples_of: list[int]
    base_weight: list[int]
    base_own: list[int]
    state: list[int]
    dropped: int
    changes: list[str]


class ProcessShape(TypedDict):
    """A process, or all of a program (threads of one name), a container or a pod; `comm` is its name. What differs
    among its `processes` is null. `per_cpu` has (core, seconds), the most first; `over_time` thousandths of a core in
    each part of the window; `before_seconds` the CPU time in the time before, null where that was not recorded."""

    comm: str
    pid: int | None
    processes: int
    cmdline: str | None
    container: str | None
    container_name: str | None
    pod: str | None
    pod_name: str | None
    owner: str | None
    cgroup: str | None
    share: float
    seconds: float
    kernel_seconds: float
    before_seconds: float | None
    per_cpu: list[tuple[int, float]]
    over_time: list[int]


class ProcessesShape(TypedDict):
    """CPU time by process, program, container or pod, the most first. `share` is of the CPU time in the matching
    samples; the window has `seconds`, the time before it `before_seconds`."""

    by: Grouping
    processes: list[ProcessShape]
    total_seconds: float
    seconds: float
    before_seconds: float
    left_out: int


class InterruptLine(TypedDict):
    """An interrupt line. `worst` is the greatest count in one read (a second, on large nodes up to ten), at `worst_at`;
    `per_cpu` has (core, count), the most first. NIC queues have a device, a queue and the cores of their affinity."""

    irq: str
    name: str
    device: str | None
    queue: int | None
    affinity: str | None
    count: int
    per_second: float
    worst: int
    worst_at: int
    per_cpu: list[tuple[int, int]]


class InterruptsShape(TypedDict):
    """Interrupt lines by their count, the most first. `total` is the count of all, also of the `left_out` lines."""

    lines: list[InterruptLine]
    total: int
    left_out: int


class LiveShape(Span):
    """What `/api/live` sends."""

    live: bool
    lost: int
    skipped: int
    incidents: int


class Reading(TypedDict):
    """The progress of a request: segments read, of how many."""

    done: int
    of: int


class ProgressShape(TypedDict):
    requests: dict[str, Reading]


class CoresHeader(Span):
    """The header of `/api/cores` and `/api/frame-times`: cores x cells, core by core. Behind it are two arrays: the
    values (two bytes each, little-endian; `full` is drawn with full strength, `unrecorded` means that nothing was
    recorded) and the state whose value it is (a byte, an index into `states`). A cell is as bad as its value times the
    weight of its state in `weights`."""

    cells: int
    cpus: list[int]
    measure: str
    full: int
    unrecorded: int
    states: list[str]
    weights: list[float]


class SlicesHeader(Span):
    """The header of `/api/slices`. A slice is a stretch of time on a core in one of `states`: a thread ran there, or
    (`idle`) none did. Where there is no slice the core was not sampled; with a filter, nothing that matches ran.
    Behind it are arrays of `count` numbers, little-endian: start (microseconds after `since`), length (microseconds),
    thread (an index into `pids`, `tids` and `comms`) and frame (an index into `frames`; -1 where none ran) of 32 bits,
    then samples and core (an index into `cpus`) of 16, then the state of 8. A sample stands for `period_us`."""

    cpus: list[int]
    states: list[str]
    pids: list[int]
    tids: list[int]
    comms: list[str]
    frames: list[str]
    count: int
    samples: int
    period_us: int
    filtered: bool


SubsecondHeader = TypedDict(
    "SubsecondHeader",
    {
        "since": int,
        "from": int,
        "until": int,
        "column_ms": int,
        "rows": int,
        "columns": int,
        "most": int,
        "samples": int,
    },
)
SubsecondHeader.__doc__ = """The header of `/api/subsecond`. Behind it is an array of 32-bit counts, column by column;
row 0 is the start of a column; behind that one alike of the samples in the kernel. `since` is the start of the first
column, `from` that of the window."""

#: Answers that no shape describes, as the `content` of a response.
BINARY = {OCTETS: {"schema": {"type": "string", "format": "binary"}}}
EVENT_STREAM: dict[str, Any] = {"text/event-stream": {}}
OBJECT = {JSON: {"schema": {"type": "object"}}}
FILES: dict[str, Any] = {media: {} for media in ("text/plain", "application/gzip", JSON, "image/svg+xml", "text/html")}
REFUSALS = ("401", "403", "404", "413", "422", "503")
_REFERENCE = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path below /api/: its parameters, its answer (a shape, or the content of a response), and the handler that
    makes it (none: the server itself)."""

    path: str
    params: type[QueryParams]
    answer: Any
    summary: str
    handler: str | None = None


def shapes_in(namespace: Mapping[str, Any]) -> list[Any]:
    """The shapes among the values of a module."""
    return [value for value in namespace.values() if is_typeddict(value)]


def definitions(shapes: Sequence[Any]) -> dict[str, Any]:
    """The JSON schema of each shape, by its name."""
    # Takes a tenth of a second, which no start has to wait for.
    from pydantic import TypeAdapter

    inputs = [(shape.__name__, "serialization", TypeAdapter(shape)) for shape in shapes]
    _, schemas = TypeAdapter.json_schemas(inputs, ref_template=_REFERENCE)  # type: ignore[arg-type]
    found: dict[str, Any] = schemas["$defs"]
    return found


def openapi_document(endpoints: Sequence[Endpoint], shapes: Sequence[Any] | None = None) -> dict[str, Any]:
    """The whole document; `shapes` are those of the answers, unless they are this module's."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "exhume", "version": __version__},
        "paths": {f"/api/{endpoint.path}": {"get": _operation(endpoint)} for endpoint in endpoints},
        "components": {"schemas": definitions(shapes_in(globals()) if shapes is None else shapes)},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    answer = endpoint.answer if isinstance(endpoint.answer, dict) else _content(endpoint.answer)
    refused = {"description": "refused", "content": _content(Problem)}
    return {
        "summary": endpoint.summary,
        "parameters": [
            {
                "name": name,
                "in": "path" if f"{{{name}}}" in endpoint.path else "query",
                "required": rule.default is REQUIRED,
                "description": rule.about,
                "schema": rule.json_schema(),
            }
            for name, rule in endpoint.params.rules.items()
        ],
        "responses": {"200": {"description": "the answer", "content": answer}, **dict.fromkeys(REFUSALS, refused)},
    }


def _content(shape: Any) -> dict[str, Any]:
    return {JSON: {"schema": {"$ref": _REFERENCE.format(model=shape.__name__)}}}
