"""Types of an audit: services, their history, owners, needs and costs, and the node facts that the rules use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from exhume.model.clock import Wall


class CheckKind(StrEnum):
    """How a need is checked. No check uses the network."""

    FILE = "file"
    LINE = "line"
    ENV = "env"
    SOCKET = "socket"
    PORT = "port"
    PROCESS = "process"
    UNIT = "unit"
    MOUNT = "mount"
    CREDENTIALS = "credentials"
    PEER = "peer"


@dataclass(frozen=True, slots=True)
class Check:
    """One way to check that a need is met.

    `paths` are files (patterns with * too): one of them exists and is not empty (file, credentials), has a line that
    matches `pattern` (line), or sets one of the variables in `names` (env). `names` are variables, programs, units or
    file system types. `on_host` marks files of the node that count for a container too.
    """

    kind: CheckKind
    paths: tuple[str, ...] = ()
    pattern: str = ""
    names: tuple[str, ...] = ()
    port: int | None = None
    on_host: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a check held (None: could not be determined), and how that was determined."""

    held: bool | None
    seen: str


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file that defines or enables a service: its inode's last change (wall nanoseconds), and the package that owns
    it."""

    path: str
    changed: int | None = None
    package: str | None = None


@dataclass(frozen=True, slots=True)
class FirstBoot:
    """When this machine first booted, and how that is known: anything older came with its image."""

    at: int
    by: str


@dataclass(frozen=True, slots=True)
class Use:
    """Signs that a service is in use: what it listens on, who is connected to that now, whose processes or mounts it
    holds, and what its cgroup has used since it was created."""

    listens: tuple[str, ...] = ()
    connections: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    cpu_seconds: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts about a node. `answers`, `links` (the links that enable a unit) and `uses` are by the key of a service;
    `packages` names the package database that was read, empty for none."""

    node: str
    taken_at: int
    first_boot: FirstBoot | None = None
    files: Mapping[str, FileFact] = field(default_factory=dict)
    links: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    answers: Mapping[tuple[str, Check], Answer] = field(default_factory=dict)
    uses: Mapping[str, Use] = field(default_factory=dict)
    packages: str = ""
    blind_spots: tuple[str, ...] = ()


AUDIT_VERSION = 1
# The drop-in by which a fix of exhume holds a unit back, in the unit's drop-in directory.
OWN_DROP_IN = "90-exhume.conf"


class Manager(StrEnum):
    """The service manager that starts and restarts a service."""

    SYSTEMD = "systemd"
    DOCKER = "docker"
    PODMAN = "podman"
    CRI = "cri"


class Trait(StrEnum):
    """A notable property of a service. A service may have several; one without any is doing well."""

    CRASH_LOOP = "crash-loop"
    FLAPPING = "flapping"
    FAILED = "failed"
    DEPENDENCY_FAILED = "dependency-failed"
    UNHEALTHY = "unhealthy"
    CONDITION_FAILED = "condition-failed"
    DEFAULT_ON = "default-on"

    @property
    def troubled(self) -> bool:
        """Whether the trait is a problem; merely being enabled by the image's default is not."""
        return self not in (Trait.CONDITION_FAILED, Trait.DEFAULT_ON)


@dataclass(frozen=True, slots=True)
class Condition:
    """A ConditionX or AssertX of a unit: what it checks, and whether it held when the unit was last to be started
    (None: never tried)."""

    name: str
    parameter: str
    held: bool | None
    trigger: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Wants:
    """A unit's relations to others; being bound to a unit (BindsTo, Requisite) counts as requiring it. `failed` are the
    units that it required and that failed, which is why it was not started: the root cause comes last. `triggers` are
    the units that a socket, timer or path starts; `restarted_by` are those that restart it whenever it is down
    (Upholds=) or whenever they end (OnFailure=, OnSuccess=)."""

    wanted_by: tuple[str, ...] = ()
    required_by: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    triggered_by: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    restarted_by: tuple[str, ...] = ()


class Origin(StrEnum):
    """Where the decision to run a service comes from."""

    IMAGE = "image"
    CONFIGURED = "configured"
    RUNTIME = "runtime"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Whether a service is from the base image or was configured later, and how that is known."""

    origin: Origin
    why: str
    package: str | None = None
    enabled: str | None = None
    preset: str | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """One exit of a main process: when (wall nanoseconds), and with which code or signal. `command` is empty, or the
    unit's setting (ExecStartPre …) whose command exited like that."""

    at: Wall | None
    code: int | None = None
    signal: int | None = None
    command: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """A service's starts and exits over the last `hours`, according to `source` (journal, runtime or recording):
    starts, how many of them ended badly, and the last exits, newest first. `success_rate` is None if nothing was
    started. `longest_s` is the longest completed run (a lower bound: an older run may be longer), `failing_s` how long
    ago it first ended badly; None if unknown. `last_result` is the manager's term for the last bad exit (watchdog,
    oom-kill …), `restarted_at` when it was recently restarted (wall nanoseconds, oldest first)."""

    source: str
    hours: float
    starts: int = 0
    failures: int = 0
    restarts_per_hour: float | None = None
    exits: tuple[Exit, ...] = ()
    age_pattern: str = ""
    longest_s: float | None = None
    failing_s: float | None = None
    last_result: str = ""
    restarted_at: tuple[int, ...] = ()

    @property
    def success_rate(self) -> float | None:
        return None if not self.starts else max(0.0, 1.0 - self.failures / self.starts)


@dataclass(frozen=True, slots=True)
class Costs:
    """Resource usage of a service. `source` is recording (over `seconds` of it) or live; None means unknown."""

    source: str
    seconds: float
    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    cgroups_made: int | None = None
    cgroups_leaked: int | None = None
    forks: int | None = None


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a known agent requires to be useful and that this node lacks, and how that was determined."""

    what: str
    seen: str


@dataclass(frozen=True, slots=True)
class Agent:
    """The platform agent in the catalogue that this service is, its purpose, and what it lacks on this node."""

    id: str
    title: str
    purpose: str
    needs: tuple[str, ...] = ()
    lacks: tuple[Lack, ...] = ()
    protected: bool = False


class Needed(StrEnum):
    """Whether anything on this node needs it."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Need:
    """Whether a service is needed, the rule that decided it, and the facts that the rule used."""

    needed: Needed
    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class Service:
    """A unit or container. `name` is its common name, `id` its manager's; `state` is the manager's term (active,
    failed, restarting, exited …) and `detail` the finer one. `owner` says what created a container (a pod's manifest, a
    compose project), `fragment` is the file that defines it, if any. `start_limit` says how many starts were too many
    if its manager gave up on it; `absent` are missing files that a failed unit refers to, with the setting that names
    each. `starts` are all commands that start a unit, `directory` their working directory; `published` are the node's
    TCP ports that are forwarded to a container; `workload` is the controller of its pod as kubectl names it
    (`deployment/web`); `earlier` are its names in previous pods of its job."""

    manager: Manager
    id: str
    name: str
    description: str = ""
    state: str = ""
    detail: str = ""
    result: str = ""
    pid: int | None = None
    started: Wall | None = None
    age_s: float | None = None
    restarts: int | None = None
    restart_policy: str = ""
    last_exit: Exit | None = None
    cgroup: str | None = None
    image: str | None = None
    pod: str | None = None
    owner: str = ""
    created: Wall | None = None
    fragment: str | None = None
    drop_ins: tuple[str, ...] = ()
    # systemd's states of a unit file: enabled, disabled, static, masked …; and what its preset would set.
    enabled: str | None = None
    preset: str | None = None
    command: str | None = None
    wants: Wants = Wants()
    conditions: tuple[Condition, ...] = ()
    log: tuple[str, ...] = ()
    history: History | None = None
    costs: Costs | None = None
    start_limit: str = ""
    absent: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    directory: str | None = None
    published: tuple[int, ...] = ()
    workload: str | None = None
    earlier: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name used in commands: a unit's name, or a container's name prefixed with its manager."""
        return self.id if self.manager is Manager.SYSTEMD else f"{self.manager.value}:{self.name}"

    @property
    def held_back(self) -> str | None:
        """The drop-in by which a fix of exhume holds the unit back, if there is one."""
        return next((path for path in self.drop_ins if path.endswith(f"/{OWN_DROP_IN}")), None)


@dataclass(frozen=True, slots=True)
class Judged:
    """A service with the verdict of the rules. `explained` says why it is in that state, in sentences."""

    service: Service
    traits: tuple[Trait, ...]
    explained: tuple[str, ...]
    provenance: Provenance
    need: Need
    agent: Agent | None = None

    @property
    def troubled(self) -> bool:
        return any(trait.troubled for trait in self.traits)

    @property
    def surely_useless(self) -> bool:
        """Whether more speaks against the service than that it never worked: it is a known agent and lacks something on
        this node. A service that merely never worked may be about to be repaired."""
        return self.need.needed is Needed.NO and self.agent is not None and bool(self.agent.lacks)


@dataclass(frozen=True, slots=True)
class ServiceList:
    """The services of one manager, and what could not be read about them, in sentences."""

    services: list[Service] = field(default_factory=list)
    blind_spots: list[str] = field(default_factory=list)


def merge_lists(lists: Iterable[ServiceList]) -> ServiceList:
    """Merge several lists into one."""
    whole = ServiceList()
    for each in lists:
        whole.services.extend(each.services)
        whole.blind_spots.extend(each.blind_spots)
    return whole


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit; `services` has the worst first, `healthy` counts those with nothing to report."""

    node: str
    taken_at: Wall
    services: tuple[Judged, ...] = ()
    healthy: int = 0
    managers: tuple[Manager, ...] = ()
    blind_spots: tuple[str, ...] = field(default=())
