"""Events and incidents as lines: aligned, coloured by severity on a terminal; one line each when piped."""

from collections.abc import Iterator, Sequence
from datetime import tzinfo

from rich.console import Console
from rich.style import Style
from rich.text import Text

from exhume.model.text import percent
from exhume.model.times import format_clock, format_day, format_moment, format_offset
from exhume.present.events_view import visible
from exhume.present.incidents_view import Explained
from exhume.present.terminal.console import fitted
from exhume.present.terminal.diagnosis import badge
from exhume.store.read.events import EventView

_SEVERITY = {
    "critical": Style(color="#d55e00", bold=True),
    "error": Style(color="#d55e00"),
    "warning": Style(color="#e69f00"),
}
_DIM = Style(dim=True)
# Below this the text of an event hangs below its time instead of below its beginning.
_LEAST_TEXT = 30


class EventPrinter:
    """Prints events in the order of time. On a terminal the date is a line of its own, once a day, and texts are
    wrapped; a pipe gets one line for each event, with its whole time."""

    def __init__(self, terminal: Console, zone: tzinfo | None, events: Sequence[EventView]) -> None:
        self._terminal = terminal
        self._zone = zone
        self._day = ""
        self._widths = [max((len(value) for value in column), default=0) for column in _columns(events)]

    def print(self, events: Sequence[EventView]) -> None:
        for event in events:
            for line in self._lines(event):
                self._terminal.print(line)

    def _lines(self, event: EventView) -> Iterator[Text]:
        if not self._terminal.is_terminal:
            yield self._line(event, format_moment(event.wall, self._zone, digits=6))
            return
        day = f"{format_day(event.wall, self._zone)} {format_offset(event.wall, self._zone)}"
        if day != self._day:
            self._day = day
            yield Text(day, _DIM)
        line = self._line(event, format_clock(event.wall, self._zone, digits=3))
        hang = line.cell_len - len(visible(event.text))
        yield from fitted(self._terminal, line, hang if self._terminal.width - hang >= _LEAST_TEXT else 4)

    def _line(self, event: EventView, time: str) -> Text:
        severity, kind = self._widths
        line = Text(f"{time}  ")
        line.append(f"{event.severity:<{severity}}", _SEVERITY.get(event.severity, Style()))
        return line.append(f"  {event.kind:<{kind}}  {visible(event.text)}")


def _columns(events: Sequence[EventView]) -> tuple[list[str], list[str]]:
    return [event.severity for event in events], [event.kind for event in events]


def print_events(terminal: Console, events: Sequence[EventView], zone: tzinfo | None) -> None:
    """Print all events."""
    EventPrinter(terminal, zone, events).print(events)


def print_incidents(terminal: Console, explained: Sequence[Explained], zone: tzinfo | None) -> None:
    """Print each moment: its marks, then its best finding."""
    printer = EventPrinter(terminal, zone, [mark for each in explained for mark in each.moment.marks])
    for each in explained:
        printer.print(each.moment.marks)
        if each.diagnosis is not None:
            for line in fitted(terminal, _finding_line(each)):
                terminal.print(line)


def _finding_line(explained: Explained) -> Text:
    line = Text("    ").append("╰ ", _DIM)
    finding = explained.finding
    if finding is None:
        return line.append("no known cause accounts for it", _DIM)
    line.append_text(badge(str(finding.severity))).append(f" {finding.cause}", Style(bold=True))
    return line.append(f", confidence {percent(finding.confidence, 0)}: ", _DIM).append(visible(finding.summary))
