"""The view of incidents: marks that belong together, with the best finding for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from exhume.model.clock import NANOS, Window
from exhume.model.finding import Diagnosis, Finding
from exhume.present.events_view import JSON_VERSION, event_json
from exhume.present.serializer import Shape, Shapes, to_json
from exhume.store.read.events import EventView

# Marks that follow each other within this are of one moment, unless that becomes too long to be one.
TOGETHER_NS = 30 * NANOS
LONGEST_NS = 120 * NANOS
AROUND_NS = 20 * NANOS


@dataclass(frozen=True, slots=True)
class Moment:
    """Marks of one episode, in their order."""

    marks: tuple[EventView, ...]

    @property
    def window(self) -> Window:
        """What to look at to explain it."""
        return Window(self.marks[0].wall - AROUND_NS, self.marks[-1].wall + AROUND_NS)

    @property
    def at(self) -> int:
        """Its middle: the diagnosis looks for the trouble nearest to it."""
        return (self.marks[0].wall + self.marks[-1].wall) // 2


@dataclass(frozen=True, slots=True)
class Explained:
    """A moment and its diagnosis; None where it was left out."""

    moment: Moment
    diagnosis: Diagnosis | None = None

    @property
    def finding(self) -> Finding | None:
        return self.diagnosis.findings[0] if self.diagnosis and self.diagnosis.findings else None


def moments_of(marks: Sequence[EventView]) -> list[Moment]:
    """Marks (in the order of time) in groups."""
    groups: list[list[EventView]] = []
    for mark in marks:
        last = groups[-1] if groups else None
        if last and mark.wall - last[-1].wall <= TOGETHER_NS and mark.wall - last[0].wall <= LONGEST_NS:
            last.append(mark)
        else:
            groups.append([mark])
    return [Moment(tuple(group)) for group in groups]


def incidents_json(explained: Sequence[Explained], node: str, zone: tzinfo | None) -> dict[str, Any]:
    """The documented shape of `exhume incidents --json`."""
    return {
        "version": JSON_VERSION,
        "node": node,
        "incidents": [
            {
                **event_json(mark, zone),
                "verdict": to_json(each.diagnosis and each.diagnosis.verdict, zone),
                "finding": to_json(each.finding, zone, _SHAPES),
            }
            for each in explained
            for mark in each.moment.marks
        ],
    }


_SHAPES: Shapes = {Finding: Shape(omit=("chain", "culprit", "remedies", "doubts", "entities"))}
