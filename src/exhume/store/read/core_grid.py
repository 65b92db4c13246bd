"""Cores x time as a grid of maxima: each cell shows its worst second, at every zoom level.

One bad second on one of 96 cores stays visible in twelve hours; an average would hide it.

A value belongs to one state: it is the share of a second that the leading state took, not that of all states together.

A sealed segment has an overview (the leading state and the kernel's share of each core in each whole wall-clock second)
in a Parquet file next to its tables, so that a view of a whole recording need not decode every cpu row. The rows are
authoritative: an overview that is missing, damaged or computed from other rows is not used.
"""

import json
import os
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.errors import UsageError
from exhume.model.tables import HELD_PERMILLE, KERNEL_STATES, STATE_WEIGHTS, is_held
from exhume.store.format.files import read_regular
from exhume.store.format.layout import layout_of
from exhume.store.format.names import OVERVIEW, PARQUET_SUFFIX, SegmentName
from exhume.store.format.schema import DECODING_ERRORS, FACTS_KEY, TABLE_KEY, UnreadableFile, facts_in
from exhume.store.read.progress import reader_threads

Ints = npt.NDArray[np.int64]
Scores = npt.NDArray[np.int16]

GAP = -1
# A recorder that was stalled writes one row for the whole time; rows of up to a minute are still found by their end.
LONGEST_ROW_NS = 60 * NANOS
# What a core can be busy with; `dominant` indexes this.
STATES = ("user", "system", "irq", "softirq", "iowait", "steal")
# What a cell can show: what a core is busy with, or that tasks waited to run on it.
CELL_STATES = (*STATES, "wait")
# Columns of the cpu table that make up a measure; `busy` and `wait` are computed.
_PARTS = {"user": ("user", "nice"), **{state: (state,) for state in STATES[1:]}}
# How long a core was held, how far it is above its normal, and the stronger of the two (`store.read.core_seconds`).
UNUSUAL_MEASURES = ("unusual", "stall", "deviation")
MEASURES = (*UNUSUAL_MEASURES, "busy", *_PARTS, "wait")
# The measure behind unusual seconds: the kernel's share, with WAITED if tasks waited for nearly all of the second, and
# HELD_CORE if the kernel took nearly all of what the hypervisor left.
HELD = "held"
# Columns that place a row, and all columns of states.
_PLACE = ("time", "cpu", "span_ms")
_COLUMNS = (*_PLACE, "user", "nice", "system", "irq", "softirq", "iowait", "steal", "idle")
# A core that waits for a disk is idle: it is busy with whatever else it did.
_BUSY = tuple(state for state in STATES if state != "iowait")
# The low bits hold the leading state below the value, so that one maximum finds both.
STATE_BITS = 3
_STATE = (1 << STATE_BITS) - 1
MOST_PERMILLE = (1 << 15 - STATE_BITS) - 1
# Flag bits above the value of a HELD score, which is at most 1000.
WAITED = 1 << 10 + STATE_BITS
HELD_CORE = WAITED << 1

OVERVIEW_FILE = OVERVIEW + PARQUET_SUFFIX
# The columns of an overview: the measures that it provides.
OVERVIEW_MEASURES = ("busy", HELD)
_ROWS = "cpu.parquet"
# Metadata key of a JSON index of the file: a reader needs only the scores, without their second and cpu columns.
_INDEX_KEY = b"exhume.overview"
# Key prefix, followed by the name of the column.
_CHECKSUM_KEY = b"exhume.crc32."
_OVERVIEW_TYPES = {"second": pa.int64(), "cpu": pa.uint16(), **dict.fromkeys(OVERVIEW_MEASURES, pa.int16())}
_SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _OVERVIEW_TYPES.items()])
# No overview for rows that span more time than any segment does, or that name more cores than any machine has.
_MAX_CELLS = 1 << 20
# Upper bound for this many cells uncompressed, with the metadata.
_MAX_BYTES = 16 * _MAX_CELLS


@dataclass(frozen=True, slots=True)
class CoreGrid:
    """`values[i, j]` is the greatest permille of core `cpus[i]` in cell j of the window, GAP if nothing was recorded;
    `dominant[i, j]` is the state (an index into CELL_STATES) that reached it, or GAP. For the measure `busy` the value
    is the share of that state; `decode_unusual` of `store.read.core_seconds` decodes those of UNUSUAL_MEASURES."""

    window: Window
    measure: str
    cpus: list[int]
    values: npt.NDArray[np.int32]
    dominant: npt.NDArray[np.int8]

    @property
    def cells(self) -> int:
        return int(self.values.shape[1])

    @property
    def cell_nanos(self) -> float:
        return self.window.nanos / self.cells if self.cells else 0.0


@dataclass(frozen=True, slots=True)
class Piece:
    """Scores by core number and second, starting at wall-clock second `first`: permille and state in one number, GAP if
    nothing was recorded."""

    first: int
    scores: Scores

    @property
    def nbytes(self) -> int:
        return self.scores.nbytes


def weights_of(measure: str) -> list[float]:
    """The weight of each of CELL_STATES when states are compared."""
    return [STATE_WEIGHTS.get(state, 1.0) if measure == "busy" else 1.0 for state in CELL_STATES]


def columns_for(measure: str) -> list[str]:
    """The columns to read for a measure. Raises UsageError for an unknown one."""
    if measure not in (*MEASURES, HELD):
        raise UsageError(f"there is no measure {measure}; the measures are {', '.join(MEASURES)}")
    if measure in (HELD, *UNUSUAL_MEASURES):
        return [*_COLUMNS, "wait_ns"]
    if measure == "wait":
        return [*_PLACE, "wait_ns"]
    # A view of hours decodes hundreds of segments for a measure that their overviews lack: no column too many.
    return [*_PLACE, *(part for state in (_BUSY if measure == "busy" else (measure,)) for part in _PARTS[state])]


def build_grid(
    window: Window,
    cells: int,
    measure: str,
    segments: Iterable[SegmentName],
    read: Callable[[SegmentName], pa.Table | None],
) -> CoreGrid:
    """Max-pool the cpu rows that `read` returns for each segment. A row counts in the cell in which it begins; a cell
    in which no row begins shows the row that covers it, so that zooming in below a second opens no gaps."""
    if window.empty or cells < 1:
        nothing = np.zeros((0, 0))
        return CoreGrid(window, measure, [], nothing.astype(np.int32), nothing.astype(np.int8))
    pool = _Pool(window, cells, measure)
    with reader_threads() as threads:
        segments = list(segments)
        for name, rows in zip(segments, threads.map(read, segments), strict=True):
            if rows is not None:
                pool.add(rows, name)
    scores = pool.scores()
    seen = np.flatnonzero((scores != GAP).any(axis=1))
    scores = scores[seen]
    values = np.where(scores == GAP, GAP, scores >> STATE_BITS).astype(np.int32)
    dominant = np.where(scores == GAP, GAP, scores & _STATE).astype(np.int8)
    return CoreGrid(window, measure, seen.tolist(), values, dominant)


def seconds_of(name: SegmentName, rows: pa.Table, measure: str) -> Piece:
    """Compute the scores of a measure, or of HELD, from cpu rows (at least one)."""
    first, last = _extent(name, rows)

    def pooled(what: str, cores: int = 0) -> npt.NDArray[np.int32]:
        pool = _Pool(Window(first * NANOS, last * NANOS), last - first, what, cores)
        pool.add(rows, name)
        return pool.scores()

    scores = pooled(measure)
    limited = np.minimum(scores >> STATE_BITS, MOST_PERMILLE) << STATE_BITS | scores & _STATE
    if measure == HELD:
        limited |= np.where(pooled("wait", len(scores)) >> STATE_BITS >= HELD_PERMILLE, WAITED, 0)
    return Piece(first, np.where(scores == GAP, GAP, limited).astype(np.int16))


def _extent(name: SegmentName, rows: pa.Table) -> tuple[int, int]:
    """The wall-clock seconds that cpu rows (at least one) touch, half-open."""
    start = rows.column("time").to_numpy() + name.offset
    end = start + rows.column("span_ms").to_numpy().astype(np.int64) * MILLIS
    first = int(start.min()) // NANOS
    # A row of zero length on a second boundary still touches that second.
    return first, max(first + 1, -(-int(end.max()) // NANOS))


def greatest_row(rows: pa.Table, measure: str, cell: Window) -> int | None:
    """The row that gave a cell its value: the greatest that begins in the cell, else the greatest that overlaps it.

    `rows` are those of the cell's core, with their `wall` time, from LONGEST_ROW_NS before the cell."""
    known = np.asarray(rows.column("wait_ns").is_valid()) if measure == "wait" else np.ones(rows.num_rows, np.bool_)
    columns = {name: np.nan_to_num(rows.column(name).to_numpy()) for name in rows.schema.names}
    since = columns["wall"].astype(np.int64)
    until = since + columns["span_ms"].astype(np.int64) * MILLIS
    begun = known & (since >= cell.since) & (since < cell.until)
    chosen = begun if begun.any() else known & (since < cell.until) & (until > cell.since)
    if not chosen.any():
        return None
    return int(np.argmax(np.where(chosen, _scores(columns, measure), GAP)))


def row_window(rows: pa.Table, row: int) -> Window:
    """The time of a row that has a `wall` column."""
    since = rows.column("wall")[row].as_py()
    return Window(since, since + max(1, rows.column("span_ms")[row].as_py()) * MILLIS)


def _measured(rows: pa.Table, measure: str) -> dict[str, npt.NDArray[Any]]:
    """The columns of a measure, without rows that lack it."""
    columns = {column: rows.column(column).to_numpy() for column in rows.schema.names}
    if measure == "wait" and rows.column("wait_ns").null_count:
        # Null is not zero: if the kernel does not report run-queue wait, there is a gap. Arrow's filter is not used
        # because it would make the recorder, which writes overviews, import pyarrow.compute.
        known = ~np.isnan(columns["wait_ns"].astype(np.float64))
        columns = {column: values[known] for column, values in columns.items()}
    return columns


def _scores(columns: dict[str, npt.NDArray[Any]], measure: str) -> npt.NDArray[np.int32]:
    """The permille of each row, and in the low STATE_BITS the state that had it, or most of it."""
    if measure == "busy":
        return _leading(columns, _BUSY)
    if measure == HELD:
        kernel = np.minimum(np.sum([_taken(columns, state) for state in KERNEL_STATES], axis=0), 1000)
        held = np.where(is_held(kernel, columns["steal"].astype(np.int32)), HELD_CORE, 0).astype(np.int32)
        shares: npt.NDArray[np.int32] = held | (kernel << STATE_BITS) | (_leading(columns, KERNEL_STATES) & _STATE)
        return shares
    values: npt.NDArray[Any]
    if measure == "wait":
        values = columns["wait_ns"] / np.maximum(1, columns["span_ms"]) / 1000
    else:
        values = _taken(columns, measure)
    limited = np.clip(values, 0, np.iinfo(np.int32).max >> STATE_BITS).astype(np.int32)
    scores: npt.NDArray[np.int32] = (limited << STATE_BITS) | CELL_STATES.index(measure)
    return scores


def _taken(columns: dict[str, npt.NDArray[Any]], state: str) -> npt.NDArray[np.int32]:
    """The permille that a state took, per row."""
    taken: npt.NDArray[np.int32] = sum(columns[part].astype(np.int32) for part in _PARTS[state])  # type: ignore[assignment]
    return taken


def _leading(columns: dict[str, npt.NDArray[Any]], states: tuple[str, ...]) -> npt.NDArray[np.int32]:
    """The state that took most of each row, the first on a tie, with its permille in the high bits."""
    # Packed into one number below the value, so that a maximum finds it: several times as fast as numpy's argmax.
    last = len(STATES) - 1
    most = np.zeros(len(columns["cpu"]), np.int32)
    for state in states:
        np.maximum(most, (_taken(columns, state) << STATE_BITS) | (last - STATES.index(state)), out=most)
    leading: npt.NDArray[np.int32] = (most & ~_STATE) | (last - (most & _STATE))
    return leading


class _Pool:
    """Two grids of maxima with one line per core number: of rows in the cell where they begin, and of rows in every
    cell they cover."""

    def __init__(self, window: Window, cells: int, measure: str, cores: int = 0) -> None:
        self._window = window
        self._cells = cells
        self._measure = measure
        self._begun = np.full((cores, cells), GAP, np.int32)
        self._covered = np.full((cores, cells), GAP, np.int32)

    def add(self, rows: pa.Table, name: SegmentName) -> None:
        columns = _measured(rows, self._measure)
        if not len(columns["cpu"]):
            return
        cpu = columns["cpu"].astype(np.int64)
        self._grow(int(cpu.max()) + 1)
        start = columns["time"] + (name.offset - self._window.since)
        end = start + columns["span_ms"].astype(np.int64) * MILLIS
        scores = _scores(columns, self._measure)
        first = self._cell(start)
        inside = (start >= 0) & (start < self._window.nanos)
        begun, lines = self._begun.reshape(-1), cpu * self._cells
        np.maximum.at(begun, (lines + first)[inside], scores[inside])
        last = self._cell(end - 1)
        # A row that stays within the cell in which it begins is in the other grid already. One that only reaches into
        # the next cell matters only if no row begins there.
        longer = (end > 0) & (start < self._window.nanos) & (~inside | (last > first))
        longer &= ~inside | (last > first + 1) | (begun[lines + last] == GAP)
        if longer.any():
            self._cover(cpu[longer], first[longer], last[longer], scores[longer])

    def _cell(self, since_start: Ints) -> Ints:
        # To the nanosecond while the product fits into 64 bits; else (months in thousands of cells) to the millisecond.
        unit = 1 if self._window.nanos * self._cells < 1 << 62 else MILLIS
        cell: Ints = since_start // unit * self._cells // (self._window.nanos // unit)
        return np.clip(cell, 0, self._cells - 1)

    def _cover(self, cpu: Ints, first: Ints, last: Ints, scores: npt.NDArray[np.int32]) -> None:
        lengths = last - first + 1
        ends = np.cumsum(lengths)
        cell = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths - first, lengths)
        place = np.repeat(cpu, lengths) * self._cells + cell
        np.maximum.at(self._covered.reshape(-1), place, np.repeat(scores, lengths))

    def _grow(self, cpus: int) -> None:
        missing = cpus - len(self._begun)
        if missing > 0:
            more = np.full((missing, self._cells), GAP, np.int32)
            self._begun = np.concatenate([self._begun, more])
            self._covered = np.concatenate([self._covered, more])

    def scores(self) -> npt.NDArray[np.int32]:
        """Core number x cell: permille and, in the low bits, the state; GAP where no row begins or covers the cell."""
        found: npt.NDArray[np.int32] = np.where(self._begun == GAP, self._covered, self._begun)
        return found


class OverviewRows:
    """Collects the cpu rows of a segment while it is sealed."""

    def __init__(self) -> None:
        self._columns = columns_for(HELD)
        self._parts: list[pa.Table] = []

    def include(self, table: str, rows: pa.Table) -> None:
        # Rows of another version may lack columns: then there is no overview.
        if table == "cpu" and set(self._columns) <= set(rows.schema.names):
            self._parts.append(rows.select(self._columns))

    def write(self, directory: Path, name: SegmentName) -> None:
        """Write the overview, if there is one, of the segment whose files are in the directory. Raises OSError if the
        disk is full."""
        rows = pa.concat_tables(self._parts) if self._parts else None
        if rows is None or not rows.num_rows:
            return
        first, last = _extent(name, rows)
        if (last - first) * (int(rows.column("cpu").to_numpy().max()) + 1) > _MAX_CELLS:
            return
        pieces = {measure: seconds_of(name, rows, measure) for measure in OVERVIEW_MEASURES}
        cores, seconds = pieces[HELD].scores.shape
        size = (directory / _ROWS).stat().st_size
        index = json.dumps([str(name), size, first, cores, seconds]).encode()
        metadata = {FACTS_KEY: rows.schema.metadata[FACTS_KEY], TABLE_KEY: OVERVIEW.encode(), _INDEX_KEY: index}
        for measure, piece in pieces.items():
            metadata[_CHECKSUM_KEY + measure.encode()] = _checksum(index, piece.scores)
        with pq.ParquetWriter(
            directory / OVERVIEW_FILE, _SCHEMA, **layout_of(OVERVIEW, _SCHEMA).writer_options(_SCHEMA)
        ) as writer:
            writer.write_table(_to_table(pieces))
            writer.add_key_value_metadata(metadata)


def read_overview(directory: Path, name: SegmentName, measure: str) -> Piece | None:
    """Read one of OVERVIEW_MEASURES of a sealed segment; None if there is no overview that has it, is intact and was
    computed from the segment's rows."""
    try:
        # One view reads hundreds of these: paths are plain strings here, and only what is needed is checked.
        content = read_regular(f"{directory}/{OVERVIEW_FILE}", _MAX_BYTES)
        # Page checksums are not verified: the checksum below covers everything that is used.
        file = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)
        metadata = file.metadata.metadata
        facts_in(metadata, OVERVIEW, name)
        segment, size, first, cores, seconds = json.loads(metadata[_INDEX_KEY])
        if segment != directory.name or size != os.stat(f"{directory}/{_ROWS}").st_size:  # noqa: PTH116
            return None
        if not all(isinstance(number, int) for number in (first, cores, seconds)):
            return None
        if abs(first - name.wall_ms // 1000) > _MAX_CELLS:
            return None
        if file.metadata.num_rows != cores * seconds or cores * seconds > _MAX_CELLS:
            return None
        checksum = metadata.get(_CHECKSUM_KEY + measure.encode())
        if checksum is None:
            # Written by an earlier version, whose scores have a different meaning.
            return None
        column = file.read_row_group(0, [measure], use_threads=False).column(0).chunk(0)
        scores = column.to_numpy().astype(np.int16, copy=False).reshape(cores, seconds)
        return Piece(first, scores) if _checksum(metadata[_INDEX_KEY], scores) == checksum else None
    except (*DECODING_ERRORS, UnreadableFile):
        return None


def _checksum(index: bytes, scores: Scores) -> bytes:
    return b"%d" % zlib.crc32(scores.astype("<i2", copy=False).data, zlib.crc32(index))


def _to_table(pieces: dict[str, Piece]) -> pa.Table:
    """One row per core and second, core by core."""
    first, (cores, seconds) = pieces[HELD].first, pieces[HELD].scores.shape
    second = np.tile(np.arange(first, first + seconds, dtype=np.int64), cores)
    scores = (np.ascontiguousarray(pieces[measure].scores) for measure in OVERVIEW_MEASURES)
    columns = (second, np.repeat(np.arange(cores, dtype=np.uint16), seconds), *scores)
    # Not pa.array: given a numpy array it imports numpy.ma, which costs the recorder 40 ms and 4 MB.
    arrays = [
        pa.Array.from_buffers(field.type, cores * seconds, [None, pa.py_buffer(values)])
        for field, values in zip(_SCHEMA, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)
