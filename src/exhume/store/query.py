"""A recording, opened for reading: also while it is being recorded, and by anybody who may read the files."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from exhume.model.errors import RecordingError, UsageError
from exhume.model.facts import RecordingFacts
from exhume.model.tables import TABLES, columns_of
from exhume.model.window import Window
from exhume.store.dimensions import without_repeats
from exhume.store.index import Segment, Skipped, list_recording
from exhume.store.profile import ProfileFilter, StackProfile, build_profile
from exhume.store.reader import Request, SegmentGone, facts_of, read_segment, wall_of
from exhume.store.schema import DIMENSIONS, UnreadableFile, schema_of, time_column

_T = TypeVar("_T")
# A listing can be overtaken by the recorder while it is being read; a segment a minute makes more than a
# few retries impossible.
_RETRIES = 5


class Recording:
    """The rows of a recording. Windows are wall time, half-open, and clamped to what exists."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._damaged: dict[Path, Skipped] = {}
        self.refresh()

    @classmethod
    def open(cls, directory: Path | str) -> "Recording":
        """Raises RecordingError, with a sentence, where there is no recording."""
        return cls(Path(directory))

    def refresh(self) -> None:
        """Look again at what is there (a recording may still be growing)."""
        listing = list_recording(self.directory)
        self.segments = listing.segments
        self._foreign = listing.skipped

    @property
    def skipped(self) -> list[Skipped]:
        """What lies in the directory and was not read, as far as it has been met."""
        return [*self._foreign, *self._damaged.values()]

    @property
    def facts(self) -> RecordingFacts:
        """The facts of the newest segment."""
        return self._with_retries(self._newest_facts)

    def span(self) -> Window | None:
        """The wall time from the first to the last recorded moment; None where nothing is recorded yet."""
        return self._with_retries(self._span)

    def read(
        self,
        table: str,
        window: Window | None = None,
        columns: Sequence[str] | None = None,
        cpus: Collection[int] | None = None,
    ) -> pa.Table:
        """The rows of a table inside the window, with their wall time (nanoseconds) in an extra column `wall`.

        stacks, frames and processes explain other rows: they come whole for the segments that the window touches, each
        once. Rows come segment by segment; inside a segment samples are not in order of time.
        """
        if table not in TABLES:
            raise UsageError(f"there is no table {table}; the tables are {', '.join(TABLES)}")
        names = [c.name for c in columns_of(table)]
        unknown = [name for name in columns or () if name not in (*names, "wall")]
        if unknown:
            raise UsageError(f"table {table} has no column {', '.join(unknown)}; its columns are {', '.join(names)}")
        parts = self._with_retries(lambda: self._parts(table, window, columns, cpus))
        wanted = names if columns is None else list(columns)
        if columns is None and time_column(table) is not None:
            wanted = [*names, "wall"]
        if not parts:
            return _empty(table).select(wanted)
        rows = pa.concat_tables(parts)
        if table in DIMENSIONS:
            rows = without_repeats(table, rows)
        return rows.select(wanted)

    def profile(self, window: Window, wanted: ProfileFilter | None = None) -> StackProfile:
        """The stacks that were sampled in the window, summed."""
        chosen = wanted or ProfileFilter()
        return self._with_retries(lambda: build_profile(self._holding(window), window, chosen, self.note_unreadable))

    def note_unreadable(self, segment: Segment, table: str, error: UnreadableFile) -> None:
        path = segment.file(table)
        self._damaged[path] = Skipped(path, str(error))

    def _holding(self, window: Window | None) -> list[Segment]:
        if window is None:
            return self.segments
        if window.empty:
            return []
        return [segment for segment in self.segments if segment.name.may_hold(window)]

    def _parts(
        self, table: str, window: Window | None, columns: Sequence[str] | None, cpus: Collection[int] | None
    ) -> list[pa.Table]:
        clock = time_column(table)
        needed = None
        if columns is not None:
            keys = [c.name for c in columns_of(table)] if table in DIMENSIONS else [clock] if clock else []
            needed = list(dict.fromkeys([*(name for name in columns if name != "wall"), *keys]))
        parts = []
        for segment in self._holding(window):
            try:
                rows = read_segment(segment, Request(table, window, needed, cpus))
            except UnreadableFile as error:
                self.note_unreadable(segment, table, error)
                continue
            if rows is None:
                continue
            wall = wall_of(rows, table, segment.name)
            parts.append(rows if wall is None else rows.append_column("wall", wall))
        return parts

    def _newest_facts(self) -> RecordingFacts:
        for segment in reversed(self.segments):
            for table in ("anchors", *TABLES):
                try:
                    facts = facts_of(segment, table)
                except UnreadableFile as error:
                    self.note_unreadable(segment, table, error)
                    continue
                if facts is not None:
                    return facts
            if not segment.path.exists():
                raise SegmentGone(str(segment.path))
        raise RecordingError(f"{self.directory} holds nothing that can be read yet; let the recorder run for a second")

    def _span(self) -> Window | None:
        spans = [window for segment in self.segments if not (window := self._segment_span(segment)).empty]
        if not spans:
            return None
        return Window(min(w.since for w in spans), max(w.until for w in spans))

    def _segment_span(self, segment: Segment) -> Window:
        since = segment.name.span.since
        if segment.sealed:
            return segment.name.span
        try:
            anchors = read_segment(segment, Request("anchors"))
        except UnreadableFile as error:
            self.note_unreadable(segment, "anchors", error)
            return segment.name.span
        if anchors is None:
            return segment.name.span
        return Window(since, anchors.column("time").to_numpy().max().item() + segment.name.offset)

    def _with_retries(self, attempt: Callable[[], _T]) -> _T:
        for _ in range(_RETRIES):
            try:
                return attempt()
            except SegmentGone:
                self.refresh()
        raise RecordingError(f"{self.directory} changes faster than it can be read; try again")


def _empty(table: str) -> pa.Table:
    rows = schema_of(table).empty_table()
    return rows if time_column(table) is None else rows.append_column("wall", pa.array([], pa.int64()))
