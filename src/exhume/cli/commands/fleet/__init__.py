"""Many nodes in one place: each sends minute summaries, attributes and incidents to a lake, which is Parquet for any
reader."""

import importlib
import pkgutil
from argparse import ArgumentParser, Namespace
from types import ModuleType

from exhume.cli.args import Parser


def add_options(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(
        prog="exhume fleet", dest="verb", metavar="VERB", required=True, parser_class=Parser, title="verbs"
    )
    for name in sorted(each.name for each in pkgutil.iter_modules(__path__)):
        module = _module(name)
        added = verbs.add_parser(name, help=module.SUMMARY, description=module.__doc__, examples=module.EXAMPLES)
        module.add_options(added)


def run(options: Namespace) -> int:
    code: int = _module(options.verb).run(options)
    return code


def _module(verb: str) -> ModuleType:
    """The module of a verb: `SUMMARY`, `EXAMPLES`, `add_options(parser)` and `run(options)`. It imports what it needs
    when it runs."""
    return importlib.import_module(f"{__name__}.{verb}")
