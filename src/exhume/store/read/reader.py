"""Read one table of one segment, sealed or live, as Arrow rows inside a window."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from exhume.model.clock import MILLIS, Window
from exhume.model.facts import FORMAT_VERSION, RecordingFacts
from exhume.model.process import memory_left
from exhume.model.tables import TABLES
from exhume.store.format.files import FORBIDDEN, map_regular, open_regular, read_regular
from exhume.store.format.names import OLD_OVERVIEW_FILE, OVERVIEW, PARQUET_SUFFIX, SegmentName
from exhume.store.format.schema import (
    CHECKSUM_KEY,
    DAMAGED,
    DECODING_ERRORS,
    DIMENSIONS,
    FORMAT,
    SEGMENT_KEY,
    TABLE_KEY,
    UnreadableFile,
    check_required,
    check_schema,
    checksum_matches,
    conform,
    facts_in,
    time_column,
)
from exhume.store.read.index import FOREIGN, Segment, Skipped
from exhume.store.read.progress import raise_if_cancelled

Noter = Callable[[Segment, str, UnreadableFile], None]

# Ten times what a minute of a thousand cores takes.
MOST_LIVE_BYTES = 1 << 30
# An upper bound for one decoded table of a segment.
_LARGEST_DECODED = 128 << 20
_MAGIC = b"PAR1"
_TAIL = 4096
# The continuation marker that begins every message (Arrow's columnar format, encapsulated messages).
_CONTINUATION = b"\xff\xff\xff\xff"
_ALIGNMENT = 8
# After a damaged message in a live file, the next one is searched for in pieces of this size. Its metadata is assumed
# to be smaller than the largest head (the widest table's takes 4 KiB), and the number of candidates tried is bounded.
_PIECE = 1 << 20
_LARGEST_HEAD = 64 << 10
_MOST_TRIES = 64


@dataclass(frozen=True, slots=True)
class Request:
    """The rows and columns to read from a table: those of a window (dimension tables are read whole), of some cores, in
    some columns. Text columns listed in `dictionaries` are returned dictionary-encoded."""

    table: str
    window: Window | None = None
    columns: Sequence[str] | None = None
    cpus: Collection[int] | None = None
    dictionaries: Sequence[str] = ()

    @property
    def clock(self) -> str | None:
        """The column that rows are selected by, if they are selected by time."""
        return None if self.window is None or self.table in DIMENSIONS else time_column(self.table)

    def span_in(self, name: SegmentName) -> Window | None:
        """The window in the unit of the table's time column, by the clock of one segment."""
        if self.clock is None or self.window is None:
            return None
        unit = MILLIS if self.clock == "time_ms" else 1
        return Window(*(-(-(wall - name.offset) // unit) for wall in (self.window.since, self.window.until)))

    @property
    def needed(self) -> list[str] | None:
        """The columns to decode: the requested ones and the ones that rows are selected by."""
        if self.columns is None:
            return None
        more = [name for name in (self.clock, "cpu" if self.cpus is not None else None) if name is not None]
        return list(dict.fromkeys([*self.columns, *more]))


def read_segment(segment: Segment, request: Request) -> pa.Table | None:
    """Read the requested rows; None if the segment has none. A segment that was sealed since it was listed is read from
    its new location; one that was removed has no rows any more. Raises UnreadableFile for an unusable file, and
    Cancelled."""
    raise_if_cancelled()
    span = request.span_in(segment.name)
    try:
        with _decoding():
            rows, damaged = (_sealed(segment, request, span), False) if segment.sealed else _live(segment, request)
            chosen = None if rows is None else _chosen(rows, request, span)
    except FileNotFoundError:
        # Most sealed segments lack some table, because nothing was lost or nothing happened in them.
        now = None if segment.sealed or segment.path.exists() else segment.successor()
        return None if now is None else read_segment(now, request)
    if damaged:
        raise UnreadableFile(DAMAGED, chosen)
    return chosen


def read_available(segment: Segment, request: Request, note: Noter | None = None) -> pa.Table | None:
    """Read the requested rows that are readable; `note` receives the reason why others are not."""
    try:
        return read_segment(segment, request)
    except UnreadableFile as error:
        if note is not None:
            note(segment, request.table, error)
        return error.rows


@contextmanager
def _decoding() -> Iterator[None]:
    """Convert what Arrow or numpy raise for the bytes of a file to UnreadableFile. Raises MemoryError if too little
    memory is left for any file."""
    try:
        yield
    except FileNotFoundError:
        raise
    except PermissionError:
        raise UnreadableFile(FORBIDDEN) from None
    except MemoryError as error:
        left = memory_left()
        if left is not None and left < _LARGEST_DECODED:
            # Earlier reads used up the memory: the file is not to blame.
            raise
        raise UnreadableFile("takes more memory than there is") from error
    except DECODING_ERRORS as error:
        raise UnreadableFile(DAMAGED) from error


def _chosen(rows: pa.Table, request: Request, span: Window | None) -> pa.Table | None:
    """The rows of the requested window and cores; None if there are none."""
    kept = np.ones(rows.num_rows, np.bool_)
    if span is not None:
        times = rows.column(request.clock).to_numpy()
        kept &= (times >= span.since) & (times < span.until)
    if request.cpus is not None and "cpu" in rows.schema.names:
        kept &= _on(rows.column("cpu"), request.cpus)
    rows = rows if bool(np.all(kept)) else rows.filter(pa.array(kept))
    return rows if rows.num_rows else None


def _on(column: pa.ChunkedArray, cpus: Collection[int]) -> npt.NDArray[np.bool_]:
    """Which rows are on these cores. A row without a core is on none."""
    numbers = (column.fill_null(0) if column.null_count else column).to_numpy()
    counts = np.bincount(numbers)
    wanted = np.zeros(len(counts), np.bool_)
    # Look up each core that occurs, not each requested one: `cpus` may be all cores but one, tens of thousands.
    wanted[[cpu for cpu in np.flatnonzero(counts).tolist() if cpu in cpus]] = True
    known = column.is_valid().to_numpy() if column.null_count else True
    found: npt.NDArray[np.bool_] = wanted[numbers] & known
    return found


def facts_of(segment: Segment, table: str) -> RecordingFacts | None:
    """The facts that a file of the segment carries; None if the segment lacks the table."""
    path = segment.file(table)
    try:
        with _decoding():
            if segment.sealed:
                return facts_in(_open_parquet(path).metadata.metadata, table, segment.name)
            stream = LiveStream(pa.BufferReader(read_regular(path, MOST_LIVE_BYTES)), table)
    except FileNotFoundError:
        now = None if segment.path.exists() else segment.successor()
        return None if now is None else facts_of(now, table)
    if stream.damaged:
        raise UnreadableFile(DAMAGED)
    return None if stream.schema is None else facts_in(stream.schema.metadata, table, segment.name)


def with_wall(rows: pa.Table, table: str, name: SegmentName) -> pa.Table:
    """Add the wall time in nanoseconds as a column `wall`. Tables without time are unchanged, and so are anchors, whose
    own `wall` column is the recorded wall clock."""
    column = time_column(table)
    if column is None or "wall" in rows.schema.names:
        return rows
    times = rows.column(column).to_numpy()
    return rows.append_column("wall", pa.array(times * (MILLIS if column == "time_ms" else 1) + name.offset))


def count_rows(segment: Segment, table: str) -> int:
    """Count the rows of a table in a segment, without decoding them if it is sealed."""
    if segment.sealed:
        try:
            with _decoding():
                file = _open_parquet(segment.file(table))
                facts_in(file.metadata.metadata, table, segment.name)
                return int(file.metadata.num_rows)
        except FileNotFoundError:
            return 0
    rows = read_segment(segment, Request(table))
    return 0 if rows is None else int(rows.num_rows)


def damaged_files(segment: Segment) -> list[Skipped]:
    """Files of a sealed segment that can't be read, judged by their first and last bytes alone."""
    if not segment.sealed:
        return []
    found = []
    for path in sorted(segment.path.glob("*")):
        # An overview only repeats what the rows contain, so nothing is lost with it, but it may reveal a damaged disk.
        if path.suffix == PARQUET_SUFFIX and path.stem in (*TABLES, OVERVIEW):
            if trouble := _trouble(path, segment.name):
                found.append(Skipped(path, trouble))
        elif path.name != OLD_OVERVIEW_FILE:
            found.append(Skipped(path, FOREIGN))
    return found


def _trouble(path: Path, segment: SegmentName) -> str | None:
    """Why a Parquet file can't be used, judged by its first and last bytes; None if it can."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = os.pread(file.fileno(), len(_MAGIC), 0)
            tail = os.pread(file.fileno(), _TAIL, max(0, size - _TAIL))
    except UnreadableFile as error:
        return str(error)
    except FileNotFoundError:
        # Removed in the meantime.
        return None
    if head != _MAGIC or not tail.endswith(_MAGIC):
        return DAMAGED
    # The facts and the format version are at the very end of the footer, which is read whole only if they don't match.
    formats = FORMAT.findall(tail)
    # Thrift prefixes a string with its length.
    own_table, own_segment = (
        key + bytes([0x18, len(value)]) + value
        for key, value in ((TABLE_KEY, path.stem.encode()), (SEGMENT_KEY, segment.identity))
    )
    moved = SEGMENT_KEY in tail and own_segment not in tail
    if formats and int(formats[-1]) <= FORMAT_VERSION and own_table in tail and not moved:
        return None
    try:
        with _decoding():
            facts_in(_open_parquet(path).metadata.metadata, path.stem, segment)
    except UnreadableFile as error:
        return str(error)
    except FileNotFoundError:
        pass
    return None


def _open_parquet(path: Path, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    # Mapped here: given a path, Arrow first determines the file system, which takes as long.
    source = pa.BufferReader(map_regular(path))
    return pq.ParquetFile(source, read_dictionary=list(dictionaries), page_checksum_verification=True)


def _sealed(segment: Segment, request: Request, span: Window | None) -> pa.Table | None:
    file = _open_parquet(segment.file(request.table), request.dictionaries)
    schema = file.schema_arrow
    facts_in(file.metadata.metadata, request.table, segment.name)
    check_schema(schema, request.table)
    groups = list(range(file.metadata.num_row_groups))
    if span is not None:
        # Leaf columns and fields have the same index: no table with a time column has a list column before it.
        place = schema.get_field_index(request.clock)
        groups = [g for g in groups if _may_hold(file.metadata.row_group(g).column(place).statistics, span)]
    if not groups:
        return None
    needed = request.needed
    present = None if needed is None else [name for name in needed if name in schema.names]
    rows = file.read_row_groups(groups, columns=present, use_threads=False)
    rows.validate(full=True)
    rows = conform(rows, request.table, needed)
    _check_times(rows, request.table, segment.name)
    return rows


def _may_hold(times: pq.Statistics | None, span: Window) -> bool:
    return times is None or not times.has_min_max or (times.min < span.until and span.since <= times.max)


def _check_times(rows: pa.Table, table: str, name: SegmentName) -> None:
    """Raise UnreadableFile if a row is outside of the time given by the name of its sealed segment."""
    column = time_column(table)
    if column is None or table in DIMENSIONS or column not in rows.schema.names or not rows.num_rows:
        return
    times, scale = rows.column(column).to_numpy(), 1 if column == "time_ms" else MILLIS
    first, last = (int(extreme) // scale for extreme in (times.min(), times.max()))
    if not name.start_ms - name.reach_ms <= first <= last <= name.end_ms:
        raise UnreadableFile("rows of another time than its segment's")


def _live(segment: Segment, request: Request) -> tuple[pa.Table | None, bool]:
    """The rows of a live file that can be decoded, and whether there are others."""
    # Read, not mapped: the recorder may truncate the file on a full disk, and accessing a mapping would then crash.
    content = read_regular(segment.file(request.table), MOST_LIVE_BYTES)
    stream = LiveStream(pa.BufferReader(content), request.table)
    if stream.schema is None:
        return None, stream.damaged
    facts_in(stream.schema.metadata, request.table, segment.name)
    batches = list(stream)
    if not batches:
        return None, stream.damaged
    rows = conform(pa.Table.from_batches(batches), request.table, request.needed)
    for name in request.dictionaries:
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, name, rows.column(place).dictionary_encode())
    return rows, stream.damaged


class LiveStream:
    """Iterates over the intact batches of a live file, once.

    A file that ends inside a batch is what a killed recorder leaves behind. Anything else that can't be decoded or does
    not match its checksum is damage: `damaged` is set, and the batch is skipped. All values are validated as well, for
    files of earlier versions and crafted ones: following offsets that are out of bounds crashes the process."""

    def __init__(self, source: pa.NativeFile, table: str) -> None:
        self.schema: pa.Schema | None = None
        self.damaged = False
        #: The end of the last complete message read so far.
        self.end = 0
        self._source = source
        self._table = table
        self._reader: pa.ipc.RecordBatchStreamReader | None = None
        self._tries = _MOST_TRIES
        try:
            reader = pa.ipc.open_stream(source)
            check_schema(reader.schema, table)
            self._check(0, reader.schema.metadata)
            self.schema, self._reader = reader.schema, reader
        except UnreadableFile:
            self.damaged = True
        except DECODING_ERRORS:
            # Killed before the first message was complete, so there are no rows, unless other messages follow.
            self.damaged = self._is_damage(0) or next(self._marks(len(_CONTINUATION)), None) is not None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while self._reader is not None:
            begin = self.end = self._source.tell()
            try:
                batch, own = self._reader.read_next_batch_with_custom_metadata()
            except (StopIteration, *DECODING_ERRORS):
                # The recorder writes no end-of-stream marker: pages that a power cut left zero look like one.
                cut_off = not self._is_damage(begin)
                if self._resume(begin):
                    continue
                self.damaged = self.damaged or not cut_off
                return
            try:
                self._check(begin, own)
                batch.validate(full=True)
                check_required(batch, self._table)
            except (UnreadableFile, *DECODING_ERRORS):
                self.damaged = True
                # The length in its own metadata may be wrong.
                self._resume(begin)
                continue
            yield batch

    @property
    def _has_checksums(self) -> bool:
        """Whether the messages have checksums; those of earlier versions don't."""
        return self.schema is not None and CHECKSUM_KEY in (self.schema.metadata or {})

    def _check(self, begin: int, metadata: Mapping[bytes, bytes] | None) -> None:
        """Raise UnreadableFile if the message just read differs from what was written."""
        value = (metadata or {}).get(CHECKSUM_KEY)
        # The first message decides whether there are checksums; otherwise a damaged key would hide a missing checksum.
        if begin and (value is not None) != self._has_checksums:
            raise UnreadableFile(DAMAGED)
        end = self._source.tell()
        self._source.seek(begin)
        message = memoryview(self._source.read_buffer(end - begin))
        if value is not None and not checksum_matches(message, value):
            raise UnreadableFile(DAMAGED)

    def _resume(self, begin: int) -> bool:
        """Move to the next message with a valid checksum after a damaged one. False if there is none; the source's
        position is then unchanged."""
        if not self._has_checksums:
            return False
        here = self._source.tell()
        for place in self._marks(begin + len(_CONTINUATION)):
            self._source.seek(0)
            reader = pa.ipc.open_stream(self._source)
            self._source.seek(place)
            try:
                _, own = reader.read_next_batch_with_custom_metadata()
                self._check(place, own)
            except (StopIteration, UnreadableFile, *DECODING_ERRORS):
                continue
            self._source.seek(0)
            self._reader = pa.ipc.open_stream(self._source)
            self._source.seek(place)
            self.damaged = True
            return True
        self._source.seek(here)
        return False

    def _marks(self, begin: int) -> Iterator[int]:
        """Offsets at which messages with a checksum may begin."""
        while self._tries and begin < self._source.size():
            piece = self._source.read_at(_PIECE, begin)
            place = piece.find(_CONTINUATION)
            while place >= 0 and self._tries:
                if (begin + place) % _ALIGNMENT == 0:
                    head = self._source.read_at(_LARGEST_HEAD, begin + place)
                    if CHECKSUM_KEY in head[: 8 + int.from_bytes(head[4:8], "little")]:
                        self._tries -= 1
                        yield begin + place
                place = piece.find(_CONTINUATION, place + 1)
            if len(piece) < _PIECE:
                return
            begin += _PIECE - len(_CONTINUATION)

    def _is_damage(self, begin: int) -> bool:
        """Whether the undecodable bytes are anything but the beginning of a message that was cut off."""
        if self._source.tell() < self._source.size():
            return True
        mark = self._source.read_at(len(_CONTINUATION), begin)
        return not _CONTINUATION.startswith(mark)
