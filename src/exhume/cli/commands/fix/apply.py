"""Take the steps of a plan, one after the other. Each is journalled, with what was there before, before it is taken, so
that `exhume fix rollback` can undo it, also after a crash or a reboot.

Without a TARGET it continues a fix that was interrupted, or else takes the last plan, if the node is still in the state
that the plan was made from. With one it plans again, as `exhume fix plan` does.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli import exit_codes
from exhume.cli.commands.fix.arguments import (
    ActionOptions,
    PlanOptions,
    add_plan_options,
    positive_seconds,
    seconds,
    work_dir_flag,
)
from exhume.cli.commands.fix.terminal import (
    INTERRUPTED,
    actions_of,
    can_ask,
    confirmed,
    open_live_recording,
    print_json,
    print_lines,
    print_step,
    printable,
    reading_width,
    warn_unreadable,
)
from exhume.cli.terminal import ProgressBar, StagedProgress, activity, say, suggest
from exhume.model.errors import ExhumeError, UsageError

if TYPE_CHECKING:
    from exhume.model.stop import Stop
    from exhume.remedy.ledger import Fix, Ledger, SavedPlan
    from exhume.remedy.services.node import Node

_BASELINE_S = 15.0


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """The options of `apply`."""

    plan: PlanOptions
    actions: ActionOptions
    yes: bool
    baseline_s: float

    @classmethod
    def of(cls, options: Namespace) -> "ApplyOptions":
        actions = ActionOptions(options.accept_cost, options.max_time, options.stop_wait)
        return cls(PlanOptions.of(options), actions, options.yes, options.baseline)


def add_options(parser: ArgumentParser) -> None:
    add_plan_options(parser)
    parser.add_argument("--yes", action="store_true", help="Don't ask; needed without a terminal.")
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
        help="How long the measures are sampled before anything is changed, where no recording has them; 0s: not at "
        "all [default: 15s].",
    )


def run(options: Namespace) -> int:
    from exhume.cli.signals import stopped_by_signals
    from exhume.control.changes import hold_journal
    from exhume.remedy.fixer import Fixer
    from exhume.remedy.ledger import Ledger
    from exhume.remedy.services.node import open_node

    typed = ApplyOptions.of(options)
    ledger = Ledger(typed.plan.work_dir)
    warn_unreadable(ledger)
    with (
        open_node(typed.plan.root or _root(ledger, typed.plan.target)) as node,
        hold_journal(ledger.place, node.root.host) as journal,
        stopped_by_signals(INTERRUPTED) as stop,
    ):
        fix = _unfinished(ledger, node, typed.plan) or _begin(ledger, node, typed, stop)
        if fix is None:
            return exit_codes.INTERRUPTED if stop.is_set() else exit_codes.ERROR
        fix = Fixer(ledger, actions_of(node, journal, stop, typed.actions), stop, print_step).apply(fix)
    return _report(fix, options, interrupted=stop.is_set())


def _root(ledger: "Ledger", target: str | None) -> Path:
    """Where the node is without --root: where it was when the plan was made."""
    from exhume.remedy.ledger import FixState, last_plan

    fix = ledger.newest(FixState.UNFINISHED)
    if fix is not None:
        return Path(fix.root)
    return Path(last_plan(ledger.place).root) if target is None else Path("/")


def _unfinished(ledger: "Ledger", node: "Node", options: PlanOptions) -> "Fix | None":
    """A fix that was interrupted, to continue. Raises UsageError where it can't be, or another was requested."""
    from exhume.remedy.ledger import FixState, Mark, changed
    from exhume.remedy.services.planner import fingerprints

    fix = ledger.newest(FixState.UNFINISHED)
    if fix is None:
        return None
    ways = f"exhume fix apply continues it, exhume fix rollback {fix.id} undoes it"
    if options.target is not None and fix.target not in (options.target, f"{options.target}.service"):
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


def _begin(ledger: "Ledger", node: "Node", options: ApplyOptions, stop: "Stop") -> "Fix | None":
    """A new fix, confirmed and journalled, with nothing done yet; None where it was declined."""
    from exhume.present.fix_view import plan_lines
    from exhume.remedy.ledger import save_plan
    from exhume.remedy.plan import plan_fix

    if options.plan.target is None:
        saved = _last(ledger, node, options.plan)
    else:
        with activity("planning"), StagedProgress() as progress:
            saved = plan_fix(node, options.plan.request(node, progress))
    plan = saved.plan
    if not any(step.automatic for step in plan.steps):
        why = "; ".join(plan.refusals)
        named = f" (exhume fix apply {plan.not_included[0].target})" if plan.not_included else ""
        by_hand = "; its steps are for a person to take, see exhume fix plan" if plan.steps else ""
        nothing = f"{plan.summary.rstrip('.')}{by_hand}. Nothing was done{named}"
        raise ExhumeError(printable(f"refused: {why}" if why else nothing))
    if not options.plan.json:
        print_lines(plan_lines(plan, reading_width()))
        print(flush=True)
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


def _baseline(node: "Node", saved: "SavedPlan", options: ApplyOptions, stop: "Stop") -> "dict[str, object] | None":
    """The measures before anything is changed, for `exhume fix verify`; None where there is nothing to measure."""
    from exhume.remedy.verify.proof import take_node_baseline

    effects = [effect for step in saved.plan.steps for effect in step.effects]
    if not effects or options.baseline_s <= 0:
        return None
    recording = open_live_recording(node, options.plan.directory)
    with ProgressBar("measuring before anything is changed") as bar:
        return take_node_baseline(node.root, effects, options.baseline_s, recording, stop=stop, progress=bar).to_dict()


def _last(ledger: "Ledger", node: "Node", options: PlanOptions) -> "SavedPlan":
    """The last plan, when it still holds. Raises UsageError."""
    from exhume.model.clock import SystemClock
    from exhume.remedy.ledger import last_plan
    from exhume.remedy.services.planner import fingerprints
    from exhume.remedy.services.refusals import refusals_now
    from exhume.remedy.zombies.apply import FREE_ZOMBIES

    saved = last_plan(ledger.place)
    if not options.free_zombies:
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


def _report(fix: "Fix", options: Namespace, *, interrupted: bool) -> int:
    from exhume.present.fix_list import fix_json, fix_lines
    from exhume.remedy.ledger import FixState

    where = work_dir_flag(options.work_dir)
    if options.json:
        print_json(fix_json(fix))
    else:
        print_lines(fix_lines(fix, where))
    if fix.state is FixState.APPLIED:
        suggest(f"exhume fix verify {fix.id}{where}")
        return exit_codes.ERROR if failed_parts(fix) else exit_codes.OK
    say(f"exhume: fix {fix.id} is not complete: exhume fix apply continues it, exhume fix rollback undoes it")
    return exit_codes.INTERRUPTED if interrupted else exit_codes.ERROR


def failed_parts(fix: "Fix") -> Sequence[str]:
    """The ids of parts of steps that failed; the rest of their step was done."""
    from exhume.model.remedy import Status

    outcomes = (outcome for entry in fix.entries for outcome in entry.details.get("outcomes", ()))
    return [outcome["id"] for outcome in outcomes if outcome["status"] == Status.FAILED]
