"""`exhume fix plan zombies`: the steps that free zombies, with what each frees, costs and risks; --apply takes them."""

import platform
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli import exit_codes
from exhume.cli.fix_words import confirmed, print_json, print_lines, reading_width
from exhume.model.errors import UsageError

if TYPE_CHECKING:
    from exhume.model.remedy import Outcome, Plan, Report, Step
    from exhume.model.stop import Stop
    from exhume.remedy.journal import Journal
    from exhume.remedy.zombies.look import Watch


def run_zombies(options: Namespace) -> int:
    """Plan, and with --apply do it."""
    from exhume.cli.stopping import stopped_by_signals
    from exhume.cli.terminal import ProgressBar, suggest
    from exhume.procfs.host import Host
    from exhume.remedy.journal import hold_journal
    from exhume.remedy.zombies.look import Watch
    from exhume.remedy.zombies.plan import make_plan

    host = Host()
    work_dir = options.work_dir.absolute()
    watch = Watch(host, work_dir, _cgroup(options.below), [path.absolute() for path in options.search])
    with ProgressBar("looking") as bar:
        plan = make_plan(watch.situation(bar))
    _check_names(options.only, plan)
    if not options.apply:
        _show(plan, options.json)
        if any(step.automatic for step in plan.steps):
            suggest("exhume fix plan zombies --apply")
        return exit_codes.OK if plan.steps else exit_codes.FINDINGS
    if not plan.steps:
        _show(plan, options.json)
        return exit_codes.FINDINGS
    with hold_journal(work_dir, host) as journal, stopped_by_signals() as stop:
        report = _applied(options, watch, plan, journal, stop)
    _show_report(report, options.json)
    return _exit_code(report)


def _applied(options: Namespace, watch: "Watch", plan: "Plan", journal: "Journal", stop: "Stop") -> "Report":
    """Take the steps, and say on the way what each does and frees."""
    from exhume.cli.terminal import say
    from exhume.present.fix_view import outcome_line
    from exhume.remedy.zombies.apply import Applier, Tell, Wishes
    from exhume.remedy.zombies.look import memory_root

    def began(step: "Step", core: int | None) -> None:
        say(f"{step.id}: {step.title}{'' if core is None else f', on core {core}'} …")

    def counted(step: "Step", dying: int | None) -> None:
        if dying is not None and sys.stderr.isatty():
            say(f"{step.id}: {dying:,} zombies")

    def ended(outcome: "Outcome") -> None:
        say(outcome_line(outcome))

    if not options.json:
        _show(plan, False)
        print(flush=True)
    wishes = Wishes(
        accept=lambda step: options.accept_cost or _confirmed(step, stop),
        only=frozenset(options.only),
        step_s=options.max_time,
    )
    applier = Applier(watch.host, stop, journal, memory_root(watch.host), watch, Tell(began, counted, ended))
    return applier.apply(plan, wishes)


def _confirmed(step: "Step", stop: "Stop") -> bool:
    """Ask a person whether a spike is all right; without one it isn't."""
    from exhume.present.fix_view import cost_words

    return confirmed(f"{step.id}: {cost_words(step)}. Go on?", stop)


def _show(plan: "Plan", as_json: bool) -> None:
    from exhume.present.fix_view import plan_json, plan_lines

    if as_json:
        print_json(plan_json(plan, platform.node()))
        return
    print_lines(plan_lines(plan, reading_width()))


def _show_report(report: "Report", as_json: bool) -> None:
    from exhume.present.fix_view import report_json, report_lines

    if as_json:
        print_json(report_json(report, platform.node()))
        return
    print()
    print_lines(report_lines(report, reading_width()))


def _exit_code(report: "Report") -> int:
    from exhume.model.remedy import Status

    if report.interrupted:
        return exit_codes.INTERRUPTED
    failed = any(outcome.status == Status.FAILED for outcome in report.outcomes)
    return exit_codes.ERROR if failed else exit_codes.OK


def _cgroup(path: Path | None) -> Path | None:
    """A cgroup by its directory, or by its path in the hierarchy as /proc/PID/cgroup tells it."""
    if path is None:
        return None
    from exhume.procfs.host import Host
    from exhume.remedy.zombies.look import memory_root

    root = memory_root(Host())
    named = root / str(path).lstrip("/") if root else path
    found = next((each for each in (path, named) if (each / "cgroup.procs").exists()), None)
    if found is None:
        raise UsageError(f"{path} is no cgroup with the memory controller; --below takes its directory or its path")
    return found


def _check_names(names: list[str], plan: "Plan") -> None:
    known = [step.id for step in plan.steps]
    for name in names:
        if name not in known:
            raise UsageError(f"the plan has no step {name!r}; it has {', '.join(known) or 'none'}")
