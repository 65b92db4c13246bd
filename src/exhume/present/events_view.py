"""The views of events and of incidents (marks that belong together, each with its best finding)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from exhume.diagnose.moments import Moment, best_finding
from exhume.model.finding import Diagnosis, Finding
from exhume.present.serializer import Shape, Shapes, to_json
from exhume.store.read.events import EventView

JSON_VERSION = 1
EVENT_SHAPE = Shape(rename={"wall": "time", "time": "monotonic_ns"})
_SHAPES: Shapes = {
    EventView: EVENT_SHAPE,
    Finding: Shape(omit=("chain", "culprit", "remedies", "doubts", "entities", "forecast", "lost_s", "focus")),
}


def event_json(event: EventView, zone: tzinfo | None) -> dict[str, Any]:
    """One event as JSON. `time` is wall time, `monotonic_ns` the recording's clock, `kernel_us` the timestamp of the
    kernel log; fields that do not apply are null."""
    found: dict[str, Any] = to_json(event, zone, _SHAPES)
    return found


def events_json(events: Sequence[EventView], node: str, zone: tzinfo | None) -> dict[str, Any]:
    """The documented shape of `exhume events --json`."""
    return {"version": JSON_VERSION, "node": node, "events": [event_json(event, zone) for event in events]}


def visible(text: str) -> str:
    """Escape control characters: log lines are untrusted and could control the terminal. No-break spaces are kept."""
    return "".join(each if each.isprintable() or each == "\u00a0" else f"\\x{ord(each):02x}" for each in text)


@dataclass(frozen=True, slots=True)
class Explained:
    """A moment and its diagnosis; None if the diagnosis was skipped."""

    moment: Moment
    diagnosis: Diagnosis | None = None

    @property
    def finding(self) -> Finding | None:
        return best_finding(self.diagnosis.findings, self.moment.trigger) if self.diagnosis else None


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
