"""Follow a live recording: read only newly added rows, for a user interface that refreshes every second and must not
read a minute of samples each time."""

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from exhume.model.facts import RecordingFacts
from exhume.store.format.files import open_regular
from exhume.store.format.names import SegmentName
from exhume.store.format.schema import DAMAGED, DECODING_ERRORS, DIMENSIONS, UnreadableFile, conform, facts_in
from exhume.store.read.index import Segment, Skipped, live_segments
from exhume.store.read.reader import MOST_LIVE_BYTES, LiveStream, Request, read_available

# Tables that a segment may get only in its last tick, and whose rows must not be missed.
_SELDOM = ("events", "losses")
# How many segments are remembered as read, so that one that waits to be sealed is not read again.
_MOST_KNOWN = 64

NewRows = dict[str, pa.Table]


class Tail:
    """Follows the segments that a recorder writes. Files stay open, so that what was written last can be read after the
    segment was sealed."""

    def __init__(self, directory: Path, tables: Sequence[str]) -> None:
        self._directory = directory
        # The recorder writes dimensions, then rows, then the anchor. Read in reverse, no row lacks its dimensions.
        rows = [table for table in tables if table not in (*DIMENSIONS, "anchors")]
        self._tables = ["anchors", *rows, *(table for table in DIMENSIONS if table in tables)]
        self._current: _OpenSegment | None = None
        self._known: dict[tuple[str, int], None] = {}
        #: The facts of the newest segment.
        self.facts: RecordingFacts | None = None
        #: Files that could not be read, or only in part.
        self.damaged: dict[Path, Skipped] = {}

    def poll(self) -> list[tuple[SegmentName, NewRows]]:
        """The rows added since the last call, segment by segment; the first call returns the whole newest segment."""
        listed = live_segments(self._directory)
        new = [segment for segment in listed if segment.name.key not in self._known]
        if self._current is None:
            new = new[-1:]
        self._known |= {segment.name.key: None for segment in listed}
        while len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        found = [] if self._current is None else [self._current.read(last=bool(new))]
        for place, segment in enumerate(new):
            self.close()
            self._current = _OpenSegment(segment, self._tables)
            found.append(self._current.read(last=place < len(new) - 1))
        if self._current is not None:
            self.facts = self._current.facts or self.facts
            self.damaged |= self._current.damaged
        return [(name, rows) for name, rows in found if rows]

    def close(self) -> None:
        if self._current is not None:
            self._current.close()


class _OpenSegment:
    def __init__(self, segment: Segment, tables: Sequence[str]) -> None:
        self._segment = segment
        self._tables = tables
        self._files: dict[str, _OpenFile | None] = {}
        self.facts: RecordingFacts | None = None
        self.damaged: dict[Path, Skipped] = {}

    def read(self, *, last: bool) -> tuple[SegmentName, NewRows]:
        """Read what was added; `last` means that nothing will follow. If no tick was completed, the other tables are
        not read: the rows of a tick belong together."""
        found: NewRows = {}
        for table in self._tables:
            rows = self._table(table, last=last)
            if rows is not None:
                found[table] = rows
            elif table == "anchors" and not last:
                break
        return self._segment.name, found

    def _table(self, table: str, *, last: bool) -> pa.Table | None:
        try:
            if table not in self._files:
                self._files[table] = _OpenFile(open_regular(self._segment.file(table)), table, self._segment.name)
            file = self._files[table]
            rows = None if file is None else file.read()
            if file is not None:
                self.facts = file.facts or self.facts
            return rows
        except FileNotFoundError:
            # Not created yet, or sealed before it was opened.
            return read_available(self._segment, Request(table), self._note) if last and table in _SELDOM else None
        except UnreadableFile as error:
            self._note(self._segment, table, error)
            self._close(table)
            return error.rows

    def _note(self, segment: Segment, table: str, error: UnreadableFile) -> None:
        path = segment.file(table)
        self.damaged[path] = Skipped(path, str(error))

    def _close(self, table: str) -> None:
        file = self._files.get(table)
        if file is not None:
            os.close(file.fd)
        self._files[table] = None

    def close(self) -> None:
        for table in self._files:
            self._close(table)


class _OpenFile:
    """The file of one table: a schema, and one message per tick."""

    def __init__(self, fd: int, table: str, segment: SegmentName) -> None:
        self.fd = fd
        self.facts: RecordingFacts | None = None
        self._table = table
        self._segment = segment
        self._schema = b""
        self._offset = 0

    def read(self) -> pa.Table | None:
        """The rows of the messages that were added; None if there are none. Raises UnreadableFile if some are unusable:
        nothing in the file can be trusted from there on."""
        fresh = os.fstat(self.fd).st_size - self._offset
        if fresh <= 0:
            return None
        # Bounded, because a damaged file may have any size.
        content = self._schema + os.pread(self.fd, min(fresh, MOST_LIVE_BYTES), self._offset)
        stream = LiveStream(pa.BufferReader(content), self._table)
        if stream.damaged:
            raise UnreadableFile(DAMAGED)
        if stream.schema is None:
            return None
        try:
            batches = list(stream)
            self.facts = self.facts or facts_in(stream.schema.metadata, self._table, self._segment)
            rows = conform(pa.Table.from_batches(batches), self._table) if batches else None
        except DECODING_ERRORS as error:
            raise UnreadableFile(DAMAGED) from error
        if stream.damaged:
            raise UnreadableFile(DAMAGED, rows)
        self._offset += stream.end - len(self._schema)
        if not self._schema:
            # An encapsulated message starts with a marker and the length of its metadata; a schema has no body.
            self._schema = content[: 8 + int.from_bytes(content[4:8], "little")]
        return rows
