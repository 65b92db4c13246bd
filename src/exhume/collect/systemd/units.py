"""Every service that systemd has on a node, loaded or only enabled, with its state, its history and the units that
requested it; of other unit types only the failed ones.

For a unit that was not started: the condition that is not met, or the requirement that failed. systemd remembers only
that a condition was not met, and forgets which one on a daemon-reload; conditions about files can be checked again.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.bus import Bus, BusError, Waiting
from exhume.collect.systemd.facts import BusUnits, Listed, UnitFacts
from exhume.collect.systemd.journal import Journal, read_journal, unit_log
from exhume.model.audit import Condition, Manager, Service, ServiceList, Wants

_HOURS = 24.0
# Exists if systemd is process 1.
_RUNS = "/run/systemd/system"
# Other types whose failed units are listed as well: they start services, or services need them.
_OTHERS = (".socket", ".timer", ".mount", ".path", ".swap")
# Logs are read for at most this many troubled units; with more, single logs no longer help.
_MOST_LOGS = 50
# In one of these load states a unit cannot be started at all.
_UNUSABLE = ("not-found", "bad-setting", "error", "masked")
_WANTING = ("WantedBy", "RequiredBy", "UpheldBy", "BoundBy", "RequisiteOf")
_DEEPEST = 16
# A failure and the units that it keeps from starting are logged at nearly the same time.
_SOON_NS = 5 * 10**9


def read_services(root: NodeRoot, hours: float = _HOURS, waiting: Waiting = lambda method, share: None) -> ServiceList:
    """All of them, sorted by name; or the reason why nothing could be read."""
    try:
        with open_units(root, waiting) as units:
            return _read(root, units, hours)
    except BusError as error:
        return ServiceList([], [f"units were not looked at: {error}"])


def open_units(root: NodeRoot, waiting: Waiting | None = None) -> BusUnits:
    """Open a connection for querying systemd, to be closed by a `with`. Raises BusError, with the reason, if there is
    none. With `waiting`, a slow systemd is waited for as long as it works."""
    try:
        if waiting is None:
            return BusUnits(Bus(root.bus))
        return BusUnits(Bus(root.bus, systemd=root.host.proc / "1", waiting=waiting))
    except BusError:
        if root.is_here and not Path(_RUNS).is_dir():
            raise BusError("systemd doesn't run here") from None
        raise


def _read(root: NodeRoot, units: BusUnits, hours: float) -> ServiceList:
    listed = units.listed()
    names = [
        name
        for name, row in listed.items()
        if (name.endswith(".service") and row.load != "not-found")
        or (name.endswith(_OTHERS) and row.active == "failed")
    ]
    known = units.facts(names)
    # From here on, a failure only costs units that are not loaded: units that never run.
    unanswered: list[str] = []
    try:
        # To list them, systemd reads every unit file of the node. A template is not a unit yet.
        enabled = [name for name in units.enabled_services() if name not in listed and "@." not in name]
        known |= units.facts(enabled)
        names += enabled
    except BusError as error:
        unanswered.append(f"units that are enabled but not loaded were not looked at: {error}")
    journal = read_journal(root, hours)

    def facts(name: str) -> UnitFacts | None:
        # While systemd still works on the abandoned call, it answers nothing else.
        if name not in known and not unanswered:
            try:
                known.update(units.facts([name]))
            except BusError as error:
                unanswered.append(f"units that others require were not looked at: {error}")
        return known.get(name)

    blame = Blame(listed, facts, journal)
    rows: dict[str, Service] = {}
    for name in sorted(names):
        unit = known.get(name)
        # An alias of a unit that already has a row adds nothing.
        if unit is not None and unit.name not in rows and unit.text("LoadState") != "not-found":
            # If not even the unit's own file is visible, the files in its conditions are not visible either.
            conditions = looked_at(root if _sees_file(root, unit) else None, unit.conditions, unit.unmet)
            row = _service(unit, conditions, blame.chain(unit), journal)
            rows[unit.name] = replace(row, absent=_absent(root, unit)) if _is_troubled(row) else row
    blind_spots = [*unanswered, *journal.blind_spots]
    # Each user has a systemd of their own, which only that user may query.
    users = sorted(name for name, row in listed.items() if name.startswith("user@") and row.active == "active")
    if users:
        blind_spots.append(f"units of users are not looked at: {', '.join(users)} runs them")
    troubled = [name for name, row in rows.items() if _is_troubled(row)][:_MOST_LOGS]
    rows |= {name: replace(rows[name], log=unit_log(root, name)) for name in troubled}
    return ServiceList(list(rows.values()), blind_spots)


def _absent(root: NodeRoot, unit: UnitFacts) -> tuple[str, ...]:
    """Files that a unit names and that do not exist. Only for a unit whose own file is visible and that has no root
    directory of its own."""
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
    # While it runs, systemd no longer knows the previous exit.
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


def _is_troubled(service: Service) -> bool:
    restless = bool(service.restarts) or service.detail == "auto-restart"
    failures = service.history is not None and service.history.failures > 0
    return service.state == "failed" or restless or failures or bool(service.wants.failed)


def looked_at(
    root: NodeRoot | None, conditions: tuple[Condition, ...], failed: tuple[str, ...]
) -> tuple[Condition, ...]:
    """The conditions, with those about files evaluated by the current state; `failed` are the kinds (Condition, Assert)
    of which one did not hold. A kind for which none can be identified gets a row without a parameter, also when there
    is no root to check."""
    judged = list(conditions)
    for kind in failed:
        if any(each.held is False for each in judged if each.name.startswith(kind)):
            continue
        judged = [_judged(root, each) if root is not None and each.name.startswith(kind) else each for each in judged]
        own = [each for each in judged if each.name.startswith(kind)]
        # Of the triggering conditions, one has to hold.
        triggers = [each.held for each in own if each.trigger]
        if not any(each.held is False and not each.trigger for each in own) and set(triggers) != {False}:
            judged.append(Condition(kind, "", False))
    return tuple(judged)


def _judged(root: NodeRoot, condition: Condition) -> Condition:
    look = _LOOKS.get(condition.name.removeprefix("Condition").removeprefix("Assert"))
    if condition.held is not None or look is None or not condition.parameter.startswith("/"):
        return condition
    try:
        found = look(root.file(condition.parameter))
    except OSError:
        found = False
    return replace(condition, held=found is not condition.negated)


_LOOKS: dict[str, Callable[[Path], bool]] = {
    "PathExists": Path.exists,
    "PathIsDirectory": Path.is_dir,
    "DirectoryNotEmpty": lambda path: path.is_dir() and any(path.iterdir()),
    "FileNotEmpty": lambda path: path.is_file() and path.stat().st_size > 0,
    "FileIsExecutable": lambda path: path.is_file() and os.access(path, os.X_OK),
}


@dataclass(frozen=True, slots=True)
class Blame:
    """Finds the requirement that failed, from the current state of units and from the journal."""

    listed: dict[str, Listed]
    facts: Callable[[str], UnitFacts | None]
    journal: Journal

    def chain(self, unit: UnitFacts) -> tuple[str, ...]:
        """The chain from its own requirement to the root cause, which comes last; empty if nothing kept it from
        starting."""
        wanted = unit.text("UnitFileState").startswith("enabled") or bool(unit.names(*_WANTING))
        if unit.text("ActiveState") not in ("inactive", "failed") or not wanted:
            return ()
        if unit.text("ActiveState") == "failed" and unit.text("Result") not in ("", "success", "resources"):
            # It was started, and failed by itself.
            return ()
        past = self.journal.pasts.get(unit.name)
        blocked = past.blocked if past is not None else None
        never = unit.moment("ActiveEnterTimestamp") is None
        found: tuple[str, ...] = ()
        if never or blocked is not None:
            found = self._failed_now(unit, frozenset({unit.name}))
        elif unit.text("ActiveState") == "inactive":
            # A unit is stopped with the units that it is bound to.
            found = tuple(name for name in unit.names("BindsTo") if self._row(name).active == "failed")[:1]
        if not found and blocked is not None:
            found = self._failed_then(unit, blocked, frozenset({unit.name}))
        return found

    def _failed_now(self, unit: UnitFacts, seen: frozenset[str]) -> tuple[str, ...]:
        rows = [self._row(name) for name in _required(unit)]
        broken = [row.name for row in rows if row.active == "failed" or row.load in _UNUSABLE]
        broken = broken or [name for name in unit.names("Requisite") if self._row(name).active == "inactive"]
        if broken:
            return (broken[0],)
        for row in rows:
            if row.active != "inactive" or row.name in seen or len(seen) > _DEEPEST:
                continue
            between = self.facts(row.name)
            if between is not None and between.moment("ActiveEnterTimestamp") is None:
                further = self._failed_now(between, seen | {row.name})
                if further:
                    return (row.name, *further)
        return ()

    def _row(self, name: str) -> Listed:
        """The state of a unit; a unit that was not loaded when units were listed is queried now."""
        if name not in self.listed:
            unit = self.facts(name) or UnitFacts({}, 0)
            self.listed[name] = Listed(name, unit.text("LoadState"), unit.text("ActiveState"))
        return self.listed[name]

    def _failed_then(self, unit: UnitFacts, blocked: int, seen: frozenset[str]) -> tuple[str, ...]:
        """Like `_failed_now` at the time it was blocked: the failure may have been reset or repaired since."""
        pasts = {name: self.journal.pasts[name] for name in _required(unit) if name in self.journal.pasts}
        for name, past in pasts.items():
            if any(moment <= blocked + _SOON_NS for moment in past.failed_at):
                return (name,)
        for name, past in pasts.items():
            if past.blocked is not None and name not in seen and len(seen) <= _DEEPEST:
                between = self.facts(name)
                further = self._failed_then(between, past.blocked, seen | {name}) if between is not None else ()
                return (name, *further)
        return ()


def _required(unit: UnitFacts) -> tuple[str, ...]:
    return unit.names("Requires", "BindsTo", "Requisite")
