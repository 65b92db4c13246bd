"""Why a unit was not started: the condition that is not met, or the requirement that failed.

systemd remembers only that a condition was not met, and forgets which when it reads its unit files again; conditions
about files can be checked again.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.facts import Listed, UnitFacts
from exhume.collect.systemd.journal import Journal
from exhume.model.audit import Condition


def looked_at(
    root: NodeRoot | None, conditions: tuple[Condition, ...], failed: tuple[str, ...]
) -> tuple[Condition, ...]:
    """The same, with those that stand for files judged by what is there now; `failed` are the kinds (Condition, Assert)
    of which one did not hold. A kind for which none can be named gets a row without a parameter, also where there is no
    root to look at."""
    judged = list(conditions)
    for kind in failed:
        if any(each.held is False for each in judged if each.name.startswith(kind)):
            continue
        judged = [_judged(root, each) if root is not None and each.name.startswith(kind) else each for each in judged]
        own = [each for each in judged if each.name.startswith(kind)]
        if not any(each.held is False and not each.trigger for each in own) and not _no_trigger_holds(own):
            judged.append(Condition(kind, "", False))
    return tuple(judged)


def _no_trigger_holds(conditions: list[Condition]) -> bool:
    """Of triggering conditions one has to hold."""
    triggers = [each for each in conditions if each.trigger]
    return bool(triggers) and all(each.held is False for each in triggers)


def _judged(root: NodeRoot, condition: Condition) -> Condition:
    look = _LOOKS.get(condition.name.removeprefix("Condition").removeprefix("Assert"))
    if condition.held is not None or look is None or not condition.parameter.startswith("/"):
        return condition
    try:
        found = look(root.file(condition.parameter))
    except OSError:
        found = False
    return replace(condition, held=found is not condition.negated)


def _is_full_directory(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


_LOOKS: dict[str, Callable[[Path], bool]] = {
    "PathExists": Path.exists,
    "PathIsDirectory": Path.is_dir,
    "DirectoryNotEmpty": _is_full_directory,
    "FileNotEmpty": lambda path: path.is_file() and path.stat().st_size > 0,
    "FileIsExecutable": lambda path: path.is_file() and os.access(path, os.X_OK),
}


# With one of these a unit can't be started at all.
_UNUSABLE = ("not-found", "bad-setting", "error", "masked")
_DEEPEST = 16
# A failure and what it keeps from starting are logged at nearly the same time.
_SOON_NS = 5 * 10**9


@dataclass(frozen=True, slots=True)
class Blame:
    """Looks for the requirement that failed, by how units stand now and by the journal."""

    listed: dict[str, Listed]
    facts: Callable[[str], UnitFacts | None]
    journal: Journal

    def chain(self, unit: UnitFacts) -> tuple[str, ...]:
        """From what it requires itself to the first cause, which comes last; empty where nothing kept it."""
        if unit.text("ActiveState") not in ("inactive", "failed") or not _is_wanted(unit):
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
            found = self._broken_bond(unit)
        if not found and blocked is not None:
            found = self._failed_then(unit, blocked, frozenset({unit.name}))
        return found

    def _failed_now(self, unit: UnitFacts, seen: frozenset[str]) -> tuple[str, ...]:
        for name in _required(unit):
            row = self._row(name)
            if row is not None and (row.active == "failed" or row.load in _UNUSABLE):
                return (name,)
        for name in unit.names("Requisite"):
            row = self._row(name)
            if row is not None and row.active == "inactive":
                return (name,)
        for name in _required(unit):
            row = self._row(name)
            if row is None or row.active != "inactive" or name in seen or len(seen) > _DEEPEST:
                continue
            between = self.facts(name)
            if between is not None and between.moment("ActiveEnterTimestamp") is None:
                further = self._failed_now(between, seen | {name})
                if further:
                    return (name, *further)
        return ()

    def _row(self, name: str) -> Listed | None:
        """How a unit stands; one that was not loaded when units were listed is asked after."""
        row = self.listed.get(name)
        if row is None and (unit := self.facts(name)) is not None:
            row = Listed(name, unit.text("LoadState"), unit.text("ActiveState"), unit.text("SubState"))
            self.listed[name] = row
        return row

    def _broken_bond(self, unit: UnitFacts) -> tuple[str, ...]:
        """A unit goes down with those that it is bound to."""
        bonds = (self._row(name) for name in unit.names("BindsTo"))
        return tuple(row.name for row in bonds if row is not None and row.active == "failed")[:1]

    def _failed_then(self, unit: UnitFacts, blocked: int, seen: frozenset[str]) -> tuple[str, ...]:
        """The requirement failed, though it may have been forgotten or mended since."""
        for name in _required(unit):
            past = self.journal.pasts.get(name)
            if past is not None and any(moment <= blocked + _SOON_NS for moment in past.failed_at):
                return (name,)
        for name in _required(unit):
            past = self.journal.pasts.get(name)
            if past is None or past.blocked is None or name in seen or len(seen) > _DEEPEST:
                continue
            between = self.facts(name)
            further = self._failed_then(between, past.blocked, seen | {name}) if between is not None else ()
            return (name, *further)
        return ()


def _required(unit: UnitFacts) -> tuple[str, ...]:
    return unit.names("Requires", "BindsTo", "Requisite")


def _is_wanted(unit: UnitFacts) -> bool:
    """Whether something wants it started."""
    enabled = unit.text("UnitFileState").startswith("enabled")
    return enabled or bool(unit.names("WantedBy", "RequiredBy", "UpheldBy", "BoundBy", "RequisiteOf"))
