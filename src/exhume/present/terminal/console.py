"""The rich console of the commands (colours as requested, none when piped), and the building blocks of reports."""

import os
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import IO

from rich.console import Console
from rich.style import Style
from rich.text import Text

from exhume.present.events_view import visible

BOLD, DIM, PLAIN = Style(bold=True), Style(dim=True), Style()
WIDEST, NARROWEST, PIPED = 120, 60, 100
# The minimum width of text with a hanging indent, and of a column that is cut.
LEAST_TEXT, LEAST_CELL = 30, 16
_LABEL = 11
# A cell of a table without a value.
NO_VALUE = "–"


def console(color: str, file: IO[str] | None = None) -> Console:
    """Create a console without highlighting or wrapping; `color` is auto, always or never."""
    target = sys.stdout if file is None else file
    # Without a colour system rich writes no escape sequences at all; `no_color` would keep bold and dim.
    plain = color == "never" or (color == "auto" and os.environ.get("NO_COLOR"))
    return Console(
        file=target,
        force_terminal=True if color == "always" else None,
        color_system=None if plain else "auto",
        highlight=False,
        soft_wrap=True,
        emoji=False,
        markup=False,
    )


def colours_in(terminal: Console) -> bool:
    """Whether colours are displayed."""
    return terminal.is_terminal and terminal.color_system is not None and not terminal.no_color


def fitted(terminal: Console, line: Text, hang: int | None = None) -> Iterator[Text]:
    """Wrap a line that is too long for the terminal; continuation lines are indented by `hang`, by default two more
    than the line itself. Lines with `no_wrap`, and all output to a pipe, are left whole."""
    if line.no_wrap or not terminal.is_terminal or line.cell_len <= terminal.width:
        yield line
        return
    if hang is None:
        hang = len(line.plain) - len(line.plain.lstrip()) + 2
    hang = min(hang, max(terminal.width // 2, terminal.width - LEAST_TEXT))
    # rich wraps all lines at one width, but the first line has the room of the hanging indent as well.
    head, *_ = line.wrap(terminal, terminal.width)
    rest = line[len(head.plain) :]
    head.rstrip()
    yield head
    start = len(rest.plain) - len(rest.plain.lstrip())
    for part in rest[start:].wrap(terminal, terminal.width - hang):
        part.rstrip()
        yield Text(" " * hang).append_text(part)


def width_of(terminal: Console) -> int:
    """The line width of reports on this console."""
    return max(NARROWEST, min(WIDEST, terminal.width)) if terminal.is_terminal else PIPED


def print_lines(terminal: Console, lines: Iterable[Text]) -> None:
    for line in lines:
        terminal.print(line)


def print_values(terminal: Console, values: Iterable[tuple[str, str]]) -> None:
    """Print one label and its value per line; on a terminal, long values are wrapped with a hanging indent."""
    for name, value in values:
        print_lines(terminal, fitted(terminal, Text(f"{name:<{_LABEL - 1}} {visible(value)}"), _LABEL))


def badge(word: str, colour: str) -> Text:
    """A word on a coloured background; without colours, just the word."""
    return Text().append(f" {word.upper()} ", Style(color="#000000", bgcolor=colour, bold=True))


def hung(lead: Text | str, text: str, width: int, style: Style = PLAIN) -> Iterator[Text]:
    """A text after a lead-in, with a hanging indent; a vertical bar in the lead-in is continued on the following
    lines."""
    lead = Text(lead, style) if isinstance(lead, str) else lead
    hang = min(lead.cell_len, width // 2)
    lines = textwrap.wrap(visible(text), max(20, width - hang), break_on_hyphens=False) or [""]
    yield lead.copy().append(lines[0], style)
    for line in lines[1:]:
        start = Text(" ").append("│", lead.spans[0].style) if lead.plain.startswith(" │") else Text()
        yield start.append(" " * (hang - start.cell_len)).append(line, style)


def cut_middle(text: str, width: int = 60) -> str:
    """A text on one line; if it is too long, its middle is replaced by an ellipsis."""
    shown = visible(text)
    if len(shown) <= width:
        return shown
    return f"{shown[: width // 2 - 1]}…{shown[-(width // 2) :]}"


def section(title: str, lines: Iterable[Text] = ()) -> Iterator[Text]:
    """A section: an empty line, a title and its content."""
    yield Text()
    yield Text(title, BOLD)
    yield from lines


def bullets(items: Iterable[str], width: int, lead: str = "  · ") -> Iterator[Text]:
    for item in items:
        yield from hung(lead, item, width, DIM)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = (), width: int | None = None
) -> Iterator[Text]:
    """Aligned columns, those listed in `right` right-aligned, with a dim header. In a table wider than `width` the
    other columns are cut in their middle; where that is not enough, each row becomes a paragraph of its own."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    # Two columns of margin, and three between two cells.
    room = None if width is None else width - 2 - 3 * (len(header) - 1)
    if room is not None and sum(widths) > room:
        texts = [i for i in range(len(header)) if i not in right]
        least = [
            max(len(header[i]), min(widths[i], LEAST_CELL)) if i in texts else widths[i] for i in range(len(widths))
        ]
        if sum(least) > room:
            yield from _paragraphs(header, rows)
            return
        while sum(widths) > room:
            widest = max((i for i in texts if widths[i] > least[i]), key=lambda i: widths[i])
            widths[widest] -= 1
    for line in (header, *rows):
        fitting = [cut_middle(cell, widths[i]) if len(cell) > widths[i] else cell for i, cell in enumerate(line)]
        cells = [f"{cell:{'>' if i in right else '<'}{widths[i]}}" for i, cell in enumerate(fitting)]
        yield Text("  " + "   ".join(cells).rstrip(), DIM if line is header else PLAIN, no_wrap=True)


def _paragraphs(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[Text]:
    """The rows of a table as text that can be wrapped: the first cell, and below it the others that are not empty, each
    with the name of its column."""
    for first, *rest in rows:
        yield Text(f"  {first}")
        named = zip(header[1:], rest, strict=True)
        yield Text("    " + ", ".join(f"{name} {cell}" for name, cell in named if cell != NO_VALUE), DIM)
