"""A recording that caches rows, for queries that read the same minutes again and again."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import NANOS, Window
from exhume.store.format.names import SegmentName
from exhume.store.format.schema import DIMENSIONS
from exhume.store.read.events import EventView
from exhume.store.read.index import Segment
from exhume.store.read.reader import Request
from exhume.store.read.recording import Recording

# Windows that are further apart than this are not joined by reading what lies between them.
NEAR_NS = 900 * NANOS
# How many rows of a table are cached; beyond that, only the last window requested.
MOST_ROWS = 4_000_000
_EVENT = [field.name for field in fields(EventView)]


@dataclass(frozen=True)
class _Held:
    """Cached rows of a table, and the window that they cover."""

    window: Window
    rows: pa.Table

    def within(self, window: Window) -> pa.Table:
        """The rows of a window; a slice if the rows are in time order."""
        if window == self.window:
            return self.rows
        walls = self.walls
        if self.in_order:
            since, until = np.searchsorted(walls, (window.since, window.until)).tolist()
            return self.rows.slice(since, until - since)
        return self.rows.filter(pa.array((walls >= window.since) & (walls < window.until)))

    @cached_property
    def walls(self) -> npt.NDArray[np.int64]:
        walls: npt.NDArray[np.int64] = self.rows.column("wall").to_numpy()
        return walls

    @cached_property
    def in_order(self) -> bool:
        return bool((self.walls[1:] >= self.walls[:-1]).all())


class CachedRecording(Recording):
    """Caches reads of whole rows, one window per table: cached rows are not read again, and if a window extends beyond
    the cached one, only the rest is read. It does not follow a recording that grows."""

    def __init__(self, recording: Recording) -> None:
        self._held: dict[str, _Held] = {}
        self._processes: dict[SegmentName, pa.Table | None] = {}
        self._processes_of: dict[tuple[SegmentName, ...], pa.Table] = {}
        super().__init__(recording.directory)
        self.source = recording.source
        self.segments = recording.segments

    def read(
        self,
        table: str,
        window: Window | None = None,
        columns: Sequence[str] | None = None,
        cpus: Collection[int] | None = None,
    ) -> pa.Table:
        if window is None or window.empty or columns is not None or cpus is not None:
            return super().read(table, window, columns, cpus)
        # Rows of dimension tables belong to whole segments: the window does not select among them.
        if table == "processes":
            touched = tuple(segment.name for segment in self.holding(window))
            if touched not in self._processes_of:
                self._processes_of[touched] = super().read(table, window)
            return self._processes_of[touched]
        if table in DIMENSIONS:
            return super().read(table, window)
        return self._reaching(table, window).within(window)

    def events(self, window: Window | None = None, kinds: Collection[str] | None = None) -> list[EventView]:
        # Ordering events across several boots needs more than the rows contain.
        if window is None or window.empty or len({segment.name.boot for segment in self.segments}) > 1:
            return super().events(window, kinds)
        rows = self.read("events", window)
        if kinds is not None:
            rows = rows.filter(pc.is_in(rows.column("kind"), pa.array(list(kinds), pa.string())))
        found = [EventView(**row) for row in rows.select(_EVENT).to_pylist()]
        return sorted(found, key=lambda event: event.time)

    def _read(self, segment: Segment, request: Request) -> pa.Table | None:
        # Process rows are read whole for each segment that the window touches.
        if request.table != "processes" or request.columns is not None or request.cpus is not None:
            return super()._read(segment, request)
        if segment.name not in self._processes:
            self._processes[segment.name] = super()._read(segment, request)
        return self._processes[segment.name]

    def _reaching(self, table: str, window: Window) -> _Held:
        """The cached rows of a table, extended to cover the window."""
        held = self._held.get(table)
        if held is None or max(held.window.since - window.until, window.since - held.window.until) > NEAR_NS:
            held = _Held(window, super().read(table, window).combine_chunks())
        else:
            parts = [held.rows]
            if window.since < held.window.since:
                parts.insert(0, super().read(table, Window(window.since, held.window.since)))
            if window.until > held.window.until:
                parts.append(super().read(table, Window(held.window.until, window.until)))
            if len(parts) > 1:
                whole = Window(min(window.since, held.window.since), max(window.until, held.window.until))
                # A part without rows has the schema of the format rather than that of the files.
                rows = pa.concat_tables([part for part in parts if part.num_rows] or parts[:1])
                # Every operation takes its time for each chunk, and a day of small segments has a thousand of them.
                held = _Held(whole, rows.combine_chunks())
        if held.rows.num_rows > MOST_ROWS:
            held = _Held(window, held.within(window))
        self._held[table] = held
        return held
