"""Makes a plan, for `exhume fix plan` and for `exhume fix apply TARGET`."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import value_of
from exhume.cli.commands.audit import open_recording
from exhume.cli.commands.diagnose import find_target
from exhume.cli.commands.fix.terminal import print_document, reach_node, reading_width, work_dir_flag
from exhume.cli.recording_args import RecordingView
from exhume.cli.terminal import activity, suggest
from exhume.collect.cgroup.pins import KnownPins
from exhume.diagnose.engine import diagnose
from exhume.diagnose.growth import THRESHOLDS
from exhume.model.errors import UsageError
from exhume.model.finding import Finding
from exhume.model.remedy import Plan
from exhume.model.settings import DIR
from exhume.model.stop import Stop
from exhume.model.text import listed
from exhume.present.fix_view import plan_json, plan_lines
from exhume.remedy.ledger import SavedPlan, save_plan
from exhume.remedy.plan import ZOMBIES, PlanRequest, Progress, plan_fix
from exhume.remedy.services.node import Node
from exhume.remedy.zombies.situation import Scope, find_cgroup
from exhume.store.read.cached import CachedRecording


def run(options: Namespace) -> int:
    check_options(options)
    with reach_node(options.root or Path("/")) as node:
        saved = make_plan(options, node)
    if saved.plan.steps:
        save_plan(options.work_dir, saved)
    print_document(options, plan_json(saved), plan_lines(saved.plan, reading_width()))
    if any(step.automatic for step in saved.plan.steps) and not is_needless(saved.plan):
        suggest(f"exhume fix apply{work_dir_flag(options.work_dir)}")
    return exit_codes.OK if saved.plan.steps else exit_codes.NO_DATA


def is_needless(plan: Plan) -> bool:
    """Whether the plan frees zombies that are so few that nothing needs it."""
    return plan.target == ZOMBIES and plan.count is not None and plan.count <= THRESHOLDS.normal


def check_options(options: Namespace) -> None:
    """Raises UsageError where an option does not fit the target."""
    for flag, given in (("--only", options.only), ("--below", options.below), ("--search", options.search)):
        if given and options.target != ZOMBIES:
            raise UsageError(f"{flag} is for the target zombies")
    if options.cpu_weight is not None and options.target in (None, ZOMBIES):
        raise UsageError("--cpu-weight is for a unit or a container; name it as the target")


def make_plan(options: Namespace, node: Node, known: KnownPins | None = None, stop: Stop | None = None) -> SavedPlan:
    """The plan that the options ask for; `known` keeps the pins of zombies that it found, `stop` ends the search for
    them early. Raises ExhumeError."""
    directory = value_of(options, DIR)
    below = None if options.below is None else find_cgroup(node.root.host, options.below)
    with activity("planning") as progress:
        return plan_fix(
            node,
            PlanRequest(
                target=options.target,
                work_dir=options.work_dir,
                force_required=options.force_required,
                free_zombies=not options.no_zombies,
                cpu_weight=options.cpu_weight,
                scope=Scope(below, tuple(path.absolute() for path in options.search), tuple(options.only)),
                find=lambda cause: _finding(cause, directory, options.at, progress),
                recording=lambda: open_recording(node.root, directory, given=bool(options.dir)),
                progress=progress,
                known=known if known is not None else KnownPins(),
                stop=stop,
            ),
        )


def _finding(cause: str, directory: Path, at: str | None, progress: Progress) -> Finding:
    """Diagnose the recording. Raises UsageError where it does not show the cause."""
    when = Namespace(dir=str(directory), at=at, last=None, since=None, until=None, utc=False)
    view = RecordingView.open(when)
    view = replace(view, recording=CachedRecording(view.recording))
    target = find_target(view, when)
    if target.window.empty:
        raise UsageError("nothing was recorded at that time; exhume info shows what is recorded")
    found = diagnose(view.recording, target.window, at=target.at, progress=lambda share: progress("diagnosing", share))
    fitting = [finding for finding in found.findings if finding.cause == cause]
    if not fitting:
        others = listed([finding.cause for finding in found.findings])
        instead = f", but {others}" if others else ", nor another cause"
        raise UsageError(f"the recording shows no {cause} at that time{instead}; choose another moment with --at")
    return fitting[0]
