"""Writer of a recording: turns columns into record batches, validates them, and writes live files to be sealed."""

import errno
import io
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from exhume.model.clock import MILLIS, NANOS, Tick
from exhume.model.errors import RecordingError
from exhume.model.facts import RecordingFacts
from exhume.model.ownership import Access, open_own
from exhume.model.process import use_one_arena
from exhume.model.tables import TABLES, Columns
from exhume.store.format.names import LIVE_DIRECTORY, LIVE_SUFFIX, SegmentName, boot_part
from exhume.store.format.schema import (
    CHECKSUM_KEY,
    DIMENSIONS,
    DISK_FULL,
    UNSET_CHECKSUM,
    schema_of,
    with_checksum,
    with_facts,
)
from exhume.store.write.few_rows import Message, message_of
from exhume.store.write.lock import FULL, DirectoryLock, cannot_write
from exhume.store.write.retention import Retention
from exhume.store.write.seal import leftovers, sweep
from exhume.store.write.sealer import Sealer, StoreLoss

# Batches of at most this many rows are built row by row.
_FEW_ROWS = 64


@dataclass(frozen=True, slots=True)
class _Plan:
    """Per-table facts needed for each batch, as plain Python objects: asking Arrow each time costs more than encoding
    a few rows."""

    schema: pa.Schema
    row: pa.StructType
    names: frozenset[str]
    types: tuple[tuple[str, pa.DataType], ...]
    required: tuple[tuple[int, str], ...]


@cache
def _plan(table: str) -> _Plan:
    schema = schema_of(table)
    required = tuple((place, field.name) for place, field in enumerate(schema) if not field.nullable)
    types = tuple((field.name, field.type) for field in schema)
    return _Plan(schema, pa.struct(list(schema)), frozenset(schema.names), types, required)


def to_batch(table: str, columns: Columns) -> pa.RecordBatch | None:
    """The rows as a record batch; None if there are none. Raises ValueError if they don't fit the table."""
    plan = _plan(table)
    if not plan.names >= columns.keys():
        raise ValueError(f"table {table} has no column {', '.join(sorted(columns.keys() - plan.names))}")
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns of table {table} differ in length: {sorted(lengths)}")
    rows = lengths.pop() if lengths else 0
    if rows == 0:
        return None
    try:
        batch = _of_few_rows(plan, columns, rows) if rows <= _FEW_ROWS else None
        if batch is None:
            arrays = [_array(kind, columns.get(name), rows) for name, kind in plan.types]
            batch = pa.RecordBatch.from_arrays(arrays, schema=plan.schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise ValueError(f"rows don't fit table {table}: {error}") from error
    for place, name in plan.required:
        if batch.column(place).null_count:
            raise ValueError(f"column {name} of table {table} must not be null")
    return batch


def _of_few_rows(plan: _Plan, columns: Columns, rows: int) -> pa.RecordBatch | None:
    """Build a batch row by row: up to four times as fast as column by column for wide tables with few rows, for example
    node. None if that isn't possible."""
    lists: list[list[Any]] = []
    for name, _ in plan.types:
        values = columns.get(name)
        if values is None:
            values = [None] * rows
        elif isinstance(values, np.ndarray) and values.dtype.kind in "iuO":
            # The column-by-column path checks arrays of other kinds: here Arrow would truncate a float to an integer.
            values = values.tolist()
        elif not isinstance(values, list):
            return None
        lists.append(values)
    try:
        return pa.RecordBatch.from_struct_array(pa.array(list(zip(*lists, strict=True)), plan.row))
    except UnicodeEncodeError:
        # The column-by-column path can handle this.
        return None


def _array(kind: pa.DataType, values: Iterable[Any] | None, rows: int) -> pa.Array:
    if values is None:
        return pa.nulls(rows, kind)
    if isinstance(values, pa.Array):
        return values.cast(kind)
    if isinstance(values, np.ndarray):
        if values.dtype.kind in "iuf" and pa.types.is_primitive(kind):
            # Avoids a copy if the type fits. pa.array is not used because it imports numpy's masked arrays the first
            # time it is given a numpy array: 40 ms and 4 MB at the recorder's start.
            wanted = np.ascontiguousarray(values, dtype=_numpy_type(kind))
            if wanted.dtype != values.dtype and not np.array_equal(wanted, values):
                raise OverflowError(f"a value is beyond {kind}")
            return pa.Array.from_buffers(kind, len(wanted), [None, pa.py_buffer(wanted)])
        texts = values.tolist()
        values = [text.decode("utf-8", "replace") for text in texts] if values.dtype.kind == "S" else texts
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        # A process can set its name to any bytes, including invalid UTF-8.
        texts = [text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text for text in values]
        return pa.array([text.decode("utf-8", "replace") if isinstance(text, bytes) else text for text in texts], kind)


@cache
def _numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return found


# Messages smaller than this are written in one piece.
_BUFFER_BYTES = 16 << 10
_UNSET = pa.KeyValueMetadata({CHECKSUM_KEY: UNSET_CHECKSUM})


class _Pieces(io.RawIOBase):
    """A file object that collects what is written to it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]  # Arrow passes bytes alone.
        self._pieces.append(data)
        return len(data)

    def take(self) -> bytes:
        whole, self._pieces = b"".join(self._pieces), []
        return whole


class _Messages:
    """Turns a schema and batches into messages of an Arrow IPC stream.

    The stream writer is reused: creating one per batch would cost another 15 microseconds, several times what the
    checksum of a typical batch takes."""

    def __init__(self, schema: pa.Schema) -> None:
        own = {**(schema.metadata or {}), CHECKSUM_KEY: UNSET_CHECKSUM}
        self.header = with_checksum(schema.with_metadata(own).serialize().to_pybytes())
        self._pieces = _Pieces()
        self._buffer = pa.BufferedOutputStream(pa.PythonFile(self._pieces, "w"), _BUFFER_BYTES)
        self._writer = pa.ipc.RecordBatchStreamWriter(self._buffer, schema)
        # The writer emits the schema before its first batch; write and discard it here.
        self._writer.write_batch(pa.RecordBatch.from_pylist([], schema))
        self._take()

    def of(self, batch: pa.RecordBatch) -> bytes:
        """Encode a batch as a message whose checksum is not set yet."""
        self._writer.write_batch(batch, custom_metadata=_UNSET)
        return self._take()

    def _take(self) -> bytes:
        self._buffer.flush()
        return self._pieces.take()


def _encode(table: str, batch: pa.RecordBatch) -> bytes:
    return _Messages(schema_of(table)).of(batch)


class LiveTable:
    """The live file of one table: an Arrow IPC stream that grows by one message per tick.

    Each message is written with one system call, and truncated away if it did not fit. A file therefore holds only
    whole messages, except perhaps for the last one of a recorder that was killed during a write; readers stop there."""

    def __init__(self, directory: Path, table: str, facts: RecordingFacts, access: Access | None = None) -> None:
        self._fd = open_own(directory / (table + LIVE_SUFFIX), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        (access or Access()).apply(self._fd)
        segment = SegmentName.parse(directory.name)
        assert segment is not None
        self._messages = _Messages(with_facts(table, facts, segment))
        self._header = self._messages.header
        self.size = os.fstat(self._fd).st_size

    def write(self, batches: Sequence[pa.RecordBatch | Message]) -> int:
        """Append batches atomically and return the number of bytes. On an error none of them stays in the file."""
        messages = (each.data if isinstance(each, Message) else self._messages.of(each) for each in batches)
        pieces = self._header + [piece for message in messages for piece in with_checksum(message)]
        wanted = sum(len(piece) for piece in pieces)
        try:
            if os.writev(self._fd, pieces) != wanted:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(self._fd, self.size)
            raise
        self._header = []
        self.size += wanted
        return wanted

    def vanished(self) -> bool:
        """Whether the file was deleted: no process can open what is written to it from then on."""
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        os.close(self._fd)


# All rows of a segment share one offset between wall and monotonic time. When the clocks have drifted apart by more
# than this, the next segment begins. Only steps move them apart: NTP slews both alike (kernel/time/timekeeping.c).
CLOCK_STEP_NS = 250 * MILLIS

# A live segment is not cut for the size limit until it is at least this large.
_LEAST_LIVE_BYTES = 512 << 10

# How many ticks' losses are kept in memory while the disk has no room for them.
_LOSSES_OWED = 600
# Dimension tables come before the rows that refer to them, so a reader that sees a sample also sees its stack. The
# anchor is last.
_WRITE_ORDER = (*DIMENSIONS, *(table for table in TABLES if table not in (*DIMENSIONS, "anchors")), "anchors")


class SegmentWriter:
    """A RowSink that records into a directory. Raises DirectoryBusy if another recorder holds it."""

    def __init__(
        self,
        directory: Path,
        facts: RecordingFacts,
        *,
        max_bytes: int | None,
        max_age_s: float | None,
        segment_s: int = 60,
        access: Access | None = None,
        leftovers_s: float | None = None,
    ) -> None:
        # The recorder runs next to starved work: it should use a single thread and little memory.
        pa.set_cpu_count(1)
        use_one_arena()
        self._directory = directory
        self._facts = facts
        self._next_facts: RecordingFacts | None = None
        self._boot = boot_part(facts.boot_id)
        self._segment_ns = segment_s * NANOS
        # One segment is written while another is sealed, and both count. Segments below the minimum size would hold too
        # few rows to compress well.
        self._most_live = None if max_bytes is None else max(max_bytes // 4, _LEAST_LIVE_BYTES)
        self._access = access or Access()
        self._lock = DirectoryLock(directory, self._access)
        try:
            self._access.make_directory(directory / LIVE_DIRECTORY)
            sweep(directory)
            self._retention = Retention(directory, max_bytes, max_age_s, self._boot)
            self._sealer = Sealer(directory, self._retention, self._access, leftovers_s)
            for live in leftovers(directory):
                self._sealer.submit(live, leftover=True)
        except OSError as error:
            self._lock.close()
            if isinstance(error, NotADirectoryError):
                at = directory / LIVE_DIRECTORY
                raise RecordingError(
                    f"cannot record to {directory}: {at} is not a directory; remove it or choose another one with --dir"
                ) from None
            raise cannot_write(directory, error) from error
        self._pending: dict[str, list[pa.RecordBatch | Message]] = {}
        self._segment: SegmentName | None = None
        self._files: dict[str, LiveTable] = {}
        self._offset: int | None = None
        self._tick: Tick | None = None
        # Dropped rows not yet covered by a row of the losses table, and the total.
        self._dropped_rows = self._counted_rows = self._dropped_in_all = 0
        self._counted: pa.RecordBatch | Message | None = None
        self._closed = False

    @property
    def tightened(self) -> bool:
        """Whether the directory was readable by more users than it should have been until now."""
        return self._lock.tightened

    def append(self, table: str, columns: Columns) -> None:
        """Add rows to this tick. Raises ValueError if they don't fit the table; the writer itself adds the anchors."""
        if table == "anchors":
            raise ValueError("anchors are written by the store, from the tick")
        self._take(table, columns)

    def relabel(self, labels: Mapping[str, str]) -> None:
        """Set the node's labels. If they changed, a new segment begins with the next tick."""
        if dict(labels) != self._facts.labels:
            self._next_facts = replace(self._facts, labels=dict(labels))

    def commit(self, tick: Tick) -> bool:
        """Make the tick's rows readable. True when a new segment begins with the next tick."""
        self._raise_if_vanished()
        self._sealer.raise_failure()
        self._tick = tick
        offset = tick.wall - tick.end
        before = offset if self._offset is None else self._offset
        self._offset = offset
        if self._segment is None:
            self._segment = self._begin(tick.start, before)
        stepped = abs(offset - self._segment.offset) > CLOCK_STEP_NS
        if not stepped:
            # After a clock step this pair of times does not belong to the segment's clock.
            self._take("anchors", {"time": [tick.end], "wall": [tick.wall]})
        self._take_losses(tick)
        lost_dimension = self._write_pending()
        crossed = tick.wall // self._segment_ns != self._segment.wall_ms * MILLIS // self._segment_ns
        # A live segment takes ten times the space of a sealed one, and counts towards the size limit.
        large = self._most_live is not None and self._live_size() > self._most_live
        relabelled = self._next_facts is not None
        if stepped or lost_dimension or crossed or large or relabelled:
            self._end_segment(tick)
            self._facts, self._next_facts = self._next_facts or self._facts, None
            return True
        return False

    def written_bytes(self) -> int:
        return self._sealer.written_bytes()

    def dropped_rows(self) -> int:
        return self._dropped_in_all + self._sealer.discarded_rows

    def close(self) -> None:
        """Seal what is there and release the directory. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            self._pending = {table: rows for table, rows in self._pending.items() if table == "losses"}
            self._write_last_losses()
            self._end_segment()
            self._sealer.close()
            self._raise_if_vanished()
            self._sealer.raise_failure()
        except OSError as error:
            raise cannot_write(self._directory, error) from error
        finally:
            self._lock.close()

    def _raise_if_vanished(self) -> None:
        if self._lock.vanished():
            raise RecordingError(f"{self._directory} was deleted while it was being recorded; start the recorder again")
        # Checking one file is enough: they are removed together.
        if any(file.vanished() for file in islice(self._files.values(), 1)):
            raise RecordingError(f"{self._path()} was deleted while it was being recorded; start the recorder again")

    def _begin(self, start: int, offset: int) -> SegmentName:
        start_ms = start // MILLIS
        # Rounded up: a tick begins right after the full second, and must not be shown in the second before.
        return SegmentName(start_ms - (-offset // MILLIS), self._boot, start_ms)

    def _take(self, table: str, columns: Columns) -> pa.RecordBatch | Message | None:
        batch = message_of(table, columns, _encode) or to_batch(table, columns)
        if batch is not None:
            self._pending.setdefault(table, []).append(batch)
        return batch

    def _take_losses(self, tick: Tick) -> None:
        for loss in self._sealer.take_losses():
            self._take("losses", _loss(tick, loss))
        # Rows that are dropped in the same tick in which this count is written are counted in the next one.
        self._counted_rows = self._dropped_rows
        dropped = StoreLoss(DISK_FULL, self._dropped_rows, "rows that were dropped because the disk was full")
        self._counted = self._take("losses", _loss(tick, dropped)) if self._dropped_rows else None

    def _write_last_losses(self) -> None:
        """Count the losses since the last tick that could be written, if there is room for that by now."""
        if self._tick is None or self._lock.vanished():
            return
        self._take_losses(self._tick)
        if not self._pending.get("losses"):
            return
        if self._segment is None:
            # The segment that ended with this tick may also have begun with it, and waits to be sealed under that name.
            self._segment = self._begin(self._tick.end, self._tick.wall - self._tick.end)
        self._write_pending()

    def _write_pending(self) -> bool:
        """Write every table; True if rows were dropped that later rows of the segment refer to."""
        lost_dimension = False
        for table in _WRITE_ORDER:
            batches = self._pending.pop(table, None)
            if batches is None:
                continue
            if self._write(table, batches):
                if table == "losses":
                    self._dropped_rows -= self._counted_rows
                continue
            if table == "losses":
                # Loss records must not be lost themselves. The row that counts dropped rows is rebuilt every tick.
                owed = [batch for batch in batches if batch is not self._counted]
                self._pending["losses"], batches = owed[-_LOSSES_OWED:], owed[:-_LOSSES_OWED]
            dropped = sum(batch.num_rows for batch in batches)
            self._dropped_rows += dropped
            self._dropped_in_all += dropped
            lost_dimension = lost_dimension or table in DIMENSIONS
        return lost_dimension

    def _write(self, table: str, batches: list[pa.RecordBatch | Message]) -> bool:
        """Write one table's batches, removing the oldest segment if the disk is full. False if they were dropped."""
        made = [each for each in batches if isinstance(each, pa.RecordBatch)]
        if len(made) > 1:
            rest = [each for each in batches if isinstance(each, Message)]
            batches = [*rest, *pa.Table.from_batches(made).combine_chunks().to_batches()]
        try:
            while True:
                try:
                    self._sealer.live_bytes += self._file(table).write(batches)
                    return True
                except OSError as error:
                    if error.errno not in FULL:
                        raise
                if not self._sealer.make_room(may_discard=not self._closed):
                    return False
        except OSError as error:
            raise cannot_write(self._directory, error) from error

    def _file(self, table: str) -> LiveTable:
        file = self._files.get(table)
        if file is None:
            path = self._path()
            self._access.make_directory(path)
            file = self._files[table] = LiveTable(path, table, self._facts, self._access)
        return file

    def _live_size(self) -> int:
        return sum(file.size for file in self._files.values())

    def _path(self) -> Path:
        return self._directory / LIVE_DIRECTORY / str(self._segment)

    def _end_segment(self, tick: Tick | None = None) -> None:
        if self._segment is None:
            return
        reserve = self._live_size()
        for file in self._files.values():
            file.close()
        if reserve:
            self._sealer.submit(self._path(), tick, reserve)
        elif self._files:
            # The disk was full and none of its rows were written: it must not displace one that waits for sealing.
            shutil.rmtree(self._path(), ignore_errors=True)
        self._files = {}
        self._segment = None


def _loss(tick: Tick, loss: StoreLoss) -> Columns:
    return {
        "time": [tick.start],
        "source": ["store"],
        "kind": [loss.kind],
        "count": [loss.count],
        "text": [loss.text],
    }
