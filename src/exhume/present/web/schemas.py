"""The models of all JSON answers: the source of the OpenAPI document and of the page's TypeScript types. Times are
milliseconds of wall time since 1970."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


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
