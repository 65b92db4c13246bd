"""What a recording is, in the terminal: a label and its value on each line."""

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from exhume.present.events_view import visible
from exhume.present.terminal.console import fitted

LABEL = 11


def print_info(terminal: Console, lines: Iterable[tuple[str, str]]) -> None:
    """Print the lines; on a terminal values are wrapped and hang below their beginning."""
    for label, value in lines:
        for line in fitted(terminal, Text(f"{label:<{LABEL - 1}} {visible(value)}"), LABEL):
            terminal.print(line)
