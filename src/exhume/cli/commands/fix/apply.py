"""Takes the steps of a plan."""

from argparse import Namespace
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from exhume.cli import exit_codes
from exhume.cli.args import value_of
from exhume.cli.commands.fix.plan import check_options, make_plan
from exhume.cli.commands.fix.terminal import (
    INTERRUPTED,
    StepProgress,
    actions_of,
    can_ask,
    confirmed,
    print_document,
    printable,
    reach_node,
    reading_width,
    warn_unreadable,
    work_dir_flag,
)
from exhume.cli.signals import stopped_by_signals
from exhume.cli.terminal import ProgressBar, say, suggest
from exhume.collect.cgroup.pins import KnownPins
from exhume.control.changes import hold_journal
from exhume.model.clock import SystemClock
from exhume.model.errors import ExhumeError, RecordingError, UsageError
from exhume.model.remedy import Status
from exhume.model.settings import DIR
from exhume.model.stop import Stop
from exhume.present.fix_view import fix_json, fix_lines, plan_lines
from exhume.remedy.fixer import Fixer
from exhume.remedy.ledger import Fix, FixState, Ledger, Mark, SavedPlan, changed, last_plan, save_plan
from exhume.remedy.services.node import Node
from exhume.remedy.services.planner import fingerprints
from exhume.remedy.services.refusals import refusals_now
from exhume.remedy.verify.proof import take_baseline
from exhume.remedy.verify.restarts import NodeRestarts, histories
from exhume.remedy.zombies.apply import FREE_ZOMBIES
from exhume.store.read.recording import Recording


def run(options: Namespace) -> int:
    check_options(options)
    ledger = Ledger(options.work_dir)
    warn_unreadable(ledger)
    unfinished = ledger.newest(FixState.UNFINISHED)
    # Without --root the node is where it was when the plan was made.
    usual = Path("/")
    if unfinished is not None:
        usual = Path(unfinished.root)
    elif options.target is None:
        usual = Path(last_plan(ledger.place).root)
    with (
        reach_node(options.root or usual) as node,
        hold_journal(ledger.place, node.root.host) as journal,
        stopped_by_signals(INTERRUPTED) as stop,
    ):
        known = KnownPins()
        fix = _unfinished(ledger, node, options.target) or _begin(ledger, node, options, stop, known)
        if fix is None:
            return exit_codes.INTERRUPTED if stop.is_set() else exit_codes.ERROR
        progress = StepProgress()
        actions = actions_of(
            node,
            journal,
            stop,
            progress,
            accept_cost=options.accept_cost,
            step_s=options.max_time,
            stop_wait_s=options.stop_wait,
            known=known,
        )
        fix = Fixer(ledger, actions, stop, progress.step).apply(fix)
    where = work_dir_flag(options.work_dir)
    print_document(options, fix_json(fix), fix_lines(fix, where))
    if fix.state is FixState.APPLIED:
        suggest(f"exhume fix verify {fix.id}{where}")
        # A step may be done though a part of it failed.
        outcomes = (outcome for entry in fix.entries for outcome in entry.details.get("outcomes", ()))
        failed = any(outcome["status"] == Status.FAILED for outcome in outcomes)
        return exit_codes.ERROR if failed else exit_codes.OK
    say(f"exhume: fix {fix.id} is not complete: exhume fix apply continues it, exhume fix rollback undoes it")
    return exit_codes.INTERRUPTED if stop.is_set() else exit_codes.ERROR


def _unfinished(ledger: Ledger, node: Node, target: str | None) -> Fix | None:
    """A fix that was interrupted, to continue. Raises UsageError where it can't be, or another was requested."""
    fix = ledger.newest(FixState.UNFINISHED)
    if fix is None:
        return None
    ways = f"exhume fix apply continues it, exhume fix rollback {fix.id} undoes it"
    if target is not None and fix.target not in (target, f"{target}.service"):
        raise UsageError(f"fix {fix.id} of {fix.target} was interrupted; {ways}")
    if fix.machine != node.machine:
        raise UsageError(f"fix {fix.id} was begun on another machine; name its root directory with --root")
    left = [entry.step for entry in fix.entries if entry.mark is Mark.PLANNED]
    begun = {target for entry in fix.entries if entry.mark is not Mark.PLANNED for target in entry.step.targets}
    untouched = {target: print_ for target, print_ in fix.fingerprints.items() if target not in begun}
    if differences := changed(untouched, fingerprints(left, node.controls)):
        raise UsageError(
            f"what fix {fix.id} is about changed: {'; '.join(differences)}; exhume fix rollback {fix.id} undoes it"
        )
    say(f"continuing fix {fix.id} of {printable(fix.target)}")
    return fix


def _begin(ledger: Ledger, node: Node, options: Namespace, stop: Stop, known: KnownPins) -> Fix | None:
    """A new fix, confirmed and journalled, with nothing done yet; None where it was declined."""
    saved = _last(ledger, node, options) if options.target is None else make_plan(options, node, known, stop)
    if stop.is_set():
        return None
    plan = saved.plan
    if not any(step.automatic for step in plan.steps):
        why = "; ".join(plan.refusals)
        named = f" (exhume fix apply {plan.not_included[0].target})" if plan.not_included else ""
        by_hand = "; its steps are for a person to take, see exhume fix plan" if plan.steps else ""
        nothing = f"{plan.summary.rstrip('.')}{by_hand}. Nothing was done{named}"
        raise ExhumeError(printable(f"refused: {why}" if why else nothing))
    if not options.json:
        print_document(options, None, [*plan_lines(plan, reading_width()), ""])
    for why in plan.refusals:
        say(printable(f"refused: {why}"))
    for each in plan.not_included:
        say(printable(f"not included: {each.target}; name it to include it"))
    if not options.yes:
        if not can_ask():
            raise UsageError("not a terminal, cannot ask for confirmation; pass --yes")
        if not confirmed("Take these steps?", stop):
            say("nothing was done")
            return None
    save_plan(ledger.place, saved)
    baseline = _baseline(node, saved, options, stop)
    return None if stop.is_set() else ledger.save(saved.begun(baseline))


def _baseline(node: Node, saved: SavedPlan, options: Namespace, stop: Stop) -> dict[str, Any] | None:
    """The measures before anything is changed, for `exhume fix verify`; None where there is nothing to measure."""
    effects = [effect for step in saved.plan.steps for effect in step.effects]
    if not effects or options.baseline <= 0:
        return None
    recording = None
    if node.root.is_here:
        with suppress(RecordingError):
            recording = Recording.open(value_of(options, DIR))
    with closing(NodeRestarts(node.root)) as restarts, ProgressBar("measuring before anything is changed") as bar:
        return take_baseline(
            node.root.host,
            effects,
            options.baseline,
            recording,
            restarts=restarts,
            records=lambda: histories(node.root, effects),
            stop=stop,
            progress=bar,
        ).to_dict()


def _last(ledger: Ledger, node: Node, options: Namespace) -> SavedPlan:
    """The last plan, when it still holds. Raises UsageError."""
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
    if differences := saved.stale(node.boot_id, node.machine, SystemClock().wall_ns(), found):
        raise UsageError(printable(f"the last plan no longer holds: {'; '.join(differences)}; make a new one"))
    # This session may have come in another way than when the plan was made.
    if refused := refusals_now(saved.plan.steps, node, forced=options.force_required):
        raise UsageError(printable(f"refused: {'; '.join(refused)}"))
    return saved
