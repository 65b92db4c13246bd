"""Inventory of a node: system, image, kernel, packages, devices, units, containers, and the outcome of its boot.

A section that could not be read is None and listed in `missing` with the reason: it is never an empty list. Environment
values, tokens and keys are not included.
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
    """A section, or a part of one (`packages`, `nics.eth0.firmware`), that could not be read completely."""

    section: str
    reason: Reason
    detail: str = ""

    @property
    def top(self) -> str:
        return self.section.partition(".")[0]


@dataclass(frozen=True, slots=True)
class OsRelease:
    """The operating system, from os-release(5)."""

    id: str = ""
    version: str = ""
    name: str = ""
    variant: str = ""
    build: str = ""
    timezone: str = ""


@dataclass(frozen=True, slots=True)
class Image:
    """The machine image that the node was created from, and the file that names it; `facts` are the image builder's
    notes, by file and key."""

    id: str = ""
    version: str = ""
    source: str = ""
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hardware:
    """The machine, from DMI, /proc/cpuinfo and sysfs."""

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
    """The running kernel; secrets are removed from `cmdline`."""

    release: str = ""
    version: str = ""
    cmdline: tuple[str, ...] = ()
    tainted: int | None = None
    transparent_hugepages: str = ""
    mitigations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Packages:
    """Installed packages with their versions, from the database of one package manager; several versions of a package
    are joined by commas."""

    manager: str
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """Resource limits of PID 1 (`soft:hard`), and the lines of limits.conf(5)."""

    init: dict[str, str] = field(default_factory=dict)
    configured: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MountPoint:
    """A mount of the node itself; mounts of containers and pods are left out."""

    point: str
    type: str
    source: str = ""
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nic:
    """A network interface backed by hardware. `queues` has, for each queue with its own interrupt, the cores that may
    serve it, in the kernel's cpulist format."""

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
    """The cgroup layout: `version` is v1, v2 or hybrid (v2 without the memory controller). `slices` are the cgroups
    directly below the root; `driver` is kubelet's cgroup driver, if it has a configuration."""

    version: str = ""
    hierarchies: tuple[CgroupMount, ...] = ()
    slices: tuple[str, ...] = ()
    driver: str = ""


class Outcome(StrEnum):
    """The outcome of a node's bootstrap."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Boot:
    """The outcome of the last boot. `bootstrap` is the result of cloud-init and of the units that others depend on,
    `because` what failed; `system` is systemd's state (running, degraded, starting), `failed_units` those that
    failed."""

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
    """The cloud environment, from what cloud-init and the firmware left on the node: the network is not queried."""

    provider: str = ""
    region: str = ""
    zone: str = ""
    instance_type: str = ""
    image: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """A node at one moment. `units` and `containers` are services as in an audit, without commands and logs; `labels`
    are the operator's and those of Kubernetes."""

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
        """The missing parts of a section."""
        return tuple(each for each in self.missing if each.top == section)


SECTIONS = tuple(each.name for each in fields(Inventory) if each.name not in ("node", "taken_at", "missing"))


def bucket(restarts: int) -> str:
    """Restarts as a coarse range, so that a restart loop does not produce a new value each time."""
    return "0" if restarts <= 0 else "1-9" if restarts < 10 else "10-99" if restarts < 100 else "100+"


_NO_LABELS = "the node has no labels; set --node-labels, or record with --kubernetes"


def assemble(
    node: str,
    taken_at: int,
    values: Mapping[str, Any],
    missing: Iterable[Missing] = (),
    labels: Mapping[str, str] | None = None,
) -> Inventory:
    """Build an inventory from the values of its sections; a section without a value is missing."""
    known = {**values, "labels": dict(labels) if labels else values.get("labels")}
    noted = list(missing)
    noted_of = {each.top for each in noted}
    unread = [name for name in SECTIONS if known.get(name) is None and name not in noted_of]
    noted += [Missing(name, Reason.ABSENT, _NO_LABELS if name == "labels" else "it was not read") for name in unread]
    return Inventory(node, taken_at, **known, missing=tuple(noted))
