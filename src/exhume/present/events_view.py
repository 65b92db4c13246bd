"""Events as JSON: wall time, what happened, and the kernel's own timestamp."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import tzinfo
from typing import Any

from exhume.model.times import format_moment
from exhume.store.read.events import EventView

JSON_VERSION = 1
_NAMES = [field.name for field in fields(EventView) if field.name not in ("wall", "time")]


def event_json(event: EventView, zone: tzinfo | None) -> dict[str, Any]:
    """One event. `time` is wall time, `monotonic_ns` the recording's clock, `kernel_us` the timestamp of
    the kernel log; what does not apply is null."""
    return {
        "time": format_moment(event.wall, zone),
        "monotonic_ns": event.time,
        **{name: getattr(event, name) for name in _NAMES},
    }


def events_json(events: Sequence[EventView], node: str, key: str, zone: tzinfo | None) -> dict[str, Any]:
    """The documented shape of `exhume events --json` and `exhume incidents --json`."""
    return {"version": JSON_VERSION, "node": node, key: [event_json(event, zone) for event in events]}


def visible(text: str) -> str:
    """Escape control characters: log lines are untrusted, and could drive the terminal."""
    return "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in text)
