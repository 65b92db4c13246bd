"""Why a unit was not started: which of those that it requires failed, up to the one that failed first by itself."""

from collections.abc import Callable
from dataclasses import dataclass

from exhume.collect.systemd.asked import Listed
from exhume.collect.systemd.facts import UnitFacts
from exhume.collect.systemd.journal import Journal

# With one of these a unit can't be started at all.
_UNUSABLE = ("not-found", "bad-setting", "error", "masked")
_DEEPEST = 16
# A failure and what it keeps from starting are told at nearly the same time.
_SOON_NS = 5 * 10**9


@dataclass(frozen=True, slots=True)
class Blame:
    """Looks for the requirement that failed, by how units stand now and by what the journal tells."""

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
            row = self.listed.get(name)
            if row is not None and (row.active == "failed" or row.load in _UNUSABLE):
                return (name,)
        for name in unit.words("Requisite"):
            row = self.listed.get(name)
            if row is not None and row.active == "inactive":
                return (name,)
        for name in _required(unit):
            row = self.listed.get(name)
            if row is None or row.active != "inactive" or name in seen or len(seen) > _DEEPEST:
                continue
            between = self.facts(name)
            if between is not None and between.moment("ActiveEnterTimestamp") is None:
                further = self._failed_now(between, seen | {name})
                if further:
                    return (name, *further)
        return ()

    def _broken_bond(self, unit: UnitFacts) -> tuple[str, ...]:
        """A unit goes down with those that it is bound to."""
        bonds = (self.listed.get(name) for name in unit.words("BindsTo"))
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
    return unit.words("Requires", "BindsTo", "Requisite")


def _is_wanted(unit: UnitFacts) -> bool:
    """Whether anybody asked for it to be started."""
    enabled = unit.text("UnitFileState").startswith("enabled")
    return enabled or bool(unit.words("WantedBy", "RequiredBy", "UpheldBy", "BoundBy", "RequisiteOf"))
