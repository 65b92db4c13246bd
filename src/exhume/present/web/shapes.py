"""The shapes of the answers, as the OpenAPI document tells them. Times are milliseconds of wall time since 1970."""

from typing import Literal

from pydantic import BaseModel


class Problem(BaseModel):
    """Why a request was refused, in a sentence that says what to do."""

    detail: str


class Loss(BaseModel):
    source: str
    kind: str
    count: int
    text: str


class Cost(BaseModel):
    """The recorder's own, lately: percent of one core, and megabytes."""

    cpu_percent: float
    memory_mb: float


class RecordingShape(BaseModel):
    """The recording as a whole. `state` is empty while nothing is recorded yet; then `hint` says what is coming."""

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
    missing: list[str]
    skipped: list[str]
    measures: list[str]
    states: list[str]
    cost: Cost | None


class State(BaseModel):
    name: str
    permille: int


class TopThread(BaseModel):
    comm: str
    pid: int
    share: float


class CellShape(BaseModel):
    """The worst row of one core in a stretch of time, and who ran there."""

    cpu: int
    since: int
    until: int
    states: list[State]
    wait_ns: int | None
    top: list[TopThread]
    samples: int


class Line(BaseModel):
    name: str
    title: str
    values: list[float | None]
    #: The nearest measured points outside of the window: milliseconds and value.
    before: tuple[int, float] | None = None
    after: tuple[int, float] | None = None


class LaneShape(BaseModel):
    name: str
    title: str
    unit: str
    series: list[Line]


class LanesShape(BaseModel):
    since: int
    until: int
    cells: int
    lanes: list[LaneShape]


class EventShape(BaseModel):
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


class KindCount(BaseModel):
    kind: str
    count: int


class EventsShape(BaseModel):
    """`kinds` are all that the question's window, filters and words leave, whichever of them were asked for."""

    events: list[EventShape]
    total: int
    truncated: bool
    kinds: list[KindCount]
    elsewhere: int


class Mark(BaseModel):
    """Events of a kind that fall together at this zoom."""

    at: int
    until: int
    kind: str
    severity: str
    count: int
    text: str


class MarksShape(BaseModel):
    marks: list[Mark]


class IncidentShape(BaseModel):
    """A moment that the recorder marked. `state` is waiting until it has been looked at, then known or unknown."""

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


class IncidentsShape(BaseModel):
    incidents: list[IncidentShape]


class Labels(BaseModel):
    name: list[str]
    module: list[str]
    kind: list[str]


class FlameShape(BaseModel):
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


class ProcessShape(BaseModel):
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


class ProcessesShape(BaseModel):
    """Who ran, the most first. `share` is of the CPU time in the samples that count."""

    processes: list[ProcessShape]
    containers: list[ProcessShape]
    total_seconds: float
    left_out: int


class LiveShape(BaseModel):
    """What `/api/live` sends."""

    since: int
    until: int
    live: bool
    lost: int
    skipped: int
    incidents: int


class Reading(BaseModel):
    """How far a question is: segments that were read, of how many."""

    done: int
    of: int


class ProgressShape(BaseModel):
    asks: dict[str, Reading]
