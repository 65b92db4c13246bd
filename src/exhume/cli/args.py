"""The argument parser, and options that several commands share.

Uses argparse, because the recorder keeps its parser in memory: typer costs 15 MB, and 0.1 s for every command.
"""

import argparse
import datetime
import re
import shutil
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from exhume.cli.exit_codes import SUMMARY
from exhume.model import settings
from exhume.model.errors import UsageError
from exhume.model.settings import (
    COLOR,
    DIR,
    LOG,
    UTC,
    LogTarget,
    NotificationSettings,
    PushSettings,
    RecorderSettings,
    Setting,
)

T = TypeVar("T")

# In the order of the fields of RecorderSettings.
RECORDER: tuple[Setting[Any], ...] = (
    *(DIR, settings.FOR, settings.RATE, settings.MAX_SIZE, settings.MAX_AGE, settings.CPU_BUDGET),
    *(settings.MEMORY_BUDGET, settings.NICE, settings.GROUP, settings.KEEP_SECRETS),
    *(settings.NODE_NAME, settings.NODE_LABELS),
    settings.EVENTS_SOCKET,
)
# In the order of the fields of NotificationSettings.
NOTIFICATIONS: tuple[Setting[Any], ...] = (
    *(settings.ON_INCIDENT, settings.WEBHOOK, settings.WEBHOOK_FORMAT, settings.WEBHOOK_TOKEN_FILE),
    *(settings.WEBHOOK_TOKEN, settings.KUBERNETES, settings.CLEAR_AFTER, settings.TAINT, settings.TAINT_SHARE),
)
# In the order of the fields of PushSettings.
PUSHES: tuple[Setting[Any], ...] = (
    *(settings.PUSH, settings.PUSH_TOKEN_FILE, settings.PUSH_TOKEN, settings.PUSH_CA_FILE, settings.S3_ENDPOINT),
)
TIME_FORMS = "RFC 3339, HH:MM:SS, '10m ago', @unix or now"
MAX_WIDTH = 100


class Parser(ArgumentParser):
    """A parser that reports errors in one sentence, never completes abbreviated flags, and gives every command the
    common options."""

    def __init__(self, *, examples: Iterable[str] = (), **options: Any) -> None:
        options.setdefault("epilog", _epilog(examples))
        super().__init__(allow_abbrev=False, formatter_class=_Formatter, **options)
        # `--for -5s` is a bad value, not an unknown flag.
        self._negative_number_matcher = re.compile(r"-\d")
        common = self.add_argument_group("common options")
        # SUPPRESS, so that the command's own default does not reset a flag given before the command.
        add_setting(common, COLOR, default=argparse.SUPPRESS)
        for flags, level in ((("-v", "--verbose"), "info"), (("--debug",), "debug")):
            text = f"Log at level {level} [{LOG.variable}]."
            common.add_argument(
                *flags, dest="log_level", action="store_const", const=level, default=argparse.SUPPRESS, help=text
            )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Report unknown arguments here, where the command's name is known, and not in the parent parser."""
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            hint = did_you_mean(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return options, unknown

    def knows(self, flag: str) -> bool:
        return flag in self._option_string_actions

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = (action.metavar if isinstance(action.metavar, str) else action.dest).lower()
            hint = did_you_mean(str(value), action.choices) or f"; choose from {', '.join(map(str, action.choices))}"
            self.error(f"{value!r} is not a known {what}{hint}")

    def error(self, message: str) -> NoReturn:
        see = " See" if message.endswith("?") else "; see"
        raise UsageError(f"{message}{see} {self.prog} --help")


class _Formatter(argparse.HelpFormatter):
    """Help that fits the terminal. Paragraphs are filled; indented lines keep their line breaks."""

    def __init__(self, prog: str) -> None:
        width = min(MAX_WIDTH, shutil.get_terminal_size().columns)
        super().__init__(prog, max_help_position=min(26, width // 3), width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = []
        for block in textwrap.dedent(text).strip().split("\n\n"):
            if re.search(r"^ ", block, re.MULTILINE):
                blocks.append("\n".join(_wrapped_line(line, width) for line in block.splitlines()))
            else:
                blocks.append(textwrap.fill(" ".join(block.split()), width, break_on_hyphens=False))
        return textwrap.indent("\n\n".join(blocks), indent)

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _wrapped_line(line: str, width: int) -> str:
    """A line of a table or an example; continuation lines are indented to its second column."""
    columns = re.match(r"( +\S+ {2,})", line)
    hang = len(columns[0]) if columns else len(line) - len(line.lstrip()) + 2
    return textwrap.fill(line, width, subsequent_indent=" " * hang, break_on_hyphens=False, break_long_words=False)


def _epilog(examples: Iterable[str]) -> str:
    shown = "\n".join(f"  {example}" for example in examples)
    return f"examples:\n{shown}\n\n{SUMMARY}." if shown else f"{SUMMARY}."


def did_you_mean(given: str, known: Iterable[Any]) -> str:
    """The end of a message about an unknown word, suggesting a similar one; empty if none is similar."""
    # Imported only for a typing error: the recorder never needs it.
    import difflib

    found = difflib.get_close_matches(given, [str(each) for each in known], n=1)
    return f"; did you mean {found[0]}?" if found else ""


def option(parser: argparse._ActionsContainer, spec: str, text: str, **others: Any) -> None:
    """Add an option. `spec` has its flags and the name of its value, as in `--output -o FILE`; without a value name it
    is a switch. The help ends with the default, if there is one."""
    flags = spec.split()
    if flags[-1].startswith("-"):
        others["action"] = "store_true"
    else:
        others["metavar"] = flags.pop()
        if others.get("default") not in (None, [], ""):
            text = f"{text.removesuffix('.')} [default: {others['default']}]."
    # argparse formats help with %.
    parser.add_argument(*flags, help=text.replace("%", "%%"), **others)


def add_setting(
    parser: argparse._ActionsContainer, setting: Setting[Any], *short: str, default: str | None = None
) -> None:
    """Add the flag of a setting; its name, environment variable, help and default come from the registry."""
    text, given = f"{setting.help} [{setting.variable}]", setting.text() if default is None else default
    added: dict[str, Any] = {"metavar": setting.metavar, "default": given}
    if setting.metavar:
        text = f"{text[:-1]}; default: {setting.shown_default or setting.default}]"
    else:
        added = {"action": "store_true", "default": setting.from_environment()}
    parser.add_argument(setting.flag, *short, dest=setting.name, help=text.replace("%", "%%"), **added)


def add_server_options(parser: argparse._ActionsContainer) -> None:
    """Add the options that define where a page is served and who may open it."""
    add_setting(parser, settings.LISTEN)
    add_setting(parser, settings.TOKEN)
    about = "Another host name of this machine, such as a proxy's; may be repeated."
    option(parser, "--name HOST", about, action="append", default=[])
    option(parser, "--tls-cert FILE", "Serve by TLS with this certificate (PEM).", type=Path)
    option(parser, "--tls-key FILE", "The certificate's key (PEM).", type=Path)
    option(parser, "--no-open", "Don't open a browser.")


def value_of(options: Namespace, setting: Setting[T]) -> T:
    """The value of a setting: from the flag, else the environment variable, else the default."""
    given = getattr(options, setting.name, None)
    if given is None:
        return setting.from_environment()
    return setting.read("1" if given else "0") if isinstance(given, bool) else setting.read(given)


def zone_of(options: Namespace) -> datetime.tzinfo | None:
    """The time zone in which times are parsed and displayed; None is the local one."""
    return datetime.UTC if value_of(options, UTC) else None


def log_target(options: Namespace) -> LogTarget:
    """Where to log, and at which level: -v and --debug change only the level."""
    target = LOG.from_environment()
    return LogTarget(getattr(options, "log_level", target.level), target.file)


def recorder_settings(options: Namespace) -> RecorderSettings:
    """The settings of a recorder; settings without a flag come from the environment."""
    return RecorderSettings(*(value_of(options, setting) for setting in RECORDER))


def notification_settings(options: Namespace) -> NotificationSettings:
    """Where incidents are reported; settings without a flag come from the environment."""
    return NotificationSettings(*(value_of(options, setting) for setting in NOTIFICATIONS))


def push_settings(options: Namespace) -> PushSettings:
    """Where summaries are sent; settings without a flag come from the environment."""
    return PushSettings(*(value_of(options, setting) for setting in PUSHES))


def add_recording_options(parser: ArgumentParser, *, window: bool = True, json: bool = True) -> None:
    """Add the options of commands that read a recording."""
    add_setting(parser, DIR, "-d")
    if window:
        option(parser, "--last DURATION", "The last part of the recording, for example 10m.")
        option(parser, "--since TIME", f"Start of the window: {TIME_FORMS}.")
        option(parser, "--until TIME", "End of the window (not inside it); same forms.")
    if json:
        add_json(parser)
    add_setting(parser, UTC)


def add_json(parser: ArgumentParser) -> None:
    option(parser, "--json", "Print JSON (versioned, documented) instead of text.")


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """A parser of integers between two bounds."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or len(text) > 18 or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number between {least} and {most}")
        return int(text)

    return read
