"""Plan what removes a finding, least harm first; apply it when asked to, verify it, or roll it back."""

import importlib
import os
from argparse import ArgumentParser, Namespace
from types import ModuleType

from exhume.cli.args import Parser
from exhume.model.errors import ExhumeError

# Every action and what it does. The module of that name has `add_options(parser)` and `run(options) -> exit code`.
ACTIONS = {
    "plan": "Show the steps, with files, commands, risks and effects.",
    "apply": "Take the steps; each is journalled before it is taken.",
    "verify": "Compare the measures that a fix should change with the time before it.",
    "rollback": "Undo what a fix changed, also after a crash or a reboot.",
    "list": "List the fixes and their states.",
}
EXAMPLES = {
    "plan": ("exhume fix plan", "exhume fix plan ecs.service", "exhume fix plan zombies --below /docker"),
    "apply": ("exhume fix apply", "exhume fix apply ecs.service --yes", "exhume fix apply zombies --accept-cost"),
    "verify": ("exhume fix verify", "exhume fix verify --for 30m --html proof.html"),
    "rollback": ("exhume fix rollback", "exhume fix rollback 20260528-202700-0001"),
    "list": ("exhume fix list", "exhume fix list --json"),
}


def add_options(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Parser
    )
    for action, summary in ACTIONS.items():
        loaded = _loaded(action)
        added = actions.add_parser(action, help=summary, description=loaded.__doc__, examples=EXAMPLES[action])
        loaded.add_options(added)


def run(options: Namespace) -> int:
    if os.geteuid() != 0:
        raise ExhumeError(
            "exhume fix needs root: it reads which cgroup pages belong to, and changes services; run it with sudo"
        )
    code: int = _loaded(options.action).run(options)
    return code


def _loaded(action: str) -> ModuleType:
    return importlib.import_module(f"exhume.cli.commands.fix.{action}")
