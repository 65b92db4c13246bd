"""Events as people and programs read them: wall time, what happened, and the kernel's own stamp."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import tzinfo
from typing import Any

from exhume.model.times import format_moment
from exhume.store.read.events import EventView

JSON_VERSION = 1
_NAMES = [field.name for field in fields(EventView) if field.name not in ("wall", "time")]


def event_json(event: EventView, zone: tzinfo | None) -> dict[str, Any]:
    """One event. `time` is wall time, `monotonic_ns` the recording's clock, `kernel_us` the stamp that the kernel
    printed; what does not apply is null."""
    return {
        "time": format_moment(event.wall, zone),
        "monotonic_ns": event.time,
        **{name: getattr(event, name) for name in _NAMES},
    }


def events_json(events: Sequence[EventView], node: str, key: str, zone: tzinfo | None) -> dict[str, Any]:
    """The documented shape of `exhume events --json` and `exhume incidents --json`."""
    return {"version": JSON_VERSION, "node": node, key: [event_json(event, zone) for event in events]}


def event_lines(events: Sequence[EventView], zone: tzinfo | None) -> Iterator[tuple[str, str, str, str]]:
    """Each event as (time, severity, kind, text), with control characters made visible."""
    for event in events:
        yield format_moment(event.wall, zone, digits=6), event.severity, event.kind, visible(event.text)


def visible(text: str) -> str:
    """A text that can't drive the terminal: log lines come from anywhere."""
    return "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in text)
