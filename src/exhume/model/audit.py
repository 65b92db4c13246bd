"""Types of an audit: services, their history, owners, needs and costs, and the facts about the node that rules use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from exhume.model.clock import Wall


class CheckKind(StrEnum):
    """How a need can be looked for. None of them asks the network."""

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
    """One way to see that a need is met.

    `paths` are files (patterns with * too): one that is there and not empty (file, credentials), that has a line which
    matches `pattern` (line), or that sets one of the variables in `names` (env). `names` are variables, programs, units
    or types of file systems. `on_host` is for files of the node that count for a container too.
    """

    kind: CheckKind
    paths: tuple[str, ...] = ()
    pattern: str = ""
    names: tuple[str, ...] = ()
    port: int | None = None
    on_host: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a check held (None: could not be seen), and how that was seen."""

    held: bool | None
    seen: str


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file that defines or enables a service: when its inode was last changed (wall nanoseconds), and the package
    that owns it."""

    path: str
    changed: int | None = None
    package: str | None = None


@dataclass(frozen=True, slots=True)
class FirstBoot:
    """When this machine first ran, and how that is known: what is older came with its image."""

    at: int
    by: str


@dataclass(frozen=True, slots=True)
class Use:
    """What is seen of a service from outside: what it listens on, who is connected to that now, whose processes or
    mounts it holds, and what its cgroup used since it was made."""

    listens: tuple[str, ...] = ()
    connections: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    cpu_seconds: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The answers. `answers`, `links` (the links that enable a unit) and `uses` are by the key of a service; `packages`
    says which database of packages was read, empty for none."""

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
# The file by which a fix of exhume's holds a unit back, in the directory of that unit's drop-ins.
OWN_DROP_IN = "90-exhume.conf"


class Manager(StrEnum):
    """Who starts it, and starts it again."""

    SYSTEMD = "systemd"
    DOCKER = "docker"
    PODMAN = "podman"
    CRI = "cri"


class Trait(StrEnum):
    """What stands out about a service. A service may have several; one without any fares well."""

    CRASH_LOOP = "crash-loop"
    FLAPPING = "flapping"
    FAILED = "failed"
    DEPENDENCY_FAILED = "dependency-failed"
    UNHEALTHY = "unhealthy"
    CONDITION_FAILED = "condition-failed"
    DEFAULT_ON = "default-on"

    @property
    def troubled(self) -> bool:
        """Whether something is wrong with it; being started by the image's default alone is not."""
        return self not in (Trait.CONDITION_FAILED, Trait.DEFAULT_ON)


@dataclass(frozen=True, slots=True)
class Condition:
    """A ConditionX or AssertX of a unit: what it asks for, and whether that held when the unit was last to be started
    (None: never tried)."""

    name: str
    parameter: str
    held: bool | None
    trigger: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Wants:
    """How a unit hangs together with others; being bound to one (BindsTo, Requisite) counts as requiring it. `failed`
    are those that it required and that failed, the reason why it was not started: the first cause comes last.
    `triggers` are what a socket, timer or path starts; `restarted_by` are those that have it started whenever it is
    down (Upholds=), or whenever they end (OnFailure=, OnSuccess=)."""

    wanted_by: tuple[str, ...] = ()
    required_by: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    triggered_by: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    restarted_by: tuple[str, ...] = ()


class Origin(StrEnum):
    """Where the order to run it comes from."""

    IMAGE = "image"
    CONFIGURED = "configured"
    RUNTIME = "runtime"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Whether it is from the base image or was configured since, and how that is known."""

    origin: Origin
    why: str
    package: str | None = None
    enabled: str | None = None
    preset: str | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """One end of its main process: when (wall nanoseconds), with which code or signal. `command` is empty, or the
    setting of the unit (ExecStartPre …) whose command it was that ended so."""

    at: Wall | None
    code: int | None = None
    signal: int | None = None
    command: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """How it fared over `hours` of looking back, by `source` (journal, runtime or recording): starts, how many of them
    ended badly, and the last ends, newest first. `success_rate` is None where nothing was started. `longest_s` is the
    longest run that ended (at least: one may be older than what is looked at), `failing_s` how long ago it first ended
    badly; None where that is not known. `last_result` is the manager's word for the last bad end (watchdog, oom-kill
    …), `restarted_at` when it was started again of late (wall nanoseconds, oldest first)."""

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
    """What it takes. `source` is recording (over `seconds` of it) or live; None is what is not known."""

    source: str
    seconds: float
    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    cgroups_made: int | None = None
    cgroups_leaked: int | None = None
    forks: int | None = None


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that a known agent needs to be of use, and that this node lacks: what, and how that was seen."""

    what: str
    seen: str


@dataclass(frozen=True, slots=True)
class Agent:
    """An entry of the catalogue of platform agents that this service is, what it is for, and what it lacks here."""

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
    """The answer, the rule that gave it, and the facts that the rule went by."""

    needed: Needed
    rule: str
    why: str


@dataclass(frozen=True, slots=True)
class Service:
    """A unit or container. `name` is what people call it, `id` what its manager does; `state` is the manager's word
    (active, failed, restarting, exited …) and `detail` the finer one. `owner` says who made a container (a pod's
    manifest, a compose project), `fragment` the file that defines it, where there is one. `start_limit` says, of one
    that its manager gave up on, how many starts were too many; `absent` are files that a unit that failed names and
    that are not there, with the setting that names each. `starts` are all the commands that start a unit, `directory`
    the one that they run in; `published` are the node's TCP ports that lead to a container;
    `workload` is what keeps its pod alive, as kubectl names it (`deployment/web`); `earlier` are the names that it had
    in the pods which its job made before."""

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
    # systemd's states of a unit file: enabled, disabled, static, masked …; and what its preset would make of it.
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
        """How it is named in commands: a unit by its name, a container with its manager before it."""
        return self.id if self.manager is Manager.SYSTEMD else f"{self.manager.value}:{self.name}"

    @property
    def held_back(self) -> str | None:
        """The drop-in by which a fix of exhume's keeps it from being started, where there is one."""
        return next((path for path in self.drop_ins if path.endswith(f"/{OWN_DROP_IN}")), None)


@dataclass(frozen=True, slots=True)
class Judged:
    """A service with what the rules say of it. `explained` is why it is in that state, in sentences."""

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
        """Whether more speaks against the need for it than that it never worked: it is known what it is, and that it
        lacks something here. What never worked may be about to be mended."""
        return self.need.needed is Needed.NO and self.agent is not None and bool(self.agent.lacks)


@dataclass(frozen=True, slots=True)
class ServiceList:
    """The services of one manager, and what could not be read of them, in sentences."""

    services: list[Service] = field(default_factory=list)
    blind_spots: list[str] = field(default_factory=list)


def merge_lists(lists: Iterable[ServiceList]) -> ServiceList:
    """Several lists as one."""
    whole = ServiceList()
    for each in lists:
        whole.services.extend(each.services)
        whole.blind_spots.extend(each.blind_spots)
    return whole


@dataclass(frozen=True, slots=True)
class Audit:
    """The whole answer; `services` has the worst first, `healthy` counts those that nothing is to be said of."""

    node: str
    taken_at: Wall
    services: tuple[Judged, ...] = ()
    healthy: int = 0
    managers: tuple[Manager, ...] = ()
    blind_spots: tuple[str, ...] = field(default=())
