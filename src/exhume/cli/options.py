"""Options that several commands share. Those that are settings take their words from the registry.

argparse, because the recorder keeps in memory whatever parsed its command line: richer parsers cost it 15 MB, and every
command a tenth of a second.
"""

import argparse
import os
import re
from argparse import ArgumentParser
from typing import Any, NoReturn

from exhume.model.errors import UsageError
from exhume.model.settings import setting


class Parser(ArgumentParser):
    """A parser whose errors are one sentence, and whose flags are never guessed from their beginnings."""

    def __init__(self, **words: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Formatter, **words)
        # `--for -5s` is a value that makes no sense, and is told as one; not a flag that nobody knows.
        self._negative_number_matcher = re.compile(r"-\d")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """What a command doesn't know is told by that command, with its own help; not by the one above it."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help with room for the flags, and without the list of commands repeated in the first line."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=110)


def add_setting(parser: ArgumentParser, name: str, *short: str) -> None:
    """The option of a setting: flag, environment variable, help and default all come from the registry."""
    entry = setting(name)
    if not entry.kind.metavar:
        said = f"{entry.help} [{entry.variable}]"
        parser.add_argument(
            entry.flag, *short, dest=name, action="store_true", default=entry.from_environment(), help=_plain(said)
        )
        return
    default = entry.shown_default or entry.default
    parser.add_argument(
        entry.flag,
        *short,
        dest=name,
        metavar=entry.kind.metavar,
        default=os.environ.get(entry.variable) or entry.default,
        help=_plain(f"{entry.help} [{entry.variable}; default: {default}]"),
    )


def value_of(options: argparse.Namespace, name: str) -> Any:
    """What was given for a setting, or its default, read as the registry says."""
    given = getattr(options, name)
    return given if isinstance(given, bool) else setting(name).read(given)


def add_looking(parser: ArgumentParser, *, window: bool = True, color: bool = True, json: bool = True) -> None:
    """What commands that look at a recording have in common."""
    add_setting(parser, "dir", "-d")
    if window:
        forms = "RFC 3339, HH:MM:SS, '10m ago', @unix or now"
        parser.add_argument("--since", metavar="TIME", help=f"Begin of the window: {forms}.")
        parser.add_argument("--until", metavar="TIME", help="End of the window (not inside it); same forms.")
    if json:
        parser.add_argument("--json", action="store_true", help="Print JSON (versioned, documented) instead of text.")
    if color:
        add_setting(parser, "color")
    add_setting(parser, "utc")


def whole_number(least: int, most: int) -> Any:
    """A reader of numbers for options that have bounds."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 18 or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number between {least} and {most}")
        return int(text)

    return read


def _plain(text: str) -> str:
    # argparse formats help with %.
    return text.replace("%", "%%")
