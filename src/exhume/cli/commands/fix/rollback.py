"""Undoes what a fix changed."""

from argparse import Namespace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.commands.fix.terminal import (
    INTERRUPTED,
    StepProgress,
    actions_of,
    print_document,
    printable,
    reach_node,
    warn_unreadable,
    work_dir_flag,
)
from exhume.cli.signals import stopped_by_signals
from exhume.cli.terminal import say
from exhume.control.changes import hold_journal
from exhume.control.journal import JournalError
from exhume.model.errors import ExhumeError, UsageError
from exhume.present.fix_view import fix_json, fix_lines
from exhume.remedy.fixer import Fixer
from exhume.remedy.ledger import Fix, FixState, Ledger, Mark, plan_of


def run(options: Namespace) -> int:
    ledger = Ledger(options.work_dir)
    fix = _chosen(ledger, options.id)
    with (
        reach_node(options.root or Path(fix.root)) as node,
        hold_journal(ledger.place, node.root.host) as journal,
        stopped_by_signals(INTERRUPTED) as stop,
    ):
        # The process that held the lock may have changed it.
        fix = ledger.read(fix.id)
        if fix.machine != node.machine:
            raise UsageError(f"fix {fix.id} was made on another machine; name its root directory with --root")
        progress = StepProgress()
        fix = Fixer(ledger, actions_of(node, journal, stop, progress), stop, progress.step).roll_back(fix)
    print_document(options, fix_json(fix), fix_lines(fix, work_dir_flag(options.work_dir)))
    if fix.state is FixState.ROLLED_BACK:
        return exit_codes.OK
    for entry in fix.entries:
        if entry.mark in (Mark.KEPT, Mark.UNDOING) and entry.why:
            say(f"exhume: {printable(entry.step.id)} was not undone: {printable(entry.why)}")
    return exit_codes.INTERRUPTED if stop.is_set() else exit_codes.ERROR


def _chosen(ledger: Ledger, id_: str | None) -> Fix:
    if id_ is not None:
        try:
            return ledger.read(id_)
        except JournalError as error:
            raise ExhumeError(printable(f"{error}. {_by_hand(ledger, id_)}")) from None
    warn_unreadable(ledger)
    found = ledger.newest(*(state for state in FixState if state is not FixState.ROLLED_BACK))
    if found is None:
        raise UsageError(f"there is no fix to roll back in {ledger.place}; see exhume fix list")
    return found


def _by_hand(ledger: Ledger, id_: str) -> str:
    """How a fix is undone whose file can't be read: by the plan that it was made by, where that is still there."""
    marked = f"grep -rl 'exhume fix, {id_}' /etc/systemd/system lists its files"
    unknown = "What was there before is not known, so nothing was undone"
    try:
        steps = plan_of(ledger.place, id_).plan.steps
    except ExhumeError:
        return f"{unknown}. By hand: {marked}"
    commands = [command for step in reversed(steps) for command in step.undo_commands]
    if not commands:
        return f"{unknown}. Its plan has nothing to undo; {marked}"
    return f"{unknown}. By hand, by its plan: {' && '.join(commands)}"
