"""The views of events and of incidents (marks that belong together, with the best finding for each)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from exhume.model.clock import NANOS, Window
from exhume.model.finding import Diagnosis, Finding
from exhume.model.tables import DYING_CGROUPS
from exhume.present.serializer import Shape, Shapes, to_json
from exhume.store.read.events import EventView

JSON_VERSION = 1
# What to look at around a mark. Marks whose surroundings overlap are of one moment, unless that becomes too long to be
# one.
AROUND_NS = 20 * NANOS
TOGETHER_NS = 2 * AROUND_NS
LONGEST_NS = 120 * NANOS
# A growth is marked when it has gone on for up to this long.
GROWTH_NS = 60 * NANOS
_SHAPES: Shapes = {
    EventView: Shape(rename={"wall": "time", "time": "monotonic_ns"}),
    Finding: Shape(omit=("chain", "culprit", "remedies", "doubts", "entities", "forecast", "lost_s", "focus")),
}


def event_json(event: EventView, zone: tzinfo | None) -> dict[str, Any]:
    """One event. `time` is wall time, `monotonic_ns` the recording's clock, `kernel_us` the timestamp of
    the kernel log; what does not apply is null."""
    found: dict[str, Any] = to_json(event, zone, _SHAPES)
    return found


def events_json(events: Sequence[EventView], node: str, zone: tzinfo | None) -> dict[str, Any]:
    """The documented shape of `exhume events --json`."""
    return {"version": JSON_VERSION, "node": node, "events": [event_json(event, zone) for event in events]}


def visible(text: str) -> str:
    """Escape control characters: log lines are untrusted, and could drive the terminal. No-break spaces stay."""
    return "".join(each if each.isprintable() or each == "\u00a0" else f"\\x{ord(each):02x}" for each in text)


@dataclass(frozen=True, slots=True)
class Moment:
    """Marks of one episode, in their order."""

    marks: tuple[EventView, ...]

    @property
    def trigger(self) -> str | None:
        """What all of its marks were made for; None where that differs."""
        triggers = {mark.trigger for mark in self.marks}
        return triggers.pop() if len(triggers) == 1 else None

    @property
    def window(self) -> Window:
        """What to look at to explain it. A growth is visible only after its first second."""
        first, last = self.marks[0].wall, self.marks[-1].wall
        if self.trigger == DYING_CGROUPS:
            return Window(first, last + GROWTH_NS + AROUND_NS)
        return Window(first - AROUND_NS, last + AROUND_NS)

    @property
    def at(self) -> int:
        """Its middle: the diagnosis looks for the trouble nearest to it."""
        if self.trigger == DYING_CGROUPS:
            return self.marks[-1].wall + GROWTH_NS // 2
        return (self.marks[0].wall + self.marks[-1].wall) // 2


def best_finding(findings: Sequence[Finding], trigger: str | None) -> Finding | None:
    """The finding that explains a moment: of the cause that its trigger is about, else the first one."""
    # Lists of marks do without it.
    from exhume.diagnose.catalogue import catalogue

    about = [each for each in findings if trigger is not None and trigger in catalogue()[each.cause].marks]
    return next(iter((*about, *findings)), None)


@dataclass(frozen=True, slots=True)
class Explained:
    """A moment and its diagnosis; None where it was left out."""

    moment: Moment
    diagnosis: Diagnosis | None = None

    @property
    def finding(self) -> Finding | None:
        return best_finding(self.diagnosis.findings, self.moment.trigger) if self.diagnosis else None


def moments_of(marks: Sequence[EventView]) -> list[Moment]:
    """Marks (in the order of time) in groups. A growth is a moment of its own: it is visible over other seconds than
    what happened next to it, and has another explanation."""
    groups: list[list[EventView]] = []
    newest: dict[bool, list[EventView]] = {}
    for mark in marks:
        grows = mark.trigger == DYING_CGROUPS
        last = newest.get(grows)
        if last and mark.wall - last[-1].wall <= TOGETHER_NS and mark.wall - last[0].wall <= LONGEST_NS:
            last.append(mark)
        else:
            newest[grows] = [mark]
            groups.append(newest[grows])
    return [Moment(tuple(group)) for group in groups]


def incidents_json(explained: Sequence[Explained], node: str, zone: tzinfo | None) -> dict[str, Any]:
    """The documented shape of `exhume incidents --json`."""
    incidents = [
        {
            **event_json(mark, zone),
            "verdict": to_json(each.diagnosis and each.diagnosis.verdict, zone),
            "finding": to_json(each.finding, zone, _SHAPES),
        }
        for each in explained
        for mark in each.moment.marks
    ]
    return {"version": JSON_VERSION, "node": node, "incidents": incidents}
