"""Types of a diagnosis: evidence, the chain from symptom to root cause, findings, entities, remedies, ruled-out causes.

Decisions use the fields and codes of these types. `text`, `summary` and `command` are renderings for human readers.
"""

import shlex
from dataclasses import dataclass, field, replace
from enum import StrEnum

from exhume.model.clock import Wall

DIAGNOSIS_VERSION = 1
# Codes of symptoms: this, and the kind of the symptom. One that is only a line in the kernel log has the last.
SYMPTOM_CODE = "symptom."
LOGGED_SYMPTOM = f"{SYMPTOM_CODE}log"


class Severity(StrEnum):
    """How much a finding matters: work on this node is starved, slowed down, or it is only worth knowing."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        return (Severity.INFO, Severity.WARNING, Severity.CRITICAL).index(self)


class Scope(StrEnum):
    """What is affected: the whole node, or a group of processes that runs into a limit of its own, which others don't
    notice; such a group is one workload (a container, a pod, a unit), or contains several."""

    NODE = "node"
    GROUP = "group"
    WORKLOAD = "workload"


class Role(StrEnum):
    """The role of a link in the chain."""

    SYMPTOM = "symptom"
    MECHANISM = "mechanism"
    CULPRIT = "culprit"
    ROOT_CAUSE = "root_cause"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A recorded value, with the query that finds it again in the recording.

    `value` is `column` of the rows of `table` between the wall times `since` and `until` (nanoseconds, half-open),
    aggregated by `how` (max, min, sum, mean, first, last, count, share). `cpu` and `match` (column = text) narrow the
    rows. In samples, `functions` keeps the samples whose stack contains one of them; `share` is then their part of the
    time of the cores in question. A value that was read from the live node, and is in no table, has the table `live`.
    """

    table: str
    column: str
    how: str
    value: float | int | str
    since: Wall
    until: Wall
    cpu: int | None = None
    match: tuple[tuple[str, str], ...] = ()
    functions: tuple[str, ...] = ()
    unit: str = ""


class EntityKind(StrEnum):
    """The kind of an entity."""

    PROCESS = "process"
    CGROUP = "cgroup"
    CONTAINER = "container"
    POD = "pod"
    UNIT = "unit"
    DEVICE = "device"
    CORE = "core"


@dataclass(frozen=True, slots=True)
class Entity:
    """Something that a finding names. `id` is a pid, a path, a container id, a pod uid, a unit, a device or a core; it
    is empty for a process name that several processes share. In a message it renders as its name; the format spec `pid`
    adds the pid of a process."""

    kind: EntityKind
    id: str
    name: str

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        if spec == "pid" and self.kind is EntityKind.PROCESS and self.id:
            return f"{self.name} (pid {self.id})"
        return self.name


def process_entity(comm: str, pid: int | None = None) -> Entity:
    """A process by its name, and by its pid if a single process is meant."""
    return Entity(EntityKind.PROCESS, "" if pid is None else str(pid), comm)


@dataclass(frozen=True, slots=True)
class Link:
    """One step of the chain: what was observed, when (wall nanoseconds), and the recorded values behind it. `code` is
    its stable identifier, `entities` are the ones that it names."""

    role: Role
    at: Wall
    text: str
    evidence: tuple[Evidence, ...] = ()
    code: str = ""
    entities: tuple[Entity, ...] = ()


@dataclass(frozen=True, slots=True)
class Culprit:
    """The process, cgroup, core and function that took the CPU time, as far as known. `owner` is the controller of its
    pod (`deployment/web`)."""

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
    owner: str | None = None

    @property
    def process(self) -> Entity | None:
        """The process, or the name that several processes share; None if neither is known."""
        return None if self.comm is None else process_entity(self.comm, self.pid)

    @property
    def entities(self) -> tuple[Entity, ...]:
        """Everything that the culprit names."""
        named = (
            (EntityKind.CGROUP, self.cgroup, self.cgroup),
            (EntityKind.CONTAINER, self.container, self.container_name),
            (EntityKind.POD, self.pod, self.pod_name),
        )
        found = [Entity(kind, number, name or number) for kind, number, name in named if number and number != "/"]
        if self.cpu is not None:
            found.append(Entity(EntityKind.CORE, str(self.cpu), f"core {self.cpu}"))
        return (*([self.process] if self.process else []), *found)


class Action(StrEnum):
    """The kind of a remedy: a fix that `exhume fix` applies or plans, a command to run, or advice without a command."""

    APPLY = "fix-apply"
    PLAN = "fix-plan"
    RUN = "run"
    ADVISE = "advise"


class Place(StrEnum):
    """Where a command has to run: on the node it is about, or wherever its cluster can be reached."""

    NODE = "node"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Remedy:
    """Something to do about a finding. `target` is what it acts on, and `{target}` in `template` stands for it: the
    target of `exhume fix` (`docker:{target}`) for a fix, a shell command for everything else. `read_only`: it changes
    nothing. `place` is where its command has to run, `node` the node to run it on if that is not this one."""

    id: str
    text: str
    action: Action = Action.ADVISE
    target: str = ""
    template: str = ""
    risk: str = "low"
    reversible: bool = True
    names_target: bool = True
    read_only: bool = False
    place: Place = Place.NODE
    node: str | None = None

    @property
    def fix_target(self) -> str | None:
        """The target for `exhume fix`; None if the remedy is not a fix."""
        if self.action not in (Action.APPLY, Action.PLAN):
            return None
        return self.template.replace("{target}", self.target)

    @property
    def command(self) -> str:
        """The command line; safe to paste, whatever characters the target's name contains."""
        if self.fix_target is not None:
            verb = "apply" if self.action is Action.APPLY else "plan"
            return f"exhume fix {verb} {shlex.quote(self.fix_target)}"
        return self.template.replace("{target}", shlex.quote(self.target))


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something that limits the confidence of a finding."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured value with its 95% confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Milestone:
    """An event that a growth leads to: `code` says which (many, memory, stall, nic-timeout, soft-lockup, core, full),
    `limit` is its threshold in `unit`, and `count` how many items that takes. In seconds from the end of the focus: the
    best estimate, the earliest, and the latest time (None if it may never happen)."""

    code: str
    limit: float
    unit: str
    count: float
    in_s: float
    earliest_s: float
    latest_s: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """Where a growth leads if it continues: `count` items at the end of the focus, how many more are added per hour,
    what each costs as measured in this recording (`cost_us`: microseconds of one walk over all of them; `cost_bytes`:
    kernel memory; None if that could not be measured), and when that will cause trouble."""

    what: str
    count: int
    per_hour: Estimate
    milestones: tuple[Milestone, ...]
    text: str
    cost_us: Estimate | None = None
    cost_bytes: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause, from its symptoms to what has to change. `confidence` is the share of findings with this confidence that
    are right, as measured in the lab; `doubts` say what limits it. `forecast` is set for causes that grow. `lost_s` is
    the time lost to it (see Accounting) in `focus`, the seconds that it is about (wall ns, half-open)."""

    cause: str
    title: str
    severity: Severity
    confidence: float
    summary: str
    chain: tuple[Link, ...]
    culprit: Culprit = Culprit()
    remedies: tuple[Remedy, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    entities: tuple[Entity, ...] = ()
    scope: Scope = Scope.NODE
    forecast: Forecast | None = None
    lost_s: float = 0.0
    focus: tuple[int, int] = (0, 0)

    def names(self, name: str, *kinds: EntityKind) -> bool:
        """Whether the finding names an entity of one of these kinds by its name or id."""
        return any(each.kind in kinds and name in (each.name, each.id) for each in self.entities)


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A cause that the evidence contradicts, or that could not be judged. `values` are the numbers behind `code`."""

    cause: str
    code: str
    why: str
    values: tuple[tuple[str, float | int | str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class BlindSpot:
    """Something that a diagnosis could not see."""

    code: str
    text: str


class Verdict(StrEnum):
    """The state of the node in one word."""

    STARVED = "starved"
    DEGRADED = "degraded"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


ACCOUNTING_VERSION = 1


class TimeKind(StrEnum):
    """What a row of a breakdown stands for. `rest` is everything that no other row covers: idle time, time that was not
    sampled, and unexplained time."""

    STATE = "state"
    CAUSE = "cause"
    POD = "pod"
    CONTAINER = "container"
    UNIT = "unit"
    CGROUP = "cgroup"
    PROCESS = "process"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class TimeRow:
    """One row of a breakdown: `seconds`, and their share (0 to 1) of the table's total. `id` is a state, the id of a
    cause, a pod's uid, a container's id, a unit, a cgroup or a process name; for the rest it is one of `idle`,
    `stolen`, `other`, `small`, `kernel`, `unknown`, `unsampled`, `unrecorded`, `usual`, `unexplained`."""

    kind: TimeKind
    id: str
    name: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class TimeTable:
    """A total in seconds, broken down in up to three ways. The rows of each breakdown add up to the total; a breakdown
    that does not apply is empty."""

    total_s: float = 0.0
    by_state: tuple[TimeRow, ...] = ()
    by_cause: tuple[TimeRow, ...] = ()
    by_owner: tuple[TimeRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Accounting:
    """Where the time of a window went.

    `cpu`: the seconds of all cores. `waiting`: the seconds that threads were runnable but did not run: queued for a
    core, throttled by a quota, or on a core that the hypervisor had taken. `lost`: the waiting above the usual, and the
    CPU time that causes took from useful work. `estimated`: how long threads queued is only derived from pressure and
    the number of runnable threads. `text` is `lost` in a sentence, empty if next to nothing was lost.
    """

    since: Wall
    until: Wall
    cores: int
    cpu: TimeTable
    waiting: TimeTable
    lost: TimeTable
    estimated: bool = False
    text: str = ""


@dataclass(frozen=True, slots=True)
class JobFailure:
    """A failure that another program reported, and the cause of the finding that explains it. `after_s` is the time
    since the start of that finding."""

    at: Wall
    kind: str
    text: str
    cause: str
    after_s: float


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a diagnosis. `verdict` is about the node: findings about a single workload don't change it.
    `window` is the requested time, `focus` the part of it that the findings are about, `baseline` the calm time that it
    was compared with, empty if there is none (wall nanoseconds, half-open). `symptoms` are listed whether a cause
    explains them or not. `accounting` says where the time of the focus went; None if nothing was recorded. `failures`
    are the job failures that the findings explain. `labels` are the node's (zone, pool)."""

    node: str
    window: tuple[int, int]
    focus: tuple[int, int]
    verdict: Verdict
    findings: list[Finding] = field(default_factory=list)
    ruled_out: list[RuledOut] = field(default_factory=list)
    blind_spots: list[BlindSpot] = field(default_factory=list)
    baseline: tuple[int, int] = (0, 0)
    symptoms: list[Link] = field(default_factory=list)
    accounting: Accounting | None = None
    failures: list[JobFailure] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)

    def seen_from(self, here: str) -> "Diagnosis":
        """A copy with the node's name on each command that has to run there, if `here` is another node."""
        if self.node == here:
            return self
        return replace(self, findings=[_from_elsewhere(finding, self.node) for finding in self.findings])


def _from_elsewhere(finding: Finding, node: str) -> Finding:
    def aimed(remedy: Remedy) -> Remedy:
        return replace(remedy, node=node) if remedy.command and remedy.place is Place.NODE else remedy

    return replace(finding, remedies=tuple(map(aimed, finding.remedies)))


CHECKUP_VERSION = 2


class Level(StrEnum):
    """The result of a check. `unseen`: it could not be performed."""

    WELL = "well"
    LOOK = "look"
    BAD = "bad"
    UNSEEN = "unseen"

    @property
    def rank(self) -> int:
        return (Level.WELL, Level.UNSEEN, Level.LOOK, Level.BAD).index(self)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a checkup: what was found, the threshold at which it matters, and what that means or what to do about
    it. `number` is the value for programs."""

    id: str
    title: str
    level: Level
    value: str
    limit: str = ""
    text: str = ""
    number: float | None = None
    scope: Scope = Scope.NODE


@dataclass(frozen=True, slots=True)
class QuotaCount:
    """A cgroup with a CPU quota, since its creation: periods in which it ran, and those in which it was throttled."""

    cgroup: str
    periods: int
    throttled: int


@dataclass(frozen=True, slots=True)
class Restarted:
    """A container or unit whose processes were all started during the observation."""

    name: str
    comm: str
    age_s: float


@dataclass(frozen=True, slots=True)
class Vitals:
    """Readings from /proc and /sys at one moment. None if a value could not be read; `unseen` says why, by field name.
    Pressure is the share (0 to 1) over the last one and five minutes, by resource; `load` is the five-minute load
    average per core, `niced` the share of the current busy time that niced work takes."""

    uptime_s: float
    memory_bytes: int | None = None
    dentries_negative: int | None = None
    mounts: int | None = None
    conntrack: int | None = None
    conntrack_max: int | None = None
    steal: float | None = None
    oom_kills: int | None = None
    tx_timeouts: dict[str, int] | None = None
    pressure: dict[str, tuple[float, float]] = field(default_factory=dict)
    quotas: list[QuotaCount] | None = None
    failed_units: list[str] | None = None
    load: float | None = None
    niced: float | None = None
    unseen: dict[str, str] = field(default_factory=dict)
