"""Show the steps that remove a finding or stop a service: what each does exactly, its risk, how it is undone, what may
depend on it, and what it should change. Nothing is touched; the plan is kept, and `exhume fix apply` takes it.

TARGET is a unit, a container (docker:NAME, podman:NAME, cri:NAME), the cause of a finding in the recording, or zombies.
Without one it is every service that is in trouble and that nothing on this node needs, if more speaks for that than
that it never worked: those are listed, and done when they are named.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.fix_words import (
    add_place,
    add_target,
    place_words,
    positive_seconds,
    print_json,
    print_lines,
    reading_width,
)
from exhume.model.errors import UsageError


def add_options(parser: ArgumentParser) -> None:
    add_target(parser)
    add_place(parser)
    zombies = parser.add_argument_group("for the target zombies")
    zombies.add_argument("--apply", action="store_true", help="Take the steps, one after the other.")
    zombies.add_argument(
        "--accept-cost", action="store_true", help="Also take steps that may keep a core busy for seconds."
    )
    zombies.add_argument(
        "--only", action="append", metavar="STEP", default=[], help="Take only the step of this name; may be repeated."
    )
    zombies.add_argument(
        "--below", type=Path, metavar="CGROUP", help="Look only below this cgroup (its directory, or path in the tree)."
    )
    zombies.add_argument(
        "--search",
        action="append",
        type=Path,
        metavar="DIR",
        default=[],
        help="Directory to search first for files that pin; may be repeated.",
    )
    zombies.add_argument(
        "--max-time",
        type=positive_seconds,
        metavar="DURATION",
        default=60.0,
        help="Time that each step may take [default: 60s].",
    )


def run(options: Namespace) -> int:
    if options.target == "zombies":
        from exhume.cli.fix_zombies import run_zombies

        return run_zombies(options)
    for flag, given in (("--only", options.only), ("--below", options.below), ("--search", options.search)):
        if given:
            raise UsageError(f"{flag} is for the target zombies")
    if options.apply:
        raise UsageError(f"--apply is for the target zombies; for others it is exhume fix apply {options.target or ''}")
    return _services(options)


def _services(options: Namespace) -> int:
    from exhume.cli.fix_targets import make_saved_plan
    from exhume.cli.terminal import activity, suggest
    from exhume.present.fix_view import plan_json, plan_lines
    from exhume.remedy.plans import save_plan
    from exhume.remedy.services.node import open_node

    options.no_zombies = False
    with open_node(options.root or Path("/")) as node, activity("looking"):
        saved = make_saved_plan(node, options)
    if saved.plan.steps:
        save_plan(options.work_dir.absolute(), saved)
    if options.json:
        print_json(plan_json(saved.plan, saved.node, saved))
    else:
        print_lines(plan_lines(saved.plan, reading_width()))
    if any(step.automatic for step in saved.plan.steps):
        suggest(f"exhume fix apply{place_words(options.work_dir)}")
    return exit_codes.OK if saved.plan.steps else exit_codes.FINDINGS
