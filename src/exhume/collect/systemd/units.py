"""Every service that systemd has on a node, loaded or only enabled, with how it stands, how it fared and who asked for
it; of other units those that failed."""

import time
from collections.abc import Mapping
from dataclasses import replace

from exhume.collect.node_root import NodeRoot
from exhume.collect.services import ServiceList
from exhume.collect.systemd.bus import Bus, BusError
from exhume.collect.systemd.facts import BusUnits, Listed, UnitFacts, Units
from exhume.collect.systemd.journal import Journal, read_journal, unit_log
from exhume.collect.systemd.start_failures import Blame, looked_at
from exhume.collect.systemd.systemctl import SystemctlUnits
from exhume.model.audit import Condition, Manager, Service, Wants

_HOURS = 24.0
# There where systemd is the first process.
_RUNS = "/run/systemd/system"
# Kinds of which the failed ones are listed as well: they start services, or services need them.
_OTHERS = ("socket", "timer", "mount", "path", "swap")
# Logs are read for those in trouble; more than this many are a story of their own.
_MOST_LOGS = 50


def read_services(root: NodeRoot, hours: float = _HOURS) -> ServiceList:
    """All of them, sorted by name; why nothing could be seen otherwise."""
    try:
        units, blind_spots = open_units(root)
    except BusError as error:
        return ServiceList([], [f"units were not looked at: {error}"])
    try:
        return _read(root, units, hours, blind_spots)
    except BusError as error:
        return ServiceList([], [*blind_spots, f"units were not looked at: {error}"])
    finally:
        units.close()


def open_units(root: NodeRoot) -> tuple[Units, list[str]]:
    """A way to query systemd, and its blind spots: the bus; else, on the node itself, systemctl. Raises BusError, with
    both reasons, where neither works."""
    try:
        return BusUnits(Bus(root.bus)), []
    except BusError as error:
        if not root.is_here:
            raise
        if not root.file(_RUNS).is_dir():
            raise BusError("systemd doesn't run here") from None
        try:
            units = SystemctlUnits()
        except BusError as second:
            raise BusError(f"{error}, and {second}") from None
        note = f"{error}: units are read from systemctl's text instead, without the parameters of their conditions"
        return units, [note]


def _read(root: NodeRoot, units: Units, hours: float, blind_spots: list[str]) -> ServiceList:
    listed = units.listed()
    names = [name for name, row in listed.items() if _is_listed(row)]
    # A template is no unit yet.
    names += [name for name in units.enabled_files(["service"]) if name not in listed and "@." not in name]
    known = units.facts(sorted(names))
    journal = read_journal(root, hours)

    def facts(name: str) -> UnitFacts | None:
        if name not in known:
            known.update(units.facts([name]))
        return known.get(name)

    blame = Blame(listed, facts, journal)
    rows: dict[str, Service] = {}
    for name in sorted(names):
        unit = known.get(name)
        # An alias of one that has its row already adds nothing.
        if unit is not None and unit.name not in rows and unit.text("LoadState") != "not-found":
            row = _service(unit, _conditions(root, unit), blame.chain(unit), journal)
            rows[unit.name] = replace(row, absent=_absent(root, unit)) if _is_troubled(row) else row
    blind_spots = [*blind_spots, *journal.blind_spots, *_unseen_managers(listed)]
    return ServiceList(_with_logs(root, list(rows.values())), blind_spots)


def _unseen_managers(listed: Mapping[str, Listed]) -> list[str]:
    """Users have a systemd of their own, which only they may ask."""
    users = [name for name, row in listed.items() if name.startswith("user@") and row.active == "active"]
    return [f"units of users are not looked at: {', '.join(sorted(users))} runs them"] if users else []


def _is_listed(row: Listed) -> bool:
    kind = row.name.rpartition(".")[2]
    if kind == "service":
        return row.load != "not-found"
    return kind in _OTHERS and row.active == "failed"


def _conditions(root: NodeRoot, unit: UnitFacts) -> tuple[Condition, ...]:
    # Where not even the unit's own file can be seen, the files that it asks for can't either.
    return looked_at(root if _sees_file(root, unit) else None, unit.conditions, unit.unmet)


def _absent(root: NodeRoot, unit: UnitFacts) -> tuple[str, ...]:
    """Files that it names and that are not there: only where its own file can be seen, and where it has no root of its
    own to look for them in."""
    if not _sees_file(root, unit) or unit.text("RootDirectory") or unit.text("RootImage"):
        return ()
    return tuple(dict.fromkeys(f"{key}={path}" for key, path in unit.named_files if not _is_there(root, path)))


def _is_there(root: NodeRoot, path: str) -> bool:
    try:
        return root.file(path).exists()
    except OSError:
        return True


def _sees_file(root: NodeRoot, unit: UnitFacts) -> bool:
    try:
        return root.file(unit.text("FragmentPath")).is_file()
    except OSError:
        return False


def _service(unit: UnitFacts, conditions: tuple[Condition, ...], failed: tuple[str, ...], journal: Journal) -> Service:
    state = unit.text("ActiveState")
    pid = unit.number("MainPID") or None
    started = unit.moment("ExecMainStartTimestamp") if pid else unit.moment("ActiveEnterTimestamp")
    is_up = state in ("active", "reloading", "activating", "deactivating") and started is not None
    is_one = unit.name.endswith(".service")
    history = journal.history(unit.name)
    # While it runs, systemd has forgotten the end before.
    before = history.exits[0] if history is not None and history.exits else None
    return Service(
        manager=Manager.SYSTEMD,
        id=unit.name,
        name=unit.name,
        description=unit.text("Description"),
        state=state,
        detail=unit.text("SubState") if unit.text("LoadState") == "loaded" else unit.text("LoadState"),
        result="dependency" if failed else unit.text("Result"),
        pid=pid,
        started=started,
        age_s=round(max(0.0, time.time() - started / 1e9), 3) if is_up and started is not None else None,
        restarts=unit.number("NRestarts") if is_one else None,
        restart_policy=unit.text("Restart"),
        last_exit=unit.last_exit or before,
        cgroup=unit.text("ControlGroup") or None,
        fragment=unit.text("FragmentPath") or unit.text("SourcePath") or None,
        drop_ins=unit.names("DropInPaths"),
        enabled=unit.text("UnitFileState") or None,
        preset=unit.text("UnitFilePreset") or None,
        command=unit.command,
        starts=unit.starts,
        directory=unit.directory,
        wants=Wants(
            wanted_by=unit.names("WantedBy", "UpheldBy"),
            required_by=unit.names("RequiredBy", "RequisiteOf", "BoundBy"),
            requires=unit.names("Requires", "Requisite", "BindsTo"),
            after=unit.names("After"),
            triggered_by=unit.names("TriggeredBy"),
            failed=failed,
            triggers=unit.names("Triggers"),
            restarted_by=unit.names("UpheldBy", "OnFailureOf", "OnSuccessOf"),
        ),
        conditions=conditions,
        history=history,
        start_limit=unit.start_limit,
    )


def _with_logs(root: NodeRoot, services: list[Service]) -> list[Service]:
    troubled = [each.id for each in services if _is_troubled(each)][:_MOST_LOGS]
    logs = {name: unit_log(root, name) for name in troubled}
    return [replace(each, log=logs[each.id]) if each.id in logs else each for each in services]


def _is_troubled(service: Service) -> bool:
    restless = bool(service.restarts) or service.detail == "auto-restart"
    failures = service.history is not None and service.history.failures > 0
    return service.state == "failed" or restless or failures or bool(service.wants.failed)
