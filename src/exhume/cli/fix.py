"""Propose what removes a finding, in the order of least harm; do it only when asked to."""

import os
import platform
import select
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli import exits
from exhume.cli.options import Parser
from exhume.model.clock import NANOS
from exhume.model.errors import ExhumeError, UsageError
from exhume.model.times import parse_duration

if TYPE_CHECKING:
    from exhume.model.remedy import Outcome, Plan, Report, Step
    from exhume.model.stop import Stop
    from exhume.remedy.journal import Journal
    from exhume.remedy.zombies.look import Watch

PLAN = "Show which steps remove a finding, with what each frees, costs and risks; with --apply, take them."
ZOMBIES = "Free removed memory cgroups that live on in the kernel: what fits the kind of page that holds them."


def add_options(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Parser
    )
    plan = actions.add_parser("plan", help="Show the steps; --apply takes them.", description=PLAN)
    targets = plan.add_subparsers(title="targets", dest="target", metavar="TARGET", required=True, parser_class=Parser)
    _zombie_options(targets.add_parser("zombies", help="Removed memory cgroups that live on.", description=ZOMBIES))


def _zombie_options(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="Print JSON (versioned, documented) instead of text.")
    parser.add_argument("--apply", action="store_true", help="Take the steps, one after the other.")
    parser.add_argument(
        "--accept-cost", action="store_true", help="Also take steps that may keep a core busy for seconds."
    )
    parser.add_argument(
        "--only", action="append", metavar="STEP", default=[], help="Take only the step of this name; may be repeated."
    )
    parser.add_argument(
        "--below", type=Path, metavar="CGROUP", help="Look only below this cgroup (its directory, or path in the tree)."
    )
    parser.add_argument(
        "--search",
        action="append",
        type=Path,
        metavar="DIR",
        default=[],
        help="Directory to search first for files that pin; may be repeated.",
    )
    parser.add_argument(
        "--max-time",
        type=_seconds,
        metavar="DURATION",
        default=60.0,
        help="Time that each step may take [default: 60s].",
    )
    parser.add_argument(
        "--work-dir",
        type=Path,
        metavar="DIR",
        default=Path("/var/lib/exhume-fix"),
        help="Directory on a disk for a temporary swapfile and the journal [default: /var/lib/exhume-fix].",
    )


def run(options: Namespace) -> int:
    if os.geteuid() != 0:
        raise ExhumeError(
            "exhume fix needs root: it reads which cgroup pages belong to, and changes them; run it with sudo"
        )
    return _zombies(options)


def _zombies(options: Namespace) -> int:
    from exhume.cli.speaking import ProgressBar, suggest
    from exhume.cli.stopping import stopped_by_signals
    from exhume.collect.host import Host
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
        return exits.OK if plan.steps else exits.NOTHING
    if not plan.steps:
        _show(plan, options.json)
        return exits.NOTHING
    with hold_journal(work_dir, host) as journal, stopped_by_signals() as stop:
        report = _applied(options, watch, plan, journal, stop)
    _show_report(report, options.json)
    return _exit_code(report)


def _applied(options: Namespace, watch: "Watch", plan: "Plan", journal: "Journal", stop: "Stop") -> "Report":
    """Take the steps, and say on the way what each does and frees."""
    from exhume.cli.speaking import say
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
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from exhume.present.fix_view import cost_words

    sys.stderr.write(f"{step.id}: {cost_words(step)}. Go on? [y/N] ")
    sys.stderr.flush()
    # Waiting for an answer must not keep a stop from being heard.
    while not stop.is_set():
        if select.select([sys.stdin], [], [], 0.2)[0]:
            return sys.stdin.readline().strip().lower() in ("y", "yes")
    return False


def _show(plan: "Plan", as_json: bool) -> None:
    from exhume.present.fix_view import plan_json, plan_lines

    if as_json:
        _print_json(plan_json(plan, platform.node()))
        return
    for line in plan_lines(plan):
        print(_printable(line))


def _show_report(report: "Report", as_json: bool) -> None:
    from exhume.present.fix_view import report_json, report_lines

    if as_json:
        _print_json(report_json(report, platform.node()))
        return
    print()
    for line in report_lines(report):
        print(_printable(line))


def _print_json(document: object) -> None:
    import json

    print(json.dumps(document))


def _printable(line: str) -> str:
    """File names may hold bytes that are no text."""
    return line.encode(errors="backslashreplace").decode()


def _exit_code(report: "Report") -> int:
    from exhume.model.remedy import Status

    if report.interrupted:
        return exits.INTERRUPTED
    failed = any(outcome.status == Status.FAILED for outcome in report.outcomes)
    return exits.FAILED if failed else exits.OK


def _cgroup(path: Path | None) -> Path | None:
    """A cgroup by its directory, or by its path in the hierarchy as /proc/PID/cgroup tells it."""
    if path is None:
        return None
    from exhume.collect.host import Host
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


def _seconds(text: str) -> float:
    nanos = parse_duration(text)
    if nanos <= 0:
        raise UsageError("--max-time has to be above 0")
    return nanos / NANOS
