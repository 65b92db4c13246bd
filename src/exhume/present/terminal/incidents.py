"""Marked moments in the terminal: the marks, and below them the finding that explains them."""

from collections.abc import Sequence
from datetime import tzinfo

from rich.console import Console
from rich.style import Style
from rich.text import Text

from exhume.model.text import percent
from exhume.present.events_view import visible
from exhume.present.incidents_view import Explained
from exhume.present.terminal.console import fitted
from exhume.present.terminal.diagnosis import badge
from exhume.present.terminal.events import EventPrinter

_DIM = Style(dim=True)


def print_incidents(terminal: Console, explained: Sequence[Explained], zone: tzinfo | None) -> None:
    """Print each moment: its marks, then its best finding."""
    printer = EventPrinter(terminal, zone, [mark for each in explained for mark in each.moment.marks])
    for each in explained:
        printer.print(each.moment.marks)
        if each.diagnosis is not None:
            for line in fitted(terminal, _line(each)):
                terminal.print(line)


def _line(explained: Explained) -> Text:
    line = Text("    ").append("╰ ", _DIM)
    finding = explained.finding
    if finding is None:
        return line.append("no known cause accounts for it", _DIM)
    line.append_text(badge(str(finding.severity))).append(f" {finding.cause}", Style(bold=True))
    return line.append(f", {percent(finding.confidence, 0)} sure: ", _DIM).append(visible(finding.summary))
