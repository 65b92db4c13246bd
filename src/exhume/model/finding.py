"""The words for a diagnosis: evidence, the chain from symptom to root cause, findings, and what was ruled out."""

from dataclasses import dataclass, field
from enum import StrEnum

DIAGNOSIS_VERSION = 1


class Severity(StrEnum):
    """How much it matters: work on this node is starved, slowed, or only worth knowing."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        return (Severity.INFO, Severity.WARNING, Severity.CRITICAL).index(self)


class Role(StrEnum):
    """What a link of the chain is."""

    SYMPTOM = "symptom"
    MECHANISM = "mechanism"
    CULPRIT = "culprit"
    ROOT_CAUSE = "root_cause"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A recorded value, told so that anybody can find it again.

    `column` of the rows of `table` between the wall times `since` and `until` (nanoseconds, half-open), taken together
    by `how` (max, min, sum, mean, first, last, count, share), gives `value`. `cpu` and `match` (column = text) narrow
    the rows. In samples, `functions` keeps the samples whose stack holds one of them; `share` is then their part of the
    time of the cores that were looked at. What was looked at alive, and is in no table, has the table `live`.
    """

    table: str
    column: str
    how: str
    value: float | int | str
    since: int
    until: int
    cpu: int | None = None
    match: tuple[tuple[str, str], ...] = ()
    functions: tuple[str, ...] = ()
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """One step of the chain: what was seen, when (wall nanoseconds), and the recorded values that say so."""

    role: Role
    at: int
    text: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Culprit:
    """Who or what took the CPU, as far as it is known."""

    cpu: int | None = None
    pid: int | None = None
    comm: str | None = None
    cmdline: str | None = None
    cgroup: str | None = None
    container: str | None = None
    pod: str | None = None
    function: str | None = None
    container_name: str | None = None
    pod_name: str | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something to do about it. `command` is what to run; `text` says what it does."""

    id: str
    text: str
    target: str = ""
    command: str = ""
    risk: str = "low"
    reversible: bool = True


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause, from what was felt to what has to change. `confidence` is the share of findings told with it that are
    right, as measured in the lab; `why_not_sure` says what keeps it from being higher."""

    cause: str
    title: str
    severity: Severity
    confidence: float
    summary: str
    chain: tuple[Link, ...]
    culprit: Culprit = Culprit()
    remedies: tuple[Remedy, ...] = ()
    why_not_sure: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A cause that the evidence speaks against, or that could not be judged."""

    cause: str
    why: str


class Verdict(StrEnum):
    """The node in a word."""

    STARVED = "starved"
    DEGRADED = "degraded"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer. `window` is what was asked about, `focus` the part of it that the findings are about, `baseline` the
    calm time that it was compared with, empty where there is none (wall nanoseconds, half-open). `symptoms` is what was
    felt, whether a cause explains it or not."""

    node: str
    window: tuple[int, int]
    focus: tuple[int, int]
    verdict: Verdict
    findings: list[Finding] = field(default_factory=list)
    ruled_out: list[RuledOut] = field(default_factory=list)
    blind_spots: list[str] = field(default_factory=list)
    baseline: tuple[int, int] = (0, 0)
    symptoms: list[Link] = field(default_factory=list)
