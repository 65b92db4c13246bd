"""Plan, apply, verify and roll back what removes a finding, least disruptive step first."""

import importlib
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from exhume.cli.args import Parser, add_json, add_setting, option, whole_number
from exhume.model.clock import NANOS
from exhume.model.errors import ExhumeError, UsageError
from exhume.model.settings import DIR, UTC
from exhume.model.times import parse_duration

WORK_DIR = Path("/var/lib/exhume-fix")

PLAN = """Show the steps that remove a finding or stop a service: what each does exactly, its risk, how it is undone,
what may depend on it, and what it should change. Nothing is changed; the plan is kept, and `exhume fix apply` takes it.

TARGET is a unit, a container (docker:NAME, podman:NAME, cri:NAME), the cause of a finding in the recording, or zombies.
Without one it is every service that is in trouble and that nothing on this node needs. Services whose only evidence is
that they never worked are listed but not included; name them to include them.
"""
APPLY = """Take the steps of a plan, one after the other. Each is journalled, with what was there before, before it is
taken, so that `exhume fix rollback` can undo it, also after a crash or a reboot.

Without a TARGET it continues a fix that was interrupted, or else takes the last plan, if the node is still in the state
that the plan was made from. With one it plans again, as `exhume fix plan` does.
"""
VERIFY = """Compare the measures that a fix should change with the time before it: improved, unchanged, worse, or not
proven, each with the figures and the reason.

Without an ID it is the newest fix that was applied. Time since the fix that a recording covers need not be waited for.
"""
ROLLBACK = """Undo what a fix changed, the last step first: its files are removed, policies restored, and what ran
before is started again. It can be repeated, and works after a crash in the middle of a fix and after a reboot.

Without an ID it is the newest fix that is not rolled back yet.
"""
LIST = "List the fixes of a work directory, the newest first, and their states."


def _seconds(text: str) -> float:
    return parse_duration(text) / NANOS


def _positive_seconds(text: str) -> float:
    if (value := _seconds(text)) <= 0:
        raise UsageError("--max-time must be greater than 0, for example 60s")
    return value


def _add_work_dir(parser: ArgumentParser) -> None:
    add_json(parser)
    about = "Directory on a disk for plans, fixes and a temporary swapfile."
    option(parser, "--work-dir DIR", about, type=Path, default=WORK_DIR)


def _add_root(parser: ArgumentParser, default: str) -> None:
    about = f"The node's root directory; in a container, where the host's is mounted [default: {default}]."
    option(parser, "--root DIR", about, type=Path)


def _add_plan(parser: ArgumentParser) -> None:
    parser.add_argument(
        "target",
        nargs="?",
        metavar="TARGET",
        help="A unit, docker:NAME, podman:NAME, cri:NAME, the cause of a finding, or zombies.",
    )
    _add_root(parser, "/")
    add_setting(parser, DIR, "-d")
    option(parser, "--at TIME", "For the cause of a finding: the incident nearest to this moment.")
    option(parser, "--force-required", "Also stop what others require, and them with it.")
    about = "Don't stop it: lower its CPU weight to this (a unit has 100), until the next boot."
    # Below the greatest that systemd takes.
    option(parser, "--cpu-weight N", about, type=whole_number(1, 9_999))
    option(parser, "--no-zombies", "Don't free zombies once services are stopped.")
    zombies = parser.add_argument_group("for the target zombies")
    option(zombies, "--only STEP", "Take only the step of this name; may be repeated.", action="append", default=[])
    option(zombies, "--below CGROUP", "Look only below this cgroup (its directory, or path in the tree).", type=Path)
    about = "Directory to search first for files that pin zombies; may be repeated."
    option(zombies, "--search DIR", about, action="append", type=Path, default=[])
    _add_work_dir(parser)


def _add_apply(parser: ArgumentParser) -> None:
    _add_plan(parser)
    option(parser, "--yes", "Don't ask; needed without a terminal.")
    option(parser, "--accept-cost", "Also take steps that may keep a core busy for seconds.")
    about = "Time that each step against zombies may take."
    option(parser, "--max-time DURATION", about, type=_positive_seconds, default="60s")
    about = "How long to wait for a unit to stop whose own TimeoutStopSec= is infinity."
    option(parser, "--stop-wait DURATION", about, type=_seconds, default="10m")
    about = "How long the measures are sampled before anything is changed, where no recording has them; 0s: not at all."
    option(parser, "--baseline DURATION", about, type=_seconds, default="15s")


def _add_fix(parser: ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", metavar="ID", help="The fix, as exhume fix list names it.")
    _add_root(parser, "as when it was applied")
    _add_work_dir(parser)


def _add_verify(parser: ArgumentParser) -> None:
    _add_fix(parser)
    about = "How long to look at the time since the fix."
    option(parser, "--for DURATION", about, dest="length", type=_seconds, default="10m")
    about = (
        "A person took the steps of the plan (the last one, or the one of that ID) at this time; the recording has the "
        "time before."
    )
    option(parser, "--since TIME", about)
    option(parser, "--html FILE", "Also write a self-contained page.", type=Path)
    add_setting(parser, DIR, "-d")
    add_setting(parser, UTC)


@dataclass(frozen=True, slots=True)
class Action:
    """An action as `exhume fix --help` shows it. The module of its name has `run(options) -> exit code`; it is imported
    only when it runs."""

    summary: str
    about: str
    add_options: Callable[[ArgumentParser], None]
    examples: tuple[str, ...]


ACTIONS = {
    "plan": Action(
        "Show the steps, with files, commands, risks and effects.",
        PLAN,
        _add_plan,
        ("exhume fix plan", "exhume fix plan ecs.service", "exhume fix plan zombies --below /docker"),
    ),
    "apply": Action(
        "Take the steps; each is journalled before it is taken.",
        APPLY,
        _add_apply,
        ("exhume fix apply", "exhume fix apply ecs.service --yes", "exhume fix apply zombies --accept-cost"),
    ),
    "verify": Action(
        "Compare the measures that a fix should change with the time before it.",
        VERIFY,
        _add_verify,
        ("exhume fix verify", "exhume fix verify --for 30m --html proof.html", "exhume fix verify --since '10m ago'"),
    ),
    "rollback": Action(
        "Undo what a fix changed, also after a crash or a reboot.",
        ROLLBACK,
        _add_fix,
        ("exhume fix rollback", "exhume fix rollback 20260528-202700-0001"),
    ),
    "list": Action(
        "List the fixes and their states.", LIST, _add_work_dir, ("exhume fix list", "exhume fix list --json")
    ),
}


def add_options(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Parser
    )
    for name, action in ACTIONS.items():
        action.add_options(
            actions.add_parser(name, help=action.summary, description=action.about, examples=action.examples)
        )


def run(options: Namespace) -> int:
    if os.geteuid() != 0:
        raise ExhumeError(
            "exhume fix needs root: it reads which cgroup pages belong to, and changes services; run it with sudo"
        )
    options.work_dir = options.work_dir.absolute()
    code: int = importlib.import_module(f"exhume.cli.commands.fix.{options.action}").run(options)
    return code
