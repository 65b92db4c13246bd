"""What a node is made of: system, image, kernel, packages, devices, units, containers and how its boot went.

A section that could not be read is None and named in `missing`, with the reason: it is never an empty list. Values of
environments, tokens and keys are not part of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from exhume.model.audit import Service
from exhume.model.clock import Wall

INVENTORY_VERSION = 1


class Reason(StrEnum):
    """Why something is missing."""

    PERMISSION = "permission"
    ABSENT = "absent"
    FAILED = "failed"
    TRUNCATED = "truncated"


@dataclass(frozen=True, slots=True)
class Missing:
    """A section, or a part of one (`packages`, `nics.eth0.firmware`), that could not be read, or not all of it."""

    section: str
    reason: Reason
    detail: str = ""

    @property
    def top(self) -> str:
        return self.section.partition(".")[0]


@dataclass(frozen=True, slots=True)
class OsRelease:
    """The system, by os-release(5)."""

    id: str = ""
    version: str = ""
    name: str = ""
    variant: str = ""
    build: str = ""
    timezone: str = ""


@dataclass(frozen=True, slots=True)
class Image:
    """The machine image that the node was made of, and the file that names it; `facts` are what its maker wrote down,
    by file and key."""

    id: str = ""
    version: str = ""
    source: str = ""
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hardware:
    """The machine, by DMI, /proc/cpuinfo and sysfs."""

    vendor: str = ""
    product: str = ""
    bios: str = ""
    arch: str = ""
    cpu: str = ""
    microcode: str = ""
    cores: int | None = None
    threads_per_core: int | None = None
    numa_nodes: int | None = None
    memory_bytes: int | None = None
    clocksource: str = ""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The running kernel; `cmdline` is without secrets."""

    release: str = ""
    version: str = ""
    cmdline: tuple[str, ...] = ()
    tainted: int | None = None
    transparent_hugepages: str = ""
    mitigations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Packages:
    """Installed packages with their versions, by the database of one package manager; several versions of one are
    joined by commas."""

    manager: str
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of the first process (`soft:hard`), and the lines of limits.conf(5)."""

    init: dict[str, str] = field(default_factory=dict)
    configured: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MountPoint:
    """A mount of the node itself; those of containers and pods are left out."""

    point: str
    type: str
    source: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nic:
    """A network interface with hardware behind it. `queues` has, for each queue with an interrupt of its own, the cores
    that it may be served by, as the kernel lists them."""

    name: str
    driver: str = ""
    driver_version: str = ""
    firmware: str = ""
    mtu: int | None = None
    speed_mbit: int | None = None
    rx_queues: int | None = None
    tx_queues: int | None = None
    queues: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CgroupMount:
    """A mounted hierarchy."""

    version: int
    path: str
    controllers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The layout of cgroups: `version` is v1, v2 or hybrid (v2 without the memory controller). `slices` are the groups
    right below the root; `driver` is kubelet's, where it has a configuration."""

    version: str = ""
    hierarchies: tuple[CgroupMount, ...] = ()
    slices: tuple[str, ...] = ()
    driver: str = ""


class Outcome(StrEnum):
    """How the bootstrap of a node went."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Boot:
    """How the last boot went. `bootstrap` is what cloud-init and the units that others depend on came to, `because`
    what failed; `system` is systemd's word (running, degraded, starting), `failed_units` those that failed."""

    booted_at: Wall | None = None
    uptime_s: float | None = None
    first_boot: Wall | None = None
    system: str = ""
    bootstrap: Outcome = Outcome.UNKNOWN
    because: tuple[str, ...] = ()
    failed_units: tuple[str, ...] = ()
    cloud_init: str = ""
    cloud_init_errors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cloud:
    """Where the node runs, by what cloud-init and the firmware left on it: the network is not asked."""

    provider: str = ""
    region: str = ""
    zone: str = ""
    instance_type: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """A node at one moment. `units` and `containers` are services as an audit has them, without commands and logs;
    `labels` are the operator's and Kubernetes' own."""

    node: str
    taken_at: Wall
    os: OsRelease | None = None
    image: Image | None = None
    hardware: Hardware | None = None
    kernel: Kernel | None = None
    packages: Packages | None = None
    sysctls: dict[str, str] | None = None
    limits: Limits | None = None
    mounts: tuple[MountPoint, ...] | None = None
    modules: dict[str, str] | None = None
    nics: tuple[Nic, ...] | None = None
    cgroups: Cgroups | None = None
    units: tuple[Service, ...] | None = None
    containers: tuple[Service, ...] | None = None
    boot: Boot | None = None
    cloud: Cloud | None = None
    labels: dict[str, str] | None = None
    missing: tuple[Missing, ...] = ()

    def missing_of(self, section: str) -> tuple[Missing, ...]:
        """What is missing of a section."""
        return tuple(each for each in self.missing if each.top == section)


SECTIONS = tuple(each.name for each in fields(Inventory) if each.name not in ("node", "taken_at", "missing"))


def bucket(restarts: int) -> str:
    """How often something was started again, so that a loop is not a new value each time."""
    return "0" if restarts <= 0 else "1-9" if restarts < 10 else "10-99" if restarts < 100 else "100+"


_NO_LABELS = "the node has no labels; set --node-labels, or record with --kubernetes"


def assemble(
    node: str,
    taken_at: int,
    values: Mapping[str, Any],
    missing: Iterable[Missing] = (),
    labels: Mapping[str, str] | None = None,
) -> Inventory:
    """An inventory of the values of its sections. One that is not among them is missing."""
    known = {**values, "labels": dict(labels) if labels else values.get("labels")}
    noted = list(missing)
    noted_of = {each.top for each in noted}
    unread = [name for name in SECTIONS if known.get(name) is None and name not in noted_of]
    noted += [Missing(name, Reason.ABSENT, _NO_LABELS if name == "labels" else "it was not read") for name in unread]
    return Inventory(node, taken_at, **known, missing=tuple(noted))
