"""Show the steps that remove a finding or stop a service: what each does exactly, its risk, how it is undone, what may
depend on it, and what it should change. Nothing is changed; the plan is kept, and `exhume fix apply` takes it.

TARGET is a unit, a container (docker:NAME, podman:NAME, cri:NAME), the cause of a finding in the recording, or zombies.
Without one it is every service that is in trouble and that nothing on this node needs. Services whose only evidence is
that they never worked are listed but not included; name them to include them.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.commands.fix.arguments import PlanOptions, add_plan_options, work_dir_flag
from exhume.cli.commands.fix.terminal import print_json, print_lines, reading_width
from exhume.cli.terminal import StagedProgress, activity, suggest


def add_options(parser: ArgumentParser) -> None:
    add_plan_options(parser)


def run(options: Namespace) -> int:
    from exhume.present.fix_view import plan_json, plan_lines
    from exhume.remedy.ledger import save_plan
    from exhume.remedy.plan import plan_fix
    from exhume.remedy.services.node import open_node

    typed = PlanOptions.of(options)
    with open_node(typed.root or Path("/")) as node, activity("planning"), StagedProgress() as progress:
        saved = plan_fix(node, typed.request(node, progress))
    if saved.plan.steps:
        save_plan(typed.work_dir, saved)
    if typed.json:
        print_json(plan_json(saved))
    else:
        print_lines(plan_lines(saved.plan, reading_width()))
    if any(step.automatic for step in saved.plan.steps):
        suggest(f"exhume fix apply{work_dir_flag(options.work_dir)}")
    return exit_codes.OK if saved.plan.steps else exit_codes.NO_DATA
