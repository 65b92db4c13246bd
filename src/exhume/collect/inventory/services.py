"""Units and containers of a node as an audit reads them, without potential secrets, and the state of its boot."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from exhume.collect.audit.facts import first_boot
from exhume.collect.containers.services import container_services
from exhume.collect.inventory.files import NodeFiles, Unreadable, clean
from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.bus import MANAGER, MANAGER_PATH, PROPERTIES, Bus, BusError, Call
from exhume.collect.systemd.units import read_services
from exhume.model.audit import OWN_DROP_IN, Condition, Exit, History, Manager, Service, Wants
from exhume.model.clock import NANOS, SystemClock
from exhume.model.inventory import Boot, Outcome, Reason
from exhume.model.redaction import redact_line

_HOURS = 24.0
MOST_UNITS, MOST_CONTAINERS = 5000, 5000
# Per service; exits of a service that crash-loops are all the same.
_MOST_EXITS, _MOST_NAMES = 5, 20
_CLOUD_INIT = ("/run/cloud-init", "/var/lib/cloud/data")
_MOST_STATUS = 1 << 20


def read_units(files: NodeFiles) -> tuple[Service, ...]:
    """Every service, and failed units of other types. Raises Unreadable when systemd does not answer."""
    seen = read_services(files.root, _HOURS)
    if not seen.services:
        why = "; ".join(seen.blind_spots) or "systemd has no units"
        raise Unreadable(_reason(files.root.bus), why)
    for spot in seen.blind_spots:
        files.note("some", Reason.PERMISSION if os.geteuid() else Reason.ABSENT, spot)
    return _kept(files, seen.services, MOST_UNITS)


def read_containers(files: NodeFiles) -> tuple[Service, ...]:
    """The containers of every runtime with a socket here. Raises Unreadable when there is none, or none answers."""
    looks = container_services(files.root, _HOURS)
    if not looks:
        raise Unreadable(Reason.ABSENT, "no container runtime has a socket here")
    spots = [(manager, spot) for manager, look in looks for spot in look.blind_spots]
    services = [service for _, look in looks for service in look.services]
    root = files.root
    sockets = {Manager.DOCKER: root.docker, Manager.PODMAN: root.podman, Manager.CRI: next(iter(root.cri), None)}
    if spots and not services:
        raise Unreadable(_reason(sockets[spots[0][0]]), "; ".join(spot for _, spot in spots))
    for manager, spot in spots:
        files.note(manager.value, _reason(sockets[manager]), spot)
    return _kept(files, services, MOST_CONTAINERS)


def _kept(files: NodeFiles, services: Sequence[Service], most: int) -> tuple[Service, ...]:
    if len(services) > most:
        files.note("", Reason.TRUNCATED, f"{len(services):,} services, of which {most:,} are kept")
    return tuple(bare(service) for service in sorted(services, key=lambda each: each.key)[:most])


def bare(service: Service) -> Service:
    """A service without commands, logs and pids; the remaining fields are bounded."""
    wants, history, last = service.wants, service.history, service.last_exit
    own = [path for path in service.drop_ins if path.endswith(f"/{OWN_DROP_IN}")]
    return Service(
        manager=service.manager,
        # A container's id changes with each start.
        id=clean(service.id) if service.manager is Manager.SYSTEMD else "",
        name=clean(service.name),
        state=clean(service.state),
        detail=clean(redact_line(service.detail)),
        result=clean(service.result),
        age_s=service.age_s,
        restarts=service.restarts,
        restart_policy=clean(service.restart_policy),
        last_exit=None if last is None else Exit(last.at, last.code, last.signal, clean(last.command)),
        image=None if service.image is None else clean(service.image),
        pod=None if service.pod is None else clean(service.pod),
        fragment=None if service.fragment is None else clean(service.fragment),
        drop_ins=_names([*own, *(path for path in service.drop_ins if path not in own)]),
        enabled=service.enabled,
        preset=service.preset,
        wants=Wants(
            wanted_by=_names(wants.wanted_by),
            requires=_names(wants.requires),
            triggered_by=_names(wants.triggered_by),
            failed=_names(wants.failed),
            restarted_by=_names(wants.restarted_by),
        ),
        conditions=tuple(_condition(each) for each in service.conditions if each.held is False or each.trigger)[
            :_MOST_NAMES
        ],
        history=None if history is None else _history(history),
        start_limit=clean(service.start_limit),
        absent=_names(service.absent),
        workload=None if service.workload is None else clean(service.workload),
    )


def _condition(condition: Condition) -> Condition:
    return replace(condition, name=clean(condition.name), parameter=clean(redact_line(condition.parameter)))


def _history(history: History) -> History:
    exits = tuple(replace(each, command=clean(each.command)) for each in history.exits[:_MOST_EXITS])
    return replace(history, exits=exits, restarted_at=(), age_pattern=clean(history.age_pattern))


def _names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(clean, list(names)[:_MOST_NAMES]))


def _reason(socket: Path | None) -> Reason:
    """Why a manager behind a socket cannot be queried."""
    if socket is None or not socket.exists():
        return Reason.ABSENT
    # systemd shows some of it only to root.
    return Reason.PERMISSION if os.geteuid() or not os.access(socket, os.W_OK) else Reason.FAILED


def read_boot(files: NodeFiles, units: Sequence[Service] | None) -> Boot:
    """Read the state of the boot. `units` are those of the same moment; None if they could not be read."""
    uptime = files.text(files.root.host.proc / "uptime", 4096).split()
    seconds = float(uptime[0]) if uptime and uptime[0].replace(".", "", 1).isdigit() else None
    now = SystemClock().wall_ns()
    first = first_boot(files.root)
    state, errors = _cloud_init(files)
    failed = tuple(unit.id for unit in units or () if unit.state == "failed")
    # The root causes of units that never started: what those prepare is not there.
    blocking = {unit.wants.failed[-1]: None for unit in units or () if unit.wants.failed}
    because = (*(("cloud-init",) if errors else ()), *blocking)
    known = units is not None or state == "done"
    return Boot(
        booted_at=None if seconds is None else now - int(seconds * NANOS),
        uptime_s=seconds,
        first_boot=None if first is None else first.at,
        system=_system_state(files.root),
        bootstrap=Outcome.FAILED if because else Outcome.OK if known else Outcome.UNKNOWN,
        because=because[:_MOST_NAMES],
        failed_units=failed[:200],
        cloud_init=state,
        cloud_init_errors=errors,
    )


def _system_state(root: NodeRoot) -> str:
    """systemd's overall state: running, degraded, starting; empty when it cannot be queried."""
    try:
        with Bus(root.bus) as bus:
            ((_, value),) = bus.call(Call(MANAGER_PATH, PROPERTIES, "Get", "ss", (MANAGER, "SystemState")))
            return clean(str(value))
    except (BusError, ValueError):
        return ""


def _cloud_init(files: NodeFiles) -> tuple[str, tuple[str, ...]]:
    """`done`, `running` or, without cloud-init, empty; and the errors of all its stages."""
    for directory in _CLOUD_INIT:
        result, status = (
            _v1(files.optional(f"{directory}/{name}.json", _MOST_STATUS)) for name in ("result", "status")
        )
        if result is None and status is None:
            continue
        stages = [each for each in (status or {}).values() if isinstance(each, dict)]
        messages = [error for stage in ((result or {}), *stages) for error in _errors(stage)]
        errors = tuple(dict.fromkeys(clean(redact_line(each)) for each in messages))[:_MOST_NAMES]
        return "done" if result is not None else "running", errors
    return "", ()


def _errors(stage: dict[str, Any]) -> list[str]:
    found = stage.get("errors")
    return [str(each) for each in found] if isinstance(found, list) else []


def _v1(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)["v1"] if text else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
