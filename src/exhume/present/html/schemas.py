"""The data of the reports and of `/api/diagnosis`; `web/src/api-schema.ts` is generated from it."""

from typing import Literal

# As in web/schemas.py.
from typing_extensions import TypedDict

from exhume.present.web.schemas import CoresHeader, FlameShape

Severity = Literal["critical", "warning", "info"]


class TextSpan(TypedDict):
    """A range of time as RFC 3339 and as milliseconds since 1970."""

    since: str
    until: str
    since_ms: int
    until_ms: int


class Evidence(TextSpan):
    """A recorded value and where to find it."""

    table: str
    where: str
    value: float | int | str | None
    unit: str
    column: str
    how: str
    cpu: int | None
    match: dict[str, str]
    functions: list[str]


class ChainLink(TypedDict):
    role: Literal["symptom", "mechanism", "culprit", "root_cause"]
    at: str
    at_ms: int
    text: str
    evidence: list[Evidence]


class Culprit(TypedDict):
    cpu: int | None
    pid: int | None
    comm: str | None
    cmdline: str | None
    cgroup: str | None
    container: str | None
    pod: str | None
    function: str | None
    container_name: str | None
    pod_name: str | None
    owner: str | None


class Remedy(TypedDict):
    id: str
    text: str
    target: str
    command: str
    risk: str
    reversible: bool
    read_only: bool
    cost: str
    node: str | None


class Estimate(TypedDict):
    """A measured value, and the range that it lies in with 95% confidence."""

    value: float
    low: float
    high: float


class Milestone(TypedDict):
    """What a growth leads to, and in how many seconds: the best estimate, the earliest, the latest (null: never)."""

    code: str
    limit: float
    unit: str
    count: float
    in_s: float
    earliest_s: float
    latest_s: float | None


class Forecast(TypedDict):
    """Where a growth leads if it goes on."""

    what: str
    count: int
    per_hour: Estimate
    milestones: list[Milestone]
    text: str
    cost_us: Estimate | None
    cost_bytes: Estimate | None


class TimeRow(TypedDict):
    kind: Literal["state", "cause", "pod", "container", "unit", "cgroup", "process", "rest"]
    id: str
    name: str
    seconds: float
    share: float


class TimeTable(TypedDict):
    total_s: float
    by_state: list[TimeRow]
    by_cause: list[TimeRow]
    by_owner: list[TimeRow]


class Accounting(TypedDict):
    """Where the time of the focus went; the rows of each breakdown add up to the total of its table."""

    version: int
    since: str
    until: str
    since_ms: int
    until_ms: int
    cores: int
    estimated: bool
    cpu: TimeTable
    waiting: TimeTable
    lost: TimeTable
    sentence: str


class Finding(TypedDict):
    cause: str
    title: str
    severity: Severity
    scope: Literal["node", "workload"]
    confidence: float
    why_not_sure: list[str]
    summary: str
    chain: list[ChainLink]
    culprit: Culprit
    remedies: list[Remedy]
    forecast: Forecast | None
    lost_s: float
    focus: TextSpan


class RuledOut(TypedDict):
    cause: str
    why: str


class JobFailure(TypedDict):
    at: str
    at_ms: int
    kind: str
    text: str
    cause: str
    after_s: float


class Diagnosis(TypedDict):
    """The answer of `/api/diagnosis`: the JSON of `exhume diagnose`, with every time as a number too."""

    version: int
    node: str
    window: TextSpan
    focus: TextSpan
    baseline: TextSpan | None
    verdict: Literal["starved", "degraded", "healthy", "unknown"]
    sentence: str
    findings: list[Finding]
    symptoms: list[ChainLink]
    ruled_out: list[RuledOut]
    blind_spots: list[str]
    accounting: Accounting | None
    failures: list[JobFailure]
    labels: dict[str, str]


class PackedCores(CoresHeader):
    """The grid of cores with its arrays in base64."""

    values: str
    dominant: str


class KernelCurve(TypedDict):
    """The kernel's share of the worst core of each cell (permille, -1 where none was recorded), and that core."""

    permille: list[int]
    cpus: list[int]


class ReportEvent(TypedDict):
    at_ms: int
    kind: str
    severity: str
    text: str


class FlameReport(TypedDict):
    """`exhume flame -o FILE.html`."""

    kind: Literal["flame"]
    title: str
    window: str
    filters: list[str]
    flame: FlameShape


class DiagnosisReport(TypedDict):
    """`exhume diagnose --html`. Where there is no flame graph, `no_flame` says why. `cause_pages` has the page of each
    cause that was found, as Markdown."""

    kind: Literal["diagnosis"]
    title: str
    offset_ms: int
    window: str
    diagnosis: Diagnosis
    cause_pages: dict[str, str]
    cores: PackedCores | None
    kernel: KernelCurve
    events: list[ReportEvent]
    events_left_out: int
    flame: FlameShape | None
    flame_core: int | None
    no_flame: str


class VerifySeries(TypedDict):
    """One side of a measure. A point is a value and the seconds that it stands for."""

    value: str
    coverage: str
    worst: str
    points: list[tuple[float, float]]


class VerifyMeasure(TypedDict):
    title: str
    change: Literal["improved", "unchanged", "worse", "not-enough-evidence"]
    expected: str
    as_expected: bool
    why: str
    before: VerifySeries
    after: VerifySeries


class VerifyReport(TypedDict):
    """`exhume fix verify --html`."""

    kind: Literal["verify"]
    title: str
    verdict: Literal["proved", "worse", "unproven"]
    sentence: str
    subtitle: str
    interrupted: bool
    measures: list[VerifyMeasure]
    done: list[str]
    blind_spots: list[str]


class CompareRow(TypedDict):
    """An attribute that differs, with the value that most nodes of each side have."""

    text: str
    name: str
    title: str
    weight: float
    level: Severity
    a: str
    b: str


class CompareReport(TypedDict):
    """`exhume compare --html`."""

    kind: Literal["compare"]
    title: str
    verdict: Literal["different", "identical"]
    sentence: str
    subtitle: str
    a: str
    b: str
    rows: list[CompareRow]
    left_out: int
    not_compared: list[str]
