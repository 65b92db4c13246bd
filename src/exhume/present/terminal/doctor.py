"""A checkup in the terminal: the verdict, a line for each check, then what the samples say."""

import textwrap
from collections.abc import Iterator
from datetime import tzinfo

from rich.console import Console
from rich.style import Style
from rich.text import Text

from exhume.model.finding import Check, Level
from exhume.present.diagnosis_view import shortened
from exhume.present.doctor_view import Checkup
from exhume.present.events_view import visible
from exhume.present.terminal.diagnosis import finding_lines, width_of

_COLOURS = {Level.WELL: "#009e73", Level.LOOK: "#e69f00", Level.BAD: "#d55e00", Level.UNSEEN: "#7f8792"}
_MARKS = {Level.WELL: "✓", Level.LOOK: "●", Level.BAD: "●", Level.UNSEEN: "?"}
_WORDS = {Level.UNSEEN: "not seen"}
_BOLD, _DIM = Style(bold=True), Style(dim=True)
_WORD = 8


def print_checkup(terminal: Console, checkup: Checkup, zone: tzinfo | None) -> None:
    for line in checkup_lines(checkup, zone, width_of(terminal)):
        terminal.print(line)


def checkup_lines(checkup: Checkup, zone: tzinfo | None, width: int) -> Iterator[Text]:
    mark = Text().append(
        f" {checkup.level.upper()} ", Style(color="#000000", bgcolor=_COLOURS[checkup.level], bold=True)
    )
    hang = mark.cell_len + 1
    lines = textwrap.wrap(visible(checkup.sentence), width - hang) or [""]
    yield mark.append(f" {lines[0]}", _BOLD)
    for line in lines[1:]:
        yield Text(" " * hang).append(line, _BOLD)
    yield Text()
    titles = max((len(check.title) for check in checkup.checks), default=0)
    for check in checkup.checks:
        yield from _check(check, titles, width)
    for number, finding in enumerate(checkup.diagnosis.findings, 1):
        yield Text()
        heading = f"{number}. " if len(checkup.diagnosis.findings) > 1 else ""
        yield from finding_lines(finding, zone, width, heading, said=checkup.sentence)
    yield Text()
    yield from _notes(checkup, width)


def _check(check: Check, titles: int, width: int) -> Iterator[Text]:
    """`✓ mounts  31  under 5,000  well`; what it means stands below, where there is something to say."""
    colour = Style(color=_COLOURS[check.level])
    line = Text(" ").append(_MARKS[check.level], colour).append(f" {check.title:<{titles}}  ")
    limit = f"  {check.limit}" if check.limit else ""
    room = max(10, width - line.cell_len - len(limit) - _WORD - 2)
    value = shortened(visible(check.value), room)
    line.append(value, _BOLD if check.level in (Level.LOOK, Level.BAD) else Style()).append(limit, _DIM)
    gap = width - line.cell_len - _WORD
    yield line.append(" " * max(2, gap)).append(_WORDS.get(check.level, str(check.level)), colour)
    if check.text:
        indent = " " * (titles + 5)
        for part in textwrap.wrap(visible(check.text), width - len(indent)):
            yield Text(indent).append(part, _DIM)


def _notes(checkup: Checkup, width: int) -> Iterator[Text]:
    said = [
        f"{checkup.looked_s:.0f} s were sampled, with no calm time to compare them with: what happens now and then is "
        "not seen, and the confidence is lower. Record, to be able to go back: exhume record",
        *(f"source unavailable: {each}" for each in checkup.missing),
    ]
    for note in said:
        for place, line in enumerate(textwrap.wrap(visible(note), width - 4)):
            yield Text(f" {'·' if place == 0 else ' '} {line}", _DIM)
