"""Take the steps of a plan, one after the other. Each is written down, with what was there before, before it is done,
so that `exhume fix rollback` can put it back, also after a crash or a reboot.

Without a TARGET it goes on with a fix that was interrupted, or else takes the last plan, if the node is still in the
state that the plan was made from. With one it plans anew, as `exhume fix plan` does.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli import exit_codes
from exhume.cli.args import value_of
from exhume.cli.fix_words import (
    add_place,
    add_target,
    can_ask,
    confirmed,
    place_words,
    positive_seconds,
    print_json,
    print_lines,
    printable,
    reading_width,
    seconds,
    tell_unreadable,
)
from exhume.model.errors import ExhumeError, UsageError
from exhume.model.settings import DIR

if TYPE_CHECKING:
    from exhume.model.stop import Stop
    from exhume.remedy.ledger import Fix, Ledger
    from exhume.remedy.plans import SavedPlan
    from exhume.remedy.services.node import Node

_BASELINE_S = 15.0


def add_options(parser: ArgumentParser) -> None:
    add_target(parser)
    add_place(parser)
    parser.add_argument("--yes", action="store_true", help="Don't ask; needed where nobody sits at a terminal.")
    parser.add_argument("--no-zombies", action="store_true", help="Leave the zombies as they are.")
    parser.add_argument(
        "--accept-cost", action="store_true", help="Also take steps that may keep a core busy for seconds."
    )
    parser.add_argument(
        "--max-time",
        type=positive_seconds,
        metavar="DURATION",
        default=60.0,
        help="Time that each step against zombies may take [default: 60s].",
    )
    parser.add_argument(
        "--stop-wait",
        type=seconds,
        metavar="DURATION",
        default=600.0,
        help="How long to wait for a unit to stop whose own TimeoutStopSec= is infinity [default: 10m].",
    )
    parser.add_argument(
        "--baseline",
        type=seconds,
        metavar="DURATION",
        default=_BASELINE_S,
        help="How long the measures are taken before anything is done, where no recording has them; 0s: not at all "
        "[default: 15s].",
    )


def run(options: Namespace) -> int:
    from exhume.cli.fix_acting import ENDS_SOON, actions_of, hear
    from exhume.cli.stopping import stopped_by_signals
    from exhume.remedy.fixes import Fixer
    from exhume.remedy.journal import hold_journal
    from exhume.remedy.ledger import Ledger
    from exhume.remedy.services.node import open_node

    place = options.work_dir.absolute()
    ledger = Ledger(place)
    tell_unreadable(ledger)
    with (
        open_node(options.root or _root(ledger, options.target)) as node,
        hold_journal(place, node.root.host) as journal,
        stopped_by_signals(ENDS_SOON) as stop,
    ):
        fix = _unfinished(ledger, node, options) or _begun(ledger, node, options, stop)
        if fix is None:
            return exit_codes.ERROR if not stop.is_set() else exit_codes.INTERRUPTED
        fix = Fixer(ledger, actions_of(node, journal, options, stop), stop, hear).apply(fix)
    return _told(fix, options, interrupted=stop.is_set())


def _root(ledger: "Ledger", target: str | None) -> Path:
    """Where the node is, when nobody says so: where it was when the plan was made."""
    from exhume.remedy.ledger import FixState
    from exhume.remedy.plans import last_plan

    fix = ledger.newest(FixState.UNFINISHED)
    if fix is not None:
        return Path(fix.root)
    return Path(last_plan(ledger.place).root) if target is None else Path("/")


def _unfinished(ledger: "Ledger", node: "Node", options: Namespace) -> "Fix | None":
    """A fix that was interrupted, to go on with. Raises ExhumeError where it can't, or another was asked for."""
    from exhume.cli.terminal import say
    from exhume.remedy.ledger import FixState, Mark
    from exhume.remedy.plans import changed
    from exhume.remedy.services.fingerprint import fingerprints

    fix = ledger.newest(FixState.UNFINISHED)
    if fix is None:
        return None
    ways = f"exhume fix apply goes on with it, exhume fix rollback {fix.id} undoes it"
    if options.target is not None and fix.target not in (options.target, f"{options.target}.service"):
        raise UsageError(f"fix {fix.id} of {fix.target} was interrupted; {ways}")
    if fix.machine != node.machine:
        raise UsageError(f"fix {fix.id} was begun on another machine; name its root directory with --root")
    left = [entry.step for entry in fix.entries if entry.mark is Mark.PLANNED]
    begun = {target for entry in fix.entries if entry.mark is not Mark.PLANNED for target in entry.step.targets}
    untouched = {target: print_ for target, print_ in fix.fingerprints.items() if target not in begun}
    if said := changed(untouched, fingerprints(left, node.controls)):
        raise UsageError(
            f"what fix {fix.id} is about changed: {'; '.join(said)}; exhume fix rollback {fix.id} undoes it"
        )
    say(f"going on with fix {fix.id} of {printable(fix.target)}")
    return fix


def _begun(ledger: "Ledger", node: "Node", options: Namespace, stop: "Stop") -> "Fix | None":
    """A new fix, agreed upon and written down, with nothing done yet; None where it is not wanted after all."""
    from exhume.cli.fix_baseline import measured
    from exhume.cli.fix_targets import make_saved_plan
    from exhume.cli.terminal import activity, say
    from exhume.present.fix_view import plan_lines
    from exhume.remedy.plans import save_plan

    if options.target is None:
        saved = _last(ledger, node, options)
    else:
        with activity("looking"):
            saved = make_saved_plan(node, options)
    automatic = [step for step in saved.plan.steps if step.automatic]
    if not automatic:
        why = "; ".join(saved.plan.refusals)
        named = f" (exhume fix apply {saved.plan.not_included[0].target})" if saved.plan.not_included else ""
        raise ExhumeError(printable(f"refused: {why}" if why else f"{saved.plan.summary} Nothing was done{named}"))
    if not options.json:
        print_lines(plan_lines(saved.plan, reading_width()))
        print(flush=True)
    for why in saved.plan.refusals:
        say(printable(f"refused: {why}"))
    for each in saved.plan.not_included:
        say(printable(f"not included: {each.target}; name it to include it"))
    if not options.yes:
        if not can_ask():
            raise UsageError("nobody sits at a terminal to ask; --yes takes these steps without asking")
        if not confirmed("Take these steps?", stop):
            say("nothing was done")
            return None
    save_plan(ledger.place, saved)
    effects = [effect for step in saved.plan.steps for effect in step.effects]
    baseline = measured(node, effects, value_of(options, DIR), options.baseline, stop)
    return None if stop.is_set() else ledger.save(saved.begun(baseline))


def _last(ledger: "Ledger", node: "Node", options: Namespace) -> "SavedPlan":
    """The last plan, when it still holds. Raises UsageError."""
    from exhume.model.clock import SystemClock
    from exhume.remedy.plans import last_plan
    from exhume.remedy.services.fingerprint import fingerprints
    from exhume.remedy.zombies.as_step import FREE_ZOMBIES

    saved = last_plan(ledger.place)
    if options.no_zombies:
        saved = saved.without(FREE_ZOMBIES)
    shelf = ledger.shelf()
    known = next((fix for fix in shelf.fixes if fix.id == saved.id), None)
    if known is not None:
        raise UsageError(f"the last plan was applied already, as fix {known.id} ({known.state}); make a new one")
    if any(each.id == saved.id for each in shelf.unreadable):
        raise UsageError(f"the last plan was begun already, as fix {saved.id}, which can't be read; make a new one")
    steps = [step for step in saved.plan.steps if step.automatic]
    found = fingerprints(steps, node.controls)
    said = saved.stale(node.boot_id, node.machine, SystemClock().wall_ns(), found)
    if said:
        raise UsageError(printable(f"the last plan no longer holds: {'; '.join(said)}; make a new one"))
    return _still_allowed(saved, node, options)


def _still_allowed(saved: "SavedPlan", node: "Node", options: Namespace) -> "SavedPlan":
    """Who asks may sit elsewhere now than when the plan was made. Raises UsageError."""
    from exhume.remedy.services.allowed import refusals_now

    if said := refusals_now(saved.plan.steps, node, forced=options.force_required):
        raise UsageError(printable(f"refused: {'; '.join(said)}"))
    return saved


def _told(fix: "Fix", options: Namespace, *, interrupted: bool) -> int:
    from exhume.cli.terminal import say, suggest
    from exhume.present.fix_list import fix_json, fix_lines
    from exhume.remedy.ledger import FixState

    if options.json:
        print_json(fix_json(fix))
    else:
        print_lines(fix_lines(fix, place_words(options.work_dir)))
    if fix.state is FixState.APPLIED:
        suggest(f"exhume fix verify {fix.id}{place_words(options.work_dir)}")
        return exit_codes.OK
    say(f"exhume: fix {fix.id} is not complete: exhume fix apply goes on with it, exhume fix rollback undoes it")
    return exit_codes.INTERRUPTED if interrupted else exit_codes.ERROR
