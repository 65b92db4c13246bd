"""An inventory in the terminal: a few lines per section, then what could not be read."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import tzinfo

from rich.console import Console

from exhume.fleet.attributes import ACTIVE, TRIGGERED, exit_value, state_of
from exhume.model.audit import Service
from exhume.model.clock import NANOS
from exhume.model.inventory import Inventory, Missing, Nic
from exhume.model.text import count, duration, listing, size
from exhume.model.times import format_moment
from exhume.present.terminal.console import print_values

# Normal states, which are not mentioned.
_QUIET = (ACTIVE, TRIGGERED, "running", "inactive", "inactive/disabled", "inactive/masked", "inactive/condition")
_SHOWN = 10


def print_inventory(terminal: Console, inventory: Inventory, zone: tzinfo | None) -> None:
    print_values(terminal, inventory_lines(inventory, zone))


def inventory_lines(inventory: Inventory, zone: tzinfo | None) -> Iterator[tuple[str, str]]:
    """Labels and their values."""
    yield "node", f"{inventory.node}, {format_moment(inventory.taken_at, zone, digits=0)}"
    yield from _system(inventory)
    if inventory.nics is not None:
        yield "network", "; ".join(map(_nic, inventory.nics)) or "no interface with hardware"
    if inventory.cgroups is not None:
        driver = f", kubelet's driver {inventory.cgroups.driver}" if inventory.cgroups.driver else ""
        yield "cgroups", f"{inventory.cgroups.version}, {listing(list(inventory.cgroups.slices), 6)}{driver}"
    for name, number in _counts(inventory).items():
        yield name, number
    yield from _boot(inventory, zone)
    for name, services in (("units", inventory.units), ("containers", inventory.containers)):
        if services is not None:
            yield from _services(name, services, inventory.taken_at)
    if inventory.labels is not None:
        yield "labels", ", ".join(f"{name}={value}" for name, value in inventory.labels.items())
    for missing in inventory.missing:
        yield "missing", missing_line(missing)


def missing_line(missing: Missing) -> str:
    return f"{missing.section}: {missing.reason}" + (f" ({missing.detail})" if missing.detail else "")


def _system(inventory: Inventory) -> Iterator[tuple[str, str]]:
    system, image, cloud, kernel, hardware = (
        inventory.os,
        inventory.image,
        inventory.cloud,
        inventory.kernel,
        inventory.hardware,
    )
    if system is not None:
        yield "system", system.name or f"{system.id} {system.version}"
    if image is not None:
        known = f"{image.id} {image.version}".strip() or listing(
            [f"{key}={value}" for key, value in image.facts.items()]
        )
        yield "image", known + (f", by {image.source}" if image.source else "")
    if cloud is not None:
        yield "cloud", ", ".join(filter(None, (cloud.provider, cloud.zone or cloud.region, cloud.instance_type)))
    if kernel is not None:
        yield "kernel", f"{kernel.release} {kernel.version}".strip()
        yield "cmdline", " ".join(kernel.cmdline)
    if hardware is not None:
        cores = count(hardware.cores, "core") if hardware.cores is not None else ""
        memory = size(hardware.memory_bytes) if hardware.memory_bytes is not None else ""
        named = " ".join(filter(None, (hardware.vendor, hardware.product)))
        yield "machine", ", ".join(filter(None, (named, hardware.cpu, cores, memory, hardware.clocksource)))


def _nic(nic: Nic) -> str:
    driver = " ".join(filter(None, (nic.driver, nic.driver_version)))
    firmware = f", firmware {nic.firmware}" if nic.firmware else ""
    cores = len(set(nic.queues.values()))
    queues = f", {count(len(nic.queues), 'queue')} on {count(cores, 'set')} of cores" if nic.queues else ""
    return f"{nic.name} ({driver or 'unknown driver'}{firmware}{queues})"


def _counts(inventory: Inventory) -> dict[str, str]:
    found = {}
    if inventory.packages is not None:
        found["packages"] = f"{len(inventory.packages.versions):,} of {inventory.packages.manager}"
    for name, values in (("modules", inventory.modules), ("sysctls", inventory.sysctls), ("mounts", inventory.mounts)):
        if values is not None:
            found[name] = f"{len(values):,}"
    if inventory.limits is not None:
        files = inventory.limits.init.get("open files", "unknown")
        configured = count(len(inventory.limits.configured), "line")
        found["limits"] = f"open files {files}; {configured} in limits.conf"
    return found


def _boot(inventory: Inventory, zone: tzinfo | None) -> Iterator[tuple[str, str]]:
    boot = inventory.boot
    if boot is None:
        return
    since = "" if boot.booted_at is None else f" (since {format_moment(boot.booted_at, zone, digits=0)})"
    up = "" if boot.uptime_s is None else f"up {duration(int(boot.uptime_s * NANOS))}{since}"
    because = f", because of {', '.join(boot.because)}" if boot.because else ""
    cloud = f"cloud-init {boot.cloud_init}" if boot.cloud_init else ""
    errors = f" with {count(len(boot.cloud_init_errors), 'error')}" if boot.cloud_init_errors else ""
    parts = (
        up,
        boot.system and f"systemd {boot.system}",
        f"bootstrap {boot.bootstrap}{because}",
        cloud and cloud + errors,
    )
    yield "boot", ", ".join(filter(None, parts))


def _services(name: str, services: Sequence[Service], now: int) -> Iterator[tuple[str, str]]:
    states = {service.key: state_of(service, now) for service in services}
    counted = Counter(states.values())
    yield name, ", ".join(f"{number:,} {state}" for state, number in counted.most_common()) or "none"
    troubled = [service for service in services if states[service.key] not in _QUIET]
    for service in troubled[:_SHOWN]:
        why = f", because {service.wants.failed[-1]} failed" if service.wants.failed else ""
        ended = exit_value(service.last_exit)
        restarts = f", {count(service.restarts, 'restart')}" if service.restarts else ""
        last = f", last {ended}" if ended else ""
        yield "", f"{service.key}: {states[service.key]}{why}{restarts}{last}"
    if len(troubled) > _SHOWN:
        yield "", f"and {len(troubled) - _SHOWN:,} more; exhume audit explains them"
