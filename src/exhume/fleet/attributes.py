"""Inventories as flat attributes, by which nodes are grouped and compared: lower-case keys with dots, short values.

Whatever is specific to one node is dropped or replaced: its name, addresses, ids, times, user numbers and restart
counts. Nodes that were set up identically have identical attributes.
"""

import re
from collections.abc import Iterator

from exhume.diagnose.audit.traits import traits_of
from exhume.model.audit import Condition, Exit, Service, Trait
from exhume.model.inventory import SECTIONS, Image, Inventory, Kernel, Limits, MountPoint, Nic, Outcome, bucket

# Limit on keys and values in bytes, enforced by the lake.
MOST_BYTES = 200
# Sections whose attribute keys have a different prefix.
_PREFIXES = {
    "sysctls": "sysctl",
    "limits": "limit",
    "mounts": "mount",
    "modules": "module",
    "packages": "package",
    "units": "unit",
    "containers": "container",
    "nics": "nic",
    "cgroups": "cgroup",
    "labels": "label",
}
_SECTION_OF = {
    **{prefix: section for section, prefix in _PREFIXES.items()},
    **dict.fromkeys(("instance_type", "zone", "region", "cloud"), "cloud"),
    **dict.fromkeys(("bootstrap", "cloud_init"), "boot"),
    **{"cmdline": "kernel", "mitigation": "kernel", "pool": "labels"},
}
# States of units.
CRASH_LOOP, FAILED, NEVER_STARTED = "failed/crash-loop", "failed", "inactive/never-started"
FLAPPING, UNHEALTHY, CONDITION, TRIGGERED, ACTIVE = "flapping", "unhealthy", "inactive/condition", "triggered", "active"
_BY_TRAIT = {
    Trait.CRASH_LOOP: CRASH_LOOP,
    Trait.FAILED: FAILED,
    Trait.DEPENDENCY_FAILED: NEVER_STARTED,
    Trait.FLAPPING: FLAPPING,
    Trait.UNHEALTHY: UNHEALTHY,
    Trait.CONDITION_FAILED: CONDITION,
}
_UP = frozenset(("active", "activating", "reloading", "refreshing", "deactivating", "running", "restarting"))
_TRANSIENT = "/run/systemd/transient/"
# Mount options that differ between machines or depend on their size.
_OPTION_NOISE = re.compile(
    r"^(?:addr|clientaddr|mountaddr|port|mountport|lowerdir|upperdir|workdir|index|fd|pgrp|pipe_ino|inode64|size|nr_inodes"
    r"|user_id|group_id|uid|gid|subvolid|seclabel|stripe|sunit|swidth|logbufs|logbsize)(?:=|$)"
)
_SIZED = ("/dev/shm", "/tmp")
# Kernel parameters that identify disks or kernel images, by which the kernel finds its own files.
_CMDLINE_NOISE = frozenset(("root", "boot_image", "initrd", "resume", "rd.luks.uuid", "rd.lvm.lv", "rd.md.uuid", "vg"))
# Labels that identify the machine itself.
_LABEL_NOISE = re.compile(
    r"hostname|provider-?id|instance-?id|machine-?id|node-?name|\buid\b|external-?ip|internal-?ip"
)
_LABEL_KEYS = {"zone": "zone", "region": "region", "instance-type": "instance_type", "pool": "pool", "image": "image"}
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NOISE = re.compile(
    rf"(?P<uuid>\b{_UUID}\b)"
    r"|(?P<time>\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
    r"|(?P<mac>\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b)"
    r"|(?P<address>\b(?:\d{1,3}\.){3}\d{1,3}\b|\b(?:[0-9a-f]{1,4}:){4,7}[0-9a-f]{1,4}\b|\bip-\d+(?:-\d+){3}\b)"
    r"|(?P<id>(?<![0-9a-z:])(?=[a-f]*[0-9])[0-9a-f]{12,}(?![0-9a-z])|\bi-[0-9a-f]{8,17}\b)",
    re.IGNORECASE,
)
# A user or terminal number in the name of a unit instance.
_INSTANCE = re.compile(r"@\d+(?=\.|$)")
_GIB = 1 << 30


def section_of_key(key: str) -> str:
    """The section of the inventory that an attribute comes from."""
    first = key.partition(".")[0]
    return _SECTION_OF.get(first, first)


def attributes_of(inventory: Inventory) -> dict[str, str]:
    """The attributes of a node; a section that could not be read becomes `missing.SECTION` with the reason."""
    found: dict[str, str] = {}
    # The first value of a key wins: what an operator set takes precedence over a file.
    for key, value in _attributes(inventory):
        if value:
            found.setdefault(bounded(key.lower()), bounded(value))
    return dict(sorted(found.items()))


def bounded(text: str) -> str:
    """A text cut to the lake's limit, at a character boundary."""
    return text if len(text) <= MOST_BYTES // 4 else text.encode()[:MOST_BYTES].decode("utf-8", "ignore")


def _attributes(inventory: Inventory) -> Iterator[tuple[str, str]]:
    normal = Normalizer(inventory.node)
    for section in SECTIONS:
        if getattr(inventory, section) is None:
            yield f"missing.{section}", next((str(each.reason) for each in inventory.missing_of(section)), "absent")
    for key, value in (inventory.labels or {}).items():
        if not _LABEL_NOISE.search(key.lower()):
            yield _LABEL_KEYS.get(key.lower(), f"label.{key}"), normal(value)
    yield from _system(inventory, normal)
    yield from _packages_and_modules(inventory)
    if inventory.nics is not None:
        yield from _nics(inventory.nics)
    for mount in inventory.mounts or ():
        yield f"mount.{normal(mount.point)}", _mount(mount, normal)
    for name, value in (inventory.sysctls or {}).items():
        yield f"sysctl.{name}", value
    if inventory.limits is not None:
        yield from _limits(inventory.limits)
    yield from _units(inventory, normal)
    yield from _containers(inventory, normal)


class Normalizer:
    """Replaces the parts of a text that are specific to one node."""

    def __init__(self, node: str) -> None:
        # A name without digits may be a program's name as well.
        names = {name for name in (node, node.partition(".")[0]) if len(name) > 3 and re.search(r"\d", name)}
        either = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        self._node = re.compile(rf"(?<![0-9A-Za-z])(?:{either})(?![0-9A-Za-z])") if names else None

    def __call__(self, text: str) -> str:
        if self._node is not None:
            text = self._node.sub("<node>", text)
        return _NOISE.sub(lambda match: f"<{match.lastgroup}>", text)


def _system(inventory: Inventory, normal: Normalizer) -> Iterator[tuple[str, str]]:
    system, cloud, hardware = inventory.os, inventory.cloud, inventory.hardware
    if system is not None:
        yield "os", " ".join(filter(None, (system.id, system.version)))
        yield "os.build", system.build
        yield "os.variant", system.variant
        yield "os.timezone", system.timezone
    if inventory.image is not None:
        yield from _image(inventory.image)
    if cloud is not None:
        yield "cloud", cloud.provider
        yield "region", cloud.region
        yield "zone", cloud.zone
        yield "instance_type", cloud.instance_type
        yield "image", cloud.image
    if inventory.kernel is not None:
        yield from _kernel(inventory.kernel, normal)
    if hardware is not None:
        texts = {"vendor", "product", "bios", "arch", "cpu", "microcode", "clocksource"}
        yield from ((f"hardware.{name}", getattr(hardware, name)) for name in sorted(texts))
        numbers = ("cores", "threads_per_core", "numa_nodes")
        known = {name: number for name in numbers if (number := getattr(hardware, name)) is not None}
        yield from ((f"hardware.{name}", str(number)) for name, number in known.items())
        if hardware.memory_bytes is not None:
            # Rounded, because the amount that the kernel reserves for itself varies.
            yield "hardware.memory", f"{round(hardware.memory_bytes / _GIB)} GiB"
    if inventory.cgroups is not None:
        controllers = sorted({each for mount in inventory.cgroups.hierarchies for each in mount.controllers})
        yield "cgroup.version", inventory.cgroups.version
        yield "cgroup.controllers", " ".join(controllers)
        yield "cgroup.driver", inventory.cgroups.driver
    boot = inventory.boot
    if boot is not None:
        yield "bootstrap", "" if boot.bootstrap is Outcome.UNKNOWN else str(boot.bootstrap)
        yield "bootstrap.because", " ".join(map(unit_key, boot.because))
        yield "cloud_init", "errors" if boot.cloud_init_errors else boot.cloud_init


def _image(image: Image) -> Iterator[tuple[str, str]]:
    yield "image", " ".join(filter(None, (image.id, image.version)))
    for name, value in image.facts.items():
        yield f"image.{name.rpartition(':')[2]}", value


def _kernel(kernel: Kernel, normal: Normalizer) -> Iterator[tuple[str, str]]:
    yield "kernel", kernel.release
    yield "kernel.build", kernel.version
    yield "kernel.transparent_hugepages", kernel.transparent_hugepages
    yield "kernel.tainted", "" if kernel.tainted is None else str(kernel.tainted)
    for name, value in kernel.mitigations.items():
        yield f"mitigation.{name}", value
    values: dict[str, list[str]] = {}
    for parameter in kernel.cmdline:
        name, assigned, value = parameter.partition("=")
        if name.lower() not in _CMDLINE_NOISE:
            values.setdefault(name, []).append(normal(value) if assigned else "set")
    # If a parameter is repeated, some use only the last value and others use all of them (console=).
    yield from ((f"cmdline.{name}", " ".join(each)) for name, each in values.items())


def _packages_and_modules(inventory: Inventory) -> Iterator[tuple[str, str]]:
    if inventory.packages is not None:
        yield from ((f"package.{name}", version) for name, version in inventory.packages.versions.items())
    for name, version in (inventory.modules or {}).items():
        yield f"module.{name}", version or "loaded"


def _nics(nics: tuple[Nic, ...]) -> Iterator[tuple[str, str]]:
    """Attributes of all interfaces together: interface names depend on the slot of the card."""
    shown = [nic for nic in nics if nic.driver]
    for key, values in (
        ("nic.driver", {nic.driver for nic in shown}),
        ("nic.driver_version", {nic.driver_version for nic in shown}),
        ("nic.firmware", {nic.firmware for nic in shown}),
        ("nic.mtu", {str(nic.mtu) for nic in shown if nic.mtu is not None}),
        ("nic.speed", {str(nic.speed_mbit) for nic in shown if nic.speed_mbit is not None}),
    ):
        yield key, " ".join(sorted(filter(None, values)))
    yield "nic.count", str(len(shown))
    with_queues = [nic for nic in shown if nic.queues]
    if with_queues:
        queues = sum(len(nic.queues) for nic in with_queues)
        cores = len({cores for nic in with_queues for cores in nic.queues.values()})
        yield "nic.queues", str(queues)
        # How many cores share the work, from all queues on one core to each on its own.
        yield "nic.queue_cores", str(cores)


def _mount(mount: MountPoint, normal: Normalizer) -> str:
    sized = mount.point in _SIZED
    options = [
        normal(each) for each in mount.options if (sized and each.startswith("size=")) or not _OPTION_NOISE.match(each)
    ]
    return " ".join((mount.type, ",".join(sorted(set(options)))))


def _limits(limits: Limits) -> Iterator[tuple[str, str]]:
    for name, value in limits.init.items():
        yield f"limit.{name.replace(' ', '_')}", value
    for line in limits.configured:
        domain, *rest = line.split(" ")
        yield f"limit.configured.{'.'.join((domain, *rest[:-1]))}", rest[-1] if rest else "set"


def unit_key(name: str) -> str:
    """The name of a unit without node-specific parts: disk ids, user numbers. `\\x2d` is systemd's escaped dash."""
    plain = name.replace("\\x2d", "-")
    return _INSTANCE.sub("@*", _NOISE.sub(lambda match: f"<{match.lastgroup}>", plain)) if _has_noise(plain) else name


def _has_noise(name: str) -> bool:
    return bool(_NOISE.search(name) or _INSTANCE.search(name))


def _units(inventory: Inventory, normal: Normalizer) -> Iterator[tuple[str, str]]:
    for unit in inventory.units or ():
        if (unit.fragment or "").startswith(_TRANSIENT):
            continue
        key = f"unit.{normal(unit_key(unit.id))}"
        state = state_of(unit, inventory.taken_at)
        yield key, state
        if state in (CRASH_LOOP, FAILED, FLAPPING):
            yield f"{key}.exit", exit_value(unit.last_exit)
            yield f"{key}.restarts", "" if unit.restarts is None else bucket(unit.restarts)
        if state == NEVER_STARTED:
            # The root cause comes last.
            yield f"{key}.because", " ".join(unit_key(each) for each in unit.wants.failed)
        if state == CONDITION:
            broken = [_condition(each) for each in unit.conditions if each.held is False]
            yield f"{key}.because", normal(" ".join(broken))
        if state == FAILED and unit.absent:
            yield f"{key}.absent", normal(" ".join(unit.absent))


def _containers(inventory: Inventory, normal: Normalizer) -> Iterator[tuple[str, str]]:
    for container in inventory.containers or ():
        name = container_name(container)
        if not name:
            continue
        key = normal(name)
        yield f"container.{key}", state_of(container, inventory.taken_at)
        yield f"container.image.{key}", container.image or ""


def container_name(container: Service) -> str:
    """A container's name that is the same on every node: namespace, workload and container if in a pod; jobs are left
    out."""
    if container.pod is None:
        return container.name
    namespace, _, _ = container.pod.partition("/")
    kind, _, owner = (container.workload or "").partition("/")
    if kind in ("job", "cronjob", "pod", ""):
        return ""
    return f"{namespace}/{owner}/{container.name.rpartition('/')[2]}"


def state_of(service: Service, now: int) -> str:
    """The state of a unit or container in a word: what is wrong with it, else whether it is up."""
    traits = traits_of(service, now)
    if traits:
        return _BY_TRAIT.get(traits[0], str(traits[0]))
    if any(name.endswith((".timer", ".path")) for name in service.wants.triggered_by):
        return TRIGGERED
    if service.state in _UP:
        return ACTIVE if service.pod is None and not service.image else "running"
    detail = service.enabled if service.enabled in ("disabled", "masked") else ""
    return "/".join(filter(None, (service.state or "unknown", detail)))


def exit_value(last: Exit | None) -> str:
    """`code 22` or `signal 9`; if another command than the unit's main program ended that way, with its name."""
    if last is None or (last.code is None and last.signal is None):
        return ""
    ended = f"signal {last.signal}" if last.signal else f"code {last.code}"
    return f"{ended} {last.command}".strip()


def _condition(condition: Condition) -> str:
    mark = ("|" if condition.trigger else "") + ("!" if condition.negated else "")
    return f"{condition.name}={mark}{condition.parameter}" if condition.parameter else condition.name
