"""The inventory of a node at a given time: the newest row of each section up to then."""

import contextlib
from typing import Any

from exhume.model.clock import Window
from exhume.model.inventory import Inventory, Missing, assemble
from exhume.model.inventory.codec import missing_of, section_of
from exhume.store.read.index import Segment
from exhume.store.read.reader import Request
from exhume.store.read.recording import Recording

# Every section is recorded each hour; a trimmed recording has all of them at its beginning.
_LOOKED_AT = 240


def inventory_at(recording: Recording, until: int | None = None) -> Inventory | None:
    """The inventory as last recorded, or as last recorded before `until` (wall nanoseconds); None if there is none.
    Labels are those of the recording."""
    newest = newest_rows(recording, until)
    if not newest:
        return None
    values: dict[str, Any] = {}
    missing: list[Missing] = []
    for section, row in newest.items():
        # Written by a later version, or damaged: that section is unknown.
        with contextlib.suppress(ValueError):
            values[section] = None if row["content"] is None else section_of(section, row["content"])
            missing += missing_of(row["missing"]) if row["missing"] is not None else ()
    facts = recording.facts
    taken_at = max(row["wall"] for row in newest.values())
    return assemble(facts.node, taken_at, values, missing, facts.labels)


def newest_rows(recording: Recording, until: int | None = None) -> dict[str, dict[str, Any]]:
    """The newest row of each section, with its wall time."""
    window = None if until is None else Window(0, until)
    found: dict[str, dict[str, Any]] = {}
    boot = ""
    for segment in reversed(recording.holding(window)[-_LOOKED_AT:]):
        # What existed in an earlier boot may be gone.
        if found and segment.name.boot != boot:
            break
        for row in reversed(_rows(recording, segment, window)):
            boot = segment.name.boot
            found.setdefault(row["section"], row)
    return found


def _rows(recording: Recording, segment: Segment, window: Window | None) -> list[dict[str, Any]]:
    rows = recording.rows_of(segment, Request("inventory", window))
    if rows is None:
        return []
    listed = sorted(rows.to_pylist(), key=lambda row: row["time"])
    return [{**row, "wall": row["time"] + segment.name.offset} for row in listed]
