"""Events and incidents as lines: aligned and coloured by severity on a terminal, one line each when piped."""

from collections.abc import Iterator, Sequence
from datetime import tzinfo

from rich.console import Console
from rich.text import Text

from exhume.model.text import percent
from exhume.model.times import format_clock, format_day, format_moment, format_offset
from exhume.present.events_view import Explained, visible
from exhume.present.palette import ORANGE, RED
from exhume.present.terminal.console import BOLD, DIM, LEAST_TEXT, badge, fitted, print_lines
from exhume.present.terminal.diagnosis import COLOURS
from exhume.store.read.events import EventView

_SEVERITY = {"critical": f"bold {RED}", "error": RED, "warning": ORANGE}


class EventPrinter:
    """Prints events in time order. On a terminal the date is printed on a line of its own once per day, and texts are
    wrapped; a pipe gets one line per event, with its full timestamp."""

    def __init__(self, terminal: Console, zone: tzinfo | None, events: Sequence[EventView]) -> None:
        self._terminal = terminal
        self._zone = zone
        self._day = ""
        self._severity = max((len(event.severity) for event in events), default=0)
        self._kind = max((len(event.kind) for event in events), default=0)

    def print(self, events: Sequence[EventView]) -> None:
        for event in events:
            print_lines(self._terminal, self._lines(event))

    def _lines(self, event: EventView) -> Iterator[Text]:
        live, zone = self._terminal.is_terminal, self._zone
        time = format_clock(event.wall, zone, digits=3) if live else format_moment(event.wall, zone, digits=6)
        line = Text(f"{time}  ").append(f"{event.severity:<{self._severity}}", _SEVERITY.get(event.severity, ""))
        line.append(f"  {event.kind:<{self._kind}}  ")
        hang = line.cell_len
        line.append(visible(event.text))
        day = f"{format_day(event.wall, zone)} {format_offset(event.wall, zone)}"
        if live and day != self._day:
            self._day = day
            yield Text(day, DIM)
        yield from fitted(self._terminal, line, hang if self._terminal.width - hang >= LEAST_TEXT else 4)


def print_events(terminal: Console, events: Sequence[EventView], zone: tzinfo | None) -> None:
    """Print all events."""
    EventPrinter(terminal, zone, events).print(events)


def print_incidents(terminal: Console, explained: Sequence[Explained], zone: tzinfo | None) -> None:
    """Print each moment: its marks, then its best finding."""
    printer = EventPrinter(terminal, zone, [mark for each in explained for mark in each.moment.marks])
    for each in explained:
        printer.print(each.moment.marks)
        if each.diagnosis is not None:
            print_lines(terminal, fitted(terminal, _finding_line(each)))


def _finding_line(explained: Explained) -> Text:
    line = Text("    ").append("╰ ", DIM)
    finding = explained.finding
    if finding is None:
        return line.append("no known cause accounts for it", DIM)
    line.append_text(badge(finding.severity, COLOURS[finding.severity])).append(f" {finding.cause}", BOLD)
    return line.append(f", confidence {percent(finding.confidence, 0)}: ", DIM).append(visible(finding.summary))
