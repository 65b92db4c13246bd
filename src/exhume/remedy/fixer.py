"""Apply a fix and roll it back: for each step, first the ledger entry, then the change, then the mark.

Wherever it is interrupted, `apply` resumes from there, and `roll_back` undoes what was done or may have been.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum

from exhume.control.journal import JournalError
from exhume.control.managers import ActionFailed, Kept, Left
from exhume.model.clock import Clock, SystemClock
from exhume.model.errors import ExhumeError
from exhume.model.stop import Stop
from exhume.remedy.ledger import Entry, Fix, Ledger, Mark
from exhume.remedy.services.actions import Action


class Point(StrEnum):
    """A point within a step."""

    BEFORE = "before"
    WRITTEN = "written"
    ACTED = "acted"
    MARKED = "marked"


@dataclass(frozen=True, slots=True)
class Fixer:
    """Takes and undoes the steps of fixes. A stop request takes effect between two steps."""

    ledger: Ledger
    actions: Mapping[str, Action]
    stop: Stop
    notify: Callable[[Point, Entry], None] = lambda point, entry: None
    clock: Clock = field(default_factory=SystemClock)

    def apply(self, fix: Fix) -> Fix:
        """Take the remaining steps in order until one fails. The returned fix records how far it got."""
        if fix.rollback_at is not None:
            raise ActionFailed(f"fix {fix.id} was being rolled back; exhume fix rollback {fix.id} ends that")
        for index, entry in enumerate(fix.entries):
            if entry.mark in (Mark.DONE, Mark.LEFT):
                continue
            if self.stop.is_set():
                return fix
            if not entry.step.automatic:
                fix = self._marked(fix, index, Mark.LEFT, "this is for a person to do")
                continue
            try:
                fix = self._begun(fix, index)
                fix = self._taken(fix, index)
            except Left as error:
                fix = self._marked(fix, index, Mark.LEFT, str(error))
            except ExhumeError as error:
                # A step that was begun stays begun: it may be partly done.
                return self.ledger.save(fix.with_entry(index, why=str(error)))
        return self.ledger.save(replace(fix, finished_at=self.clock.wall_ns()))

    def roll_back(self, fix: Fix) -> Fix:
        """Undo every step that was begun, in reverse order. What can't be undone without harm is kept. If undoing a
        step fails, the steps before it are left as they are, and the rollback can be retried.

        A ledger that can't be written, on a full disk, does not prevent the rollback: the previous state has been read
        already, and undoing a step twice does no harm. JournalError is then raised at the end."""
        if fix.rollback_at is None:
            fix = self._noted(replace(fix, rollback_at=self.clock.wall_ns()))
        for index in reversed(range(len(fix.entries))):
            if not fix.entries[index].touched:
                continue
            if self.stop.is_set():
                return fix
            try:
                fix = self._undo(fix, index)
            except Kept as error:
                fix = self._marked(fix, index, Mark.KEPT, str(error), self._noted)
            except ExhumeError as error:
                return self.ledger.save(fix.with_entry(index, mark=Mark.UNDOING, why=str(error)))
        return self.ledger.save(fix)

    def _begun(self, fix: Fix, index: int) -> Fix:
        """Record the state found before a step."""
        entry = fix.entries[index]
        self.notify(Point.BEFORE, entry)
        # A retried step keeps the state recorded before its first attempt, not what a half-done attempt left.
        if entry.before is not None:
            return fix
        before = self._action(entry).look(entry.step)
        now = self.clock.wall_ns()
        fix = fix.with_entry(index, mark=Mark.BEGUN, before=before, began_at=now, why="")
        return self.ledger.save(replace(fix, applied_at=fix.applied_at or now))

    def _taken(self, fix: Fix, index: int) -> Fix:
        entry = fix.entries[index]
        self.notify(Point.WRITTEN, entry)
        result = self._action(entry).do(entry.step, entry.before or {})
        self.notify(Point.ACTED, entry)
        return self._marked(fix.with_entry(index, details=result.details), index, Mark.DONE, result.why)

    def _undo(self, fix: Fix, index: int) -> Fix:
        entry = fix.entries[index]
        action = self._action(entry)
        self.notify(Point.BEFORE, entry)
        fix = self._noted(fix.with_entry(index, mark=Mark.UNDOING))
        self.notify(Point.WRITTEN, fix.entries[index])
        why = action.undo(entry.step, entry.before or {})
        self.notify(Point.ACTED, fix.entries[index])
        return self._marked(fix, index, Mark.UNDONE, why, self._noted)

    def _marked(self, fix: Fix, index: int, mark: Mark, why: str, save: Callable[[Fix], Fix] | None = None) -> Fix:
        fix = fix.with_entry(index, mark=mark, why=why, ended_at=self.clock.wall_ns())
        fix = (save or self.ledger.save)(fix)
        self.notify(Point.MARKED, fix.entries[index])
        return fix

    def _noted(self, fix: Fix) -> Fix:
        """Save the fix if the ledger is writable."""
        with suppress(JournalError):
            self.ledger.save(fix)
        return fix

    def _action(self, entry: Entry) -> Action:
        action = self.actions.get(entry.step.action)
        if action is None:
            raise ActionFailed(f"this exhume knows no action {entry.step.action!r}; use the one that made the plan")
        return action
