"""Generates man pages, and completions of bash, zsh and fish, from the program's parser.

    tools/shell_files.py [DIRECTORY]    write them below DIRECTORY (default: share/), as they are below /usr/share

Completions are by shtab. Man pages are written here: argparse-manpage comes as sources only, which an installation of
wheels by their hashes does not take, and knows neither examples nor settings.
"""

import argparse
import inspect
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import shtab

from exhume import __version__
from exhume.cli.exit_codes import SUMMARY
from exhume.cli.main import COMMANDS, parser_for
from exhume.lab.scenarios import SCENARIOS
from exhume.model.settings import SETTINGS
from exhume.store.read.core_grid import MEASURES

ROOT = Path(__file__).resolve().parents[1]
COMPLETIONS = {
    "bash": "bash-completion/completions/exhume",
    "zsh": "zsh/site-functions/_exhume",
    "fish": "fish/vendor_completions.d/exhume.fish",
}
# What a value is, by its name in the help.
VALUES = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY, "DIRECTORY": shtab.DIRECTORY, "A": shtab.FILE, "B": shtab.FILE}
# Values that are checked by the commands themselves.
CHOICES = {"--color": ("auto", "always", "never"), "--measure": tuple(MEASURES)}
COMMON = "common options"
ROFF = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"})


def main(argv: list[str]) -> int:
    if len(argv) > 1 or argv[:1] in (["-h"], ["--help"]):
        print(__doc__, file=sys.stderr)
        return 2
    write(Path(argv[0]) if argv else ROOT / "share", {**completions(), **man_pages(_release_date())})
    return 0


def write(target: Path, files: Mapping[str, str]) -> None:
    """Write them, each whole at once (who builds at the same time reads it), and remove what earlier versions had."""
    for path, text in files.items():
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, prefix=".", delete=False) as making:
            making.write(text)
        made = Path(making.name)
        made.chmod(0o644)
        made.rename(file)
    for file in target.rglob("[!.]*"):
        if file.is_file() and str(file.relative_to(target)) not in files:
            file.unlink()


def _release_date() -> str:
    """The date on the pages, which only a release has: what is built of the same sources is the same."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return f"{datetime.fromtimestamp(int(given), UTC):%Y-%m-%d}" if given else ""


def completions() -> dict[str, str]:
    """The scripts by their path below /usr/share."""
    parser = parser_for(list(COMMANDS))
    _describe(parser)
    return {path: shtab.complete(parser, shell) for shell, path in COMPLETIONS.items()}


def _describe(parser: argparse.ArgumentParser) -> None:
    """Add what shtab needs to know: a line about each command, and what values are."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action.help = "Command."
            # The commands of the program have no help for argparse: `exhume --help` lists them itself.
            if not action._choices_actions:
                pseudo = action._ChoicesPseudoAction
                action._choices_actions = [pseudo(name, (), COMMANDS[name].summary) for name in action.choices]
            summaries = {each.dest: each.help for each in action._choices_actions}
            for name, each in action.choices.items():
                # Descriptions are paragraphs; shells show a line.
                each.description = summaries[name]
                _describe(each)
        elif action.choices is not None:
            continue
        elif action.dest == "scenario":
            action.choices = [*SCENARIOS, "zombies", "zombie-storm"]
        elif flags := CHOICES.keys() & set(action.option_strings):
            action.choices = CHOICES[flags.pop()]
        elif action.metavar in VALUES:
            action.complete = VALUES[action.metavar]  # type: ignore[attr-defined]


def man_pages(date: str) -> dict[str, str]:
    """One page for the program and one for each command, by their path below /usr/share."""
    parser = parser_for(list(COMMANDS))
    pages = {"exhume": _page("exhume", "flight recorder for CPU starvation on Linux nodes", parser, date)}
    for name, command in parsers_in(parser).items():
        pages[f"exhume-{name}"] = _page(f"exhume-{name}", COMMANDS[name].summary.rstrip("."), command, date)
    return {f"man/man1/{name}.1": text for name, text in pages.items()}


def parsers_in(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """The commands of a parser, by name."""
    found = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(next(found, {}))


def _page(name: str, summary: str, parser: argparse.ArgumentParser, date: str) -> str:
    whole = name == "exhume"
    lines = [
        f'.TH {roff(name.upper())} 1 "{date}" "exhume {__version__}" "User Commands"',
        # No hyphenation, and no text stretched to the right margin.
        *(".nr HY 0", ".ad l"),
        *(".SH NAME", f"{roff(name)} \\- {roff(summary)}"),
        *(".SH SYNOPSIS", *_usage(parser)),
        *(".SH DESCRIPTION", *_paragraphs((parser.description or "").partition("\n\ncommands:")[0])),
    ]
    verbs = parsers_in(parser)
    if whole:
        lines.append(".SH COMMANDS")
        for command in verbs:
            lines += [".TP", f"\\fBexhume\\-{roff(command)}\\fR(1)", roff(COMMANDS[command].summary)]
    lines += [*_options(parser, ".SH", everything=whole), *_examples(parser, ".SH")]
    for verb, each in verbs.items() if not whole else ():
        lines += [f".SH {roff(f'{name} {verb}'.upper().replace('-', ' ', 1))}", *_usage(each), ".PP"]
        lines += [*_paragraphs(each.description or ""), *_options(each, ".SS"), *_examples(each, ".SS")]
        for word, inner in parsers_in(each).items():
            lines += [f".SS {roff(f'{verb} {word}')}", *_usage(inner), ".PP"]
            lines += [*_paragraphs(inner.description or ""), *_options(inner, ".SS"), *_examples(inner, ".SS")]
    if whole:
        lines += [".SH ENVIRONMENT"]
        for setting in SETTINGS:
            flag = f" ({setting.flag})" if setting.has_flag else ""
            default = setting.shown_default or setting.default
            text = f"{setting.help}{flag}" + (f" Default: {default}." if default else "")
            lines += [".TP", f"\\fB{roff(setting.variable)}\\fR", roff(text)]
    lines += [".SH EXIT STATUS", *_paragraphs(f"{SUMMARY.partition(': ')[2]}."), ".SH SEE ALSO"]
    others = [f"exhume-{command}" for command in COMMANDS] if whole else ["exhume"]
    lines.append(", ".join(f"\\fB{roff(other)}\\fR(1)" for other in others))
    return "\n".join(lines) + "\n"


def _usage(parser: argparse.ArgumentParser) -> list[str]:
    usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
    return [re.sub(rf"^({re.escape(roff(parser.prog))})", r"\\fB\1\\fR", roff(usage))]


def _options(parser: argparse.ArgumentParser, heading: str, *, everything: bool = False) -> Iterator[str]:
    """Positional arguments and options, group by group. The common options are on the page of the program."""
    for group in parser._action_groups:
        shown = [
            each
            for each in group._group_actions
            if each.help != argparse.SUPPRESS
            and not isinstance(each, argparse._SubParsersAction | argparse._HelpAction)
        ]
        if not shown or (group.title == COMMON and not everything):
            continue
        title = (group.title or "options").upper() if heading == ".SH" else group.title or "options"
        yield f"{heading} {roff(title)}"
        for action in shown:
            yield from (".TP", _signature(action), roff(_help(parser, action)))


def _signature(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if not action.option_strings:
        return f"\\fI{roff(value)}\\fR"
    flags = ", ".join(f"\\fB{roff(flag)}\\fR" for flag in action.option_strings)
    return flags if action.nargs == 0 else f"{flags} \\fI{roff(value)}\\fR"


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = parser._get_formatter()._expand_help(action) if action.help else ""
    return " ".join(text.split())


def _examples(parser: argparse.ArgumentParser, heading: str) -> Iterator[str]:
    examples = re.findall(r"^ {2}(\S.*)$", (parser.epilog or "").partition("\n\n")[0], re.MULTILINE)
    if examples:
        yield f"{heading} {'EXAMPLES' if heading == '.SH' else 'examples'}"
        yield from (".EX", *map(roff, examples), ".EE")


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs are filled; those with indented lines keep their line breaks."""
    for number, block in enumerate(inspect.cleandoc(text).split("\n\n")):
        if number:
            yield ".PP"
        if re.search(r"^ ", block, re.MULTILINE):
            yield from (".nf", *_escaped(block.splitlines()), ".fi")
        else:
            yield roff(" ".join(block.split()))


def _escaped(lines: Iterable[str]) -> list[str]:
    return [roff(line) for line in lines]


def roff(text: str) -> str:
    """A text as roff reads it: nothing in it is a request or an escape, and a hyphen can be copied as a minus."""
    text = text.translate(ROFF)
    return f"\\&{text}" if text.startswith(".") else text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
