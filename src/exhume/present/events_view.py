"""The view of events: `exhume events --json`, and log text made safe for a terminal."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import Any

from exhume.present.serializer import Shape, Shapes, to_json
from exhume.store.read.events import EventView

JSON_VERSION = 1
_SHAPES: Shapes = {EventView: Shape(rename={"wall": "time", "time": "monotonic_ns"})}


def event_json(event: EventView, zone: tzinfo | None) -> dict[str, Any]:
    """One event. `time` is wall time, `monotonic_ns` the recording's clock, `kernel_us` the timestamp of
    the kernel log; what does not apply is null."""
    found: dict[str, Any] = to_json(event, zone, _SHAPES)
    return found


def events_json(events: Sequence[EventView], node: str, key: str, zone: tzinfo | None) -> dict[str, Any]:
    """The documented shape of `exhume events --json` and `exhume incidents --json`."""
    return {"version": JSON_VERSION, "node": node, key: [event_json(event, zone) for event in events]}


def visible(text: str) -> str:
    """Escape control characters: log lines are untrusted, and could drive the terminal."""
    return "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in text)
