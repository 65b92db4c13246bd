"""What an audit asks of a node beside its services, and the answers: files and settings that agents need, who uses what
a service offers, where unit files are from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


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
