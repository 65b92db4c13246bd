"""Undo what a fix changed, the last step first: its files are removed, policies restored, and what ran before is
started again. It can be repeated, and works after a crash in the middle of a fix and after a reboot.

Without an ID it is the newest fix that is not rolled back yet.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli import exit_codes
from exhume.cli.commands.fix.arguments import ActionOptions, add_root, add_work_dir, work_dir_flag
from exhume.cli.commands.fix.terminal import (
    INTERRUPTED,
    actions_of,
    print_json,
    print_lines,
    print_step,
    printable,
    warn_unreadable,
)
from exhume.cli.terminal import say
from exhume.model.errors import ExhumeError, UsageError

if TYPE_CHECKING:
    from exhume.remedy.ledger import Fix, Ledger


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="The fix, as exhume fix list names it.")
    add_root(parser, "as when it was applied")
    add_work_dir(parser)


def run(options: Namespace) -> int:
    from exhume.cli.signals import stopped_by_signals
    from exhume.control.changes import hold_journal
    from exhume.remedy.fixer import Fixer
    from exhume.remedy.ledger import Ledger
    from exhume.remedy.services.node import open_node

    place = options.work_dir.absolute()
    ledger = Ledger(place)
    fix = _chosen(ledger, options.id)
    with (
        open_node(options.root or Path(fix.root)) as node,
        hold_journal(place, node.root.host) as journal,
        stopped_by_signals(INTERRUPTED) as stop,
    ):
        # The process that held the lock may have changed it.
        fix = ledger.read(fix.id)
        if fix.machine != node.machine:
            raise UsageError(f"fix {fix.id} was made on another machine; name its root directory with --root")
        fix = Fixer(ledger, actions_of(node, journal, stop, ActionOptions()), stop, print_step).roll_back(fix)
    return _report(fix, options, interrupted=stop.is_set())


def _chosen(ledger: "Ledger", id_: str | None) -> "Fix":
    from exhume.control.journal import JournalError
    from exhume.remedy.ledger import FixState

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


def _by_hand(ledger: "Ledger", id_: str) -> str:
    """How a fix is undone whose file can't be read: by the plan that it was made by, where that is still there."""
    from exhume.remedy.ledger import plan_of

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


def _report(fix: "Fix", options: Namespace, *, interrupted: bool) -> int:
    from exhume.present.fix_list import fix_json, fix_lines
    from exhume.remedy.ledger import FixState, Mark

    if options.json:
        print_json(fix_json(fix))
    else:
        print_lines(fix_lines(fix, work_dir_flag(options.work_dir)))
    if fix.state is FixState.ROLLED_BACK:
        return exit_codes.OK
    for entry in fix.entries:
        if entry.mark in (Mark.KEPT, Mark.UNDOING) and entry.why:
            say(f"exhume: {printable(entry.step.id)} was not undone: {printable(entry.why)}")
    return exit_codes.INTERRUPTED if interrupted else exit_codes.ERROR
