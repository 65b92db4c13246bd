"""Propose what removes a finding, in the order of least harm; do it when asked to, prove it, or put it back."""

import importlib
import os
from argparse import ArgumentParser, Namespace
from types import ModuleType

from exhume.cli.args import Parser
from exhume.model.errors import ExhumeError

# Every action and what it does. The file fix_ACTION has `add_options(parser)` and `run(options) -> exit code`.
ACTIONS = {
    "plan": "Show the steps, with files, commands, risks and effects.",
    "apply": "Take the steps; each is written down before it is done.",
    "verify": "Watch the measures that a fix should change, against the time before it.",
    "rollback": "Put back what a fix changed, also after a crash or a reboot.",
    "list": "List the fixes that were made, and how they stand.",
}


def add_options(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="ACTION", required=True, parser_class=Parser
    )
    for action, summary in ACTIONS.items():
        loaded = _loaded(action)
        loaded.add_options(actions.add_parser(action, help=summary, description=loaded.__doc__))


def run(options: Namespace) -> int:
    if os.geteuid() != 0:
        raise ExhumeError(
            "exhume fix needs root: it reads which cgroup pages belong to, and changes services; run it with sudo"
        )
    code: int = _loaded(options.action).run(options)
    return code


def _loaded(action: str) -> ModuleType:
    return importlib.import_module(f"exhume.cli.fix_{action}")
