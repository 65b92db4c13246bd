"""A fleet report in the terminal: the verdict, what sets sick nodes apart, the onset, the nodes at risk, what to do."""

from collections.abc import Iterator, Sequence
from datetime import tzinfo

from rich.console import Console
from rich.text import Text

from exhume.fleet.report import FleetReport
from exhume.present.events_view import visible
from exhume.present.fleet_view import Part, headline, parts, subtitle, verdict
from exhume.present.palette import GREEN, ORANGE, RED
from exhume.present.terminal.console import (
    BOLD,
    DIM,
    badge,
    bullets,
    cut_middle,
    hung,
    print_lines,
    section,
    table,
    width_of,
)

_COLOURS = {"separated": RED, "clustered": ORANGE, "scattered": ORANGE, "at-risk": ORANGE, "healthy": GREEN}
_GAPS = 3


def print_fleet_report(terminal: Console, report: FleetReport, zone: tzinfo | None, by: Sequence[str] = ()) -> None:
    print_lines(terminal, fleet_lines(report, zone, width_of(terminal), by))


def fleet_lines(report: FleetReport, zone: tzinfo | None, width: int, by: Sequence[str] = ()) -> Iterator[Text]:
    found = verdict(report)
    yield from hung(badge(found, _COLOURS[found]).append(" "), headline(report), width, BOLD)
    yield from hung("", subtitle(report, zone), width, DIM)
    for part in parts(report, zone, by):
        yield from section(part.title, _lines(part, width))


def _lines(part: Part, width: int) -> Iterator[Text]:
    if part.title == "blind spots":
        yield from bullets(part.sentences, width)
        return
    for sentence in part.sentences:
        yield from hung("  ", sentence, width)
    if part.rows:
        yield from table(part.header, list(_fitted(part, width)), part.right)


def _fitted(part: Part, width: int) -> Iterator[tuple[str, ...]]:
    """Rows whose first column is cut to the remaining width; of an attribute the end is kept, because it has the
    value."""
    rest = sum(max(len(row[i]) for row in (part.header, *part.rows)) + _GAPS for i in range(1, len(part.header)))
    room = max(12, width - rest - 2)
    for first, *others in part.rows:
        yield (cut_middle(first, room), *map(visible, others))
