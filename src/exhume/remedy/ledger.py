"""The ledger: plans, and fixes with the state before each step, written to disk before the step is taken.

A fix is one atomically written document. Whenever the program ends, it says what was done and what may have been begun;
that suffices to undo it and to resume it, also after a reboot.
"""

import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from exhume.control.journal import JournalError, prune_documents, read_document, write_document
from exhume.model.clock import NANOS
from exhume.model.errors import UsageError
from exhume.model.remedy import Effect, Measure, NotIncluded, Plan, Risk, Step

VERSION = 1
_FIXES = "fixes"
_PLANS, _LAST = "plans", "last.json"
# How many plans are kept: those that were never applied soon lose their use.
_KEPT = 50
OLDEST_S = 24 * 3600
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


class Mark(StrEnum):
    """The state of a step. `begun`: it may have been done, wholly or in part. `left`: left to a person. `kept`: not
    undone, because that would do harm."""

    PLANNED = "planned"
    BEGUN = "begun"
    DONE = "done"
    LEFT = "left"
    UNDOING = "undoing"
    UNDONE = "undone"
    KEPT = "kept"


class FixState(StrEnum):
    """The state of a fix."""

    UNFINISHED = "unfinished"
    APPLIED = "applied"
    ROLLING_BACK = "rolling-back"
    ROLLED_BACK = "rolled-back"
    PARTLY_ROLLED_BACK = "partly-rolled-back"


@dataclass(frozen=True, slots=True)
class Entry:
    """A step of a fix. `before` is the state it found (None: it was not begun), `details` are the figures of its
    result; times are wall nanoseconds."""

    step: Step
    mark: Mark = Mark.PLANNED
    before: Mapping[str, Any] | None = None
    began_at: int | None = None
    ended_at: int | None = None
    why: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def touched(self) -> bool:
        """Whether any of it may have to be undone."""
        return self.mark not in (Mark.PLANNED, Mark.LEFT, Mark.UNDONE)


@dataclass(frozen=True, slots=True)
class Fix:
    """A plan that was begun. `root` is where the node's files were, `machine` its machine id; `baseline` are the
    measures before anything was done."""

    id: str
    node: str
    machine: str
    root: str
    boot_id: str
    target: str
    summary: str
    planned_at: int
    entries: tuple[Entry, ...]
    fingerprints: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    baseline: Mapping[str, Any] | None = None
    applied_at: int | None = None
    finished_at: int | None = None
    rollback_at: int | None = None

    @property
    def state(self) -> FixState:
        marks = {entry.mark for entry in self.entries}
        if self.rollback_at is None:
            return FixState.APPLIED if marks <= {Mark.DONE, Mark.LEFT} else FixState.UNFINISHED
        if not any(entry.touched for entry in self.entries):
            return FixState.ROLLED_BACK
        return FixState.ROLLING_BACK if marks & {Mark.BEGUN, Mark.DONE, Mark.UNDOING} else FixState.PARTLY_ROLLED_BACK

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects expected of its steps, without repeats."""
        return tuple(dict.fromkeys(effect for entry in self.entries for effect in entry.step.effects))

    @property
    def done(self) -> tuple[str, ...]:
        """The titles of the steps that were done."""
        return tuple(entry.step.title for entry in self.entries if entry.mark is Mark.DONE)

    def taken_by_hand(self, at: int) -> "Fix":
        """A copy in which a person took every step at the given time (wall nanoseconds)."""
        why = "a person did this"
        entries = tuple(replace(each, mark=Mark.LEFT, began_at=at, ended_at=at, why=why) for each in self.entries)
        return replace(self, entries=entries, applied_at=at, finished_at=at)

    def with_entry(self, index: int, **changes: Any) -> "Fix":
        """A copy with one entry changed."""
        entries = list(self.entries)
        entries[index] = replace(entries[index], **changes)
        return replace(self, entries=tuple(entries))


def new_id(now: int) -> str:
    """An id for a plan and the fix that it becomes; ids sort by time (wall nanoseconds)."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now // NANOS))}-{secrets.token_hex(2)}"


def check_id(text: str) -> str:
    """Validate a fix id and return it. Raises UsageError."""
    if not _ID.fullmatch(text):
        raise UsageError(f"{text!r} is not a fix id; see exhume fix list")
    return text


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A fix whose file can't be parsed, and why."""

    id: str
    path: Path
    why: str


@dataclass(frozen=True, slots=True)
class Shelf:
    """The contents of a ledger: fixes, newest first, and those that can't be read."""

    fixes: list[Fix]
    unreadable: list[Unreadable]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The fixes of a work directory."""

    place: Path

    def save(self, fix: Fix) -> Fix:
        """Save a fix; it is on disk on return. Raises JournalError."""
        write_document(self._path(fix.id), VERSION, asdict(fix))
        return fix

    def read(self, id_: str) -> Fix:
        """Read the fix with this id. Raises UsageError if there is none, and JournalError if it can't be parsed."""
        path = self._path(check_id(id_))
        try:
            content = read_document(path, VERSION)
        except FileNotFoundError:
            raise UsageError(f"there is no fix {id_} in {path.parent}; see exhume fix list") from None
        try:
            entries = tuple(
                Entry(**{**each, "step": _step_from(each["step"]), "mark": Mark(each["mark"])})
                for each in content["entries"]
            )
            return Fix(**{**content, "id": check_id(content["id"]), "entries": entries})
        except (KeyError, TypeError, ValueError, UsageError) as error:
            raise JournalError(f"{path} is not what exhume wrote ({error}); look at it, and move it away") from None

    def fixes(self) -> list[Fix]:
        """All readable fixes, newest first."""
        return self.shelf().fixes

    def shelf(self) -> Shelf:
        """All fixes, including unreadable ones: one of those is no reason not to list the others."""
        shelf = Shelf([], [])
        for path in sorted((self.place / _FIXES).glob("*.json"), reverse=True):
            if not _ID.fullmatch(path.stem):
                continue
            try:
                shelf.fixes.append(self.read(path.stem))
            except JournalError as error:
                shelf.unreadable.append(Unreadable(path.stem, path, str(error)))
            except UsageError:
                # Removed since the directory was listed.
                continue
        shelf.fixes.sort(key=lambda fix: (fix.planned_at, fix.id), reverse=True)
        return shelf

    def newest(self, *states: FixState) -> Fix | None:
        """The newest fix in one of these states (default: any)."""
        return next((fix for fix in self.fixes() if not states or fix.state in states), None)

    def _path(self, id_: str) -> Path:
        return self.place / _FIXES / f"{id_}.json"


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan, where and when (wall nanoseconds) it was made, and the fingerprint of everything that it changes."""

    id: str
    plan: Plan
    node: str
    machine: str
    root: str
    boot_id: str
    made_at: int
    fingerprints: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def without(self, action: str) -> "SavedPlan":
        """A copy without the steps of this action."""
        steps = tuple(step for step in self.plan.steps if step.action != action)
        return replace(self, plan=replace(self.plan, steps=steps))

    def begun(self, baseline: Mapping[str, Any] | None = None) -> Fix:
        """The fix that the plan becomes, with nothing done yet."""
        return Fix(
            id=self.id,
            node=self.node,
            machine=self.machine,
            root=self.root,
            boot_id=self.boot_id,
            target=self.plan.target,
            summary=self.plan.summary,
            planned_at=self.made_at,
            entries=tuple(Entry(step) for step in self.plan.steps),
            fingerprints=self.fingerprints,
            baseline=baseline,
        )

    def stale(self, boot_id: str, machine: str, now: int, found: Mapping[str, Mapping[str, str]]) -> list[str]:
        """What changed since the plan was made, in sentences; empty if it is still valid."""
        if machine != self.machine:
            return ["it was made for another machine"]
        changes = []
        if boot_id != self.boot_id:
            changes.append("the node was booted since")
        age = (now - self.made_at) / NANOS
        if age > OLDEST_S or age < -60:
            changes.append(f"it is {age / 3600:.0f} hours old")
        return changes + changed(self.fingerprints, found)


def changed(then: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The differences between fingerprints, in sentences."""
    changes = []
    for target, was in then.items():
        has = now.get(target)
        if has is None:
            changes.append(f"{target} is gone")
            continue
        for key in sorted(was.keys() | has.keys()):
            old, new = (each.get(key) or "nothing" for each in (was, has))
            if old != new:
                old, new = (each if len(each) <= 80 else f"{each[:77]}…" for each in (old, new))
                changes.append(f"{target}: {key.replace('_', ' ')} was {old}, and is {new} now")
    return changes


def save_plan(place: Path, saved: SavedPlan) -> None:
    """Save the plan, and also as the last one. Raises JournalError."""
    content = asdict(saved)
    directory = place / _PLANS
    write_document(directory / f"{saved.id}.json", VERSION, content)
    write_document(directory / _LAST, VERSION, content)
    prune_documents(directory, _KEPT, keep=_LAST)


def last_plan(place: Path) -> SavedPlan:
    """The newest plan. Raises UsageError if there is none, and JournalError if it can't be parsed."""
    return _read_plan(place / _PLANS / _LAST)


def plan_of(place: Path, id_: str) -> SavedPlan:
    """The plan that a fix was made from, as long as it is kept. Raises as `last_plan`."""
    return _read_plan(place / _PLANS / f"{check_id(id_)}.json")


def _read_plan(path: Path) -> SavedPlan:
    try:
        content = read_document(path, VERSION)
    except FileNotFoundError:
        raise UsageError(f"there is no plan in {path.parent}; make one with exhume fix plan") from None
    try:
        plan = content["plan"]
        texts = {name: tuple(plan[name]) for name in ("blind_spots", "refusals")}
        # Documents of 0.1.0 lack this field.
        texts["not_included"] = tuple(NotIncluded(**each) for each in plan.get("not_included", ()))
        plan = Plan(**{**plan, **texts, "steps": tuple(map(_step_from, plan["steps"]))})
        return SavedPlan(**{**content, "id": check_id(content["id"]), "plan": plan})
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise JournalError(f"{path} is not what exhume wrote ({error}); make a new plan") from None


def _step_from(content: dict[str, Any]) -> Step:
    """Rebuild a step from `dataclasses.asdict`. Raises KeyError, TypeError or ValueError if it isn't one."""
    # Documents of 0.1.0 lack undo_commands, params and parts.
    read: dict[str, Any] = {name: tuple(content[name]) for name in ("targets", "commands", "dependents")}
    read["undo_commands"] = tuple(content.get("undo_commands", ()))
    for name in ("files", "params"):
        read[name] = tuple((str(key), str(value)) for key, value in content.get(name, ()))
    read["parts"] = tuple(map(_step_from, content.get("parts", ())))
    read["effects"] = tuple(Effect(**{**each, "measure": Measure(each["measure"])}) for each in content["effects"])
    return Step(**{**content, **read, "risk": Risk(content["risk"])})
