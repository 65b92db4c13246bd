"""Events as lines: aligned, coloured by severity on a terminal, plain when piped."""

from collections.abc import Sequence
from datetime import tzinfo

from rich.console import Console
from rich.style import Style
from rich.text import Text

from exhume.present.events_view import event_lines
from exhume.present.terminal.console import colours_in
from exhume.store.read.events import EventView

_SEVERITY = {
    "critical": Style(color="#d55e00", bold=True),
    "error": Style(color="#d55e00"),
    "warning": Style(color="#e69f00"),
}


def print_events(terminal: Console, events: Sequence[EventView], zone: tzinfo | None) -> None:
    """One line for each event."""
    rows = list(event_lines(events, zone))
    severity_width = max((len(row[1]) for row in rows), default=0)
    kind_width = max((len(row[2]) for row in rows), default=0)
    coloured = colours_in(terminal)
    for time, severity, kind, words in rows:
        line = Text(f"{time}  ")
        line.append(f"{severity:<{severity_width}}", _SEVERITY.get(severity, Style()) if coloured else Style())
        line.append(f"  {kind:<{kind_width}}  {words}")
        terminal.print(line)
