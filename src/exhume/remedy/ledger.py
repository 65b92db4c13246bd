"""The ledger of fixes: each step is written down, with what was there before, before it is done.

A fix is one file. Whatever moment the program ends at, the file tells what was done, and what may have been begun; that
is enough to undo it, and to go on with it, also after a reboot.
"""

import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from exhume.model.clock import NANOS
from exhume.model.errors import UsageError
from exhume.model.remedy import Effect, Step
from exhume.remedy.documents import DocumentError, read_document, step_from, write_document

VERSION = 1
_FIXES = "fixes"
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


class Mark(StrEnum):
    """How far a step is. `begun`: it may have been done, or in part. `left`: for a person. `kept`: it could not be
    undone without harm, so it was not."""

    PLANNED = "planned"
    BEGUN = "begun"
    DONE = "done"
    LEFT = "left"
    UNDOING = "undoing"
    UNDONE = "undone"
    KEPT = "kept"


class FixState(StrEnum):
    """How a fix stands."""

    UNFINISHED = "unfinished"
    APPLIED = "applied"
    ROLLING_BACK = "rolling-back"
    ROLLED_BACK = "rolled-back"
    PARTLY_ROLLED_BACK = "partly-rolled-back"


@dataclass(frozen=True, slots=True)
class Entry:
    """A step of a fix. `before` is what it found (None: it was not begun); times are wall nanoseconds."""

    step: Step
    mark: Mark = Mark.PLANNED
    before: Mapping[str, Any] | None = None
    began_at: int | None = None
    ended_at: int | None = None
    why: str = ""

    @property
    def touched(self) -> bool:
        """Whether something of it may have to be undone."""
        return self.mark not in (Mark.PLANNED, Mark.LEFT, Mark.UNDONE)


@dataclass(frozen=True, slots=True)
class Fix:
    """A plan that was begun. `root` is where the node's files were, `machine` says which node it is; `baseline` are the
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
        """What its steps should change, each once."""
        return tuple(dict.fromkeys(effect for entry in self.entries for effect in entry.step.effects))

    @property
    def done(self) -> tuple[str, ...]:
        """What was done, in words."""
        return tuple(entry.step.title for entry in self.entries if entry.mark is Mark.DONE)

    def with_entry(self, index: int, **changes: Any) -> "Fix":
        """The same with one entry changed."""
        entries = list(self.entries)
        entries[index] = replace(entries[index], **changes)
        return replace(self, entries=tuple(entries))


def new_id(now: int) -> str:
    """A name for a plan and the fix that it becomes: sorts by time (wall nanoseconds)."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now // NANOS))}-{secrets.token_hex(2)}"


def check_id(text: str) -> str:
    """The id, when it is one. Raises UsageError."""
    if not _ID.fullmatch(text):
        raise UsageError(f"{text!r} is no id of a fix; exhume fix list has them")
    return text


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A fix whose file can't be understood, and why."""

    id: str
    path: Path
    why: str


@dataclass(frozen=True, slots=True)
class Shelf:
    """What a ledger holds: fixes, the newest first, and those that can't be read."""

    fixes: list[Fix]
    unreadable: list[Unreadable]


@dataclass(frozen=True, slots=True)
class Ledger:
    """The fixes of a work directory."""

    place: Path

    def save(self, fix: Fix) -> Fix:
        """It is on the disk when this returns. Raises DocumentError."""
        write_document(self._path(fix.id), {"version": VERSION, **asdict(fix)})
        return fix

    def read(self, id_: str) -> Fix:
        """The fix of that id. Raises UsageError where there is none, and DocumentError where it can't be understood."""
        path = self._path(check_id(id_))
        try:
            return _fix_from(read_document(path, VERSION), path)
        except FileNotFoundError:
            raise UsageError(f"there is no fix {id_} in {path.parent}; exhume fix list has them") from None

    def fixes(self) -> list[Fix]:
        """All that can be read, the newest first."""
        return self.shelf().fixes

    def shelf(self) -> "Shelf":
        """All of them: one that can't be understood is no reason not to see the others."""
        shelf = Shelf([], [])
        for path in sorted((self.place / _FIXES).glob("*.json"), reverse=True):
            if not _ID.fullmatch(path.stem):
                continue
            try:
                shelf.fixes.append(self.read(path.stem))
            except DocumentError as error:
                shelf.unreadable.append(Unreadable(path.stem, path, str(error)))
            except UsageError:
                # Gone since the directory was listed.
                continue
        shelf.fixes.sort(key=lambda fix: (fix.planned_at, fix.id), reverse=True)
        return shelf

    def newest(self, *states: FixState) -> Fix | None:
        """The newest one in one of these states (none given: in any)."""
        return next((fix for fix in self.fixes() if not states or fix.state in states), None)

    def _path(self, id_: str) -> Path:
        return self.place / _FIXES / f"{id_}.json"


def _fix_from(content: dict[str, Any], path: Path) -> Fix:
    try:
        known = {key: value for key, value in content.items() if key != "version"}
        entries = tuple(
            Entry(**{**each, "step": step_from(each["step"]), "mark": Mark(each["mark"])}) for each in known["entries"]
        )
        return Fix(**{**known, "id": check_id(known["id"]), "entries": entries})
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise DocumentError(f"{path} is not what exhume wrote ({error}); look at it, and move it away") from None
