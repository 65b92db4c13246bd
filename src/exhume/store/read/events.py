"""Events and losses as objects, in time order, and the last kernel-log record that was stored."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from exhume.model.clock import Wall
from exhume.model.errors import RecordingError
from exhume.store.format.names import SegmentName, boot_part
from exhume.store.read.index import list_recording
from exhume.store.read.reader import Request, read_available

# If the kernel log was silent for more segments than this, it is read from its start again, for relevant lines only.
LOOKED_AT = 60
_LOG = ("kernel_us", "sequence")


def last_log_record(directory: Path, boot_id: str) -> tuple[int | None, int] | None:
    """The sequence number (None if it has none) and the timestamp in microseconds of the last kernel-log record stored
    in this boot; None if there is none."""
    try:
        segments = list_recording(directory).segments
    except RecordingError:
        return None
    mine = [segment for segment in segments[-LOOKED_AT:] if segment.name.boot == boot_part(boot_id)]
    for segment in reversed(mine):
        events = read_available(segment, Request("events", None, list(_LOG)))
        rows = [] if events is None else list(zip(*(events.column(name).to_pylist() for name in _LOG), strict=True))
        known = [(stamp, sequence) for stamp, sequence in rows if stamp is not None]
        if known:
            numbers = [sequence for _, sequence in known if sequence is not None]
            numbered = max(known, key=itemgetter(0))[1] is not None
            return max(numbers) if numbered else None, max(stamp for stamp, _ in known)
    return None


@dataclass(frozen=True, slots=True)
class EventView:
    """A row of the events table with its wall time (nanoseconds)."""

    wall: Wall
    time: int
    source: str
    kind: str
    severity: str
    text: str
    cpu: int | None
    pid: int | None
    comm: str | None
    device: str | None
    queue: int | None
    value: float | None
    kernel_us: int | None
    sequence: int | None
    trigger: str | None = None
    exit_code: int | None = None
    job: str | None = None
    member: str | None = None


@dataclass(frozen=True, slots=True)
class LossView:
    """A row of the losses table with its wall time (nanoseconds)."""

    wall: int
    time: int
    source: str
    kind: str
    count: int
    text: str
    cpu: int | None


_View = TypeVar("_View", EventView, LossView)


def views(kind: type[_View], parts: Iterable[tuple[SegmentName, pa.Table]]) -> list[_View]:
    """Convert rows of segments (in recorded order) to objects. Within a boot the monotonic clock decides their order: a
    line that was read late appears where it happened, and a wall clock that is set back does not reorder anything."""
    names = [field.name for field in fields(kind) if field.name != "wall"]
    by_boot: dict[str, list[_View]] = {}
    for segment, rows in parts:
        boot = by_boot.setdefault(segment.boot, [])
        for row in rows.select(names).to_pylist():
            boot.append(kind(wall=row["time"] + segment.offset, **row))
    return [view for boot in by_boot.values() for view in sorted(boot, key=lambda v: v.time)]


def of_kinds(events: list[EventView], kinds: Collection[str] | None) -> list[EventView]:
    return events if kinds is None else [event for event in events if event.kind in kinds]
