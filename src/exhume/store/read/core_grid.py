"""Cores x time as a grid of maxima: the worst second of a cell is what the cell shows, at every zoom.

One bad second on one of 96 cores stays visible in twelve hours; an average would hide it.

A sealed segment has its overview (how busy each core was in each whole second of the wall clock) in a Parquet file next
to its tables, so that a view of a whole recording need not decode every cpu row. Rows are what counts: an overview that
is missing, damaged or of other rows is not used.
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
from exhume.store.format.files import read_regular
from exhume.store.format.layout import layout_of
from exhume.store.format.names import OVERVIEW, PARQUET_SUFFIX, SegmentName
from exhume.store.format.schema import DECODING_ERRORS, FACTS_KEY, TABLE_KEY, UnreadableFile, facts_in
from exhume.store.read.progress import reader_threads

Ints = npt.NDArray[np.int64]
Scores = npt.NDArray[np.int16]

GAP = -1
# A recorder that was held up writes one row for the whole while; one of a minute is still found by its end.
LONGEST_ROW_NS = 60 * NANOS
# What a core can be busy with; `dominant` indexes this.
STATES = ("user", "system", "irq", "softirq", "iowait", "steal")
# Columns of the cpu table that make up a measure; `busy` and `wait` are computed.
_PARTS = {"user": ("user", "nice"), **{state: (state,) for state in STATES[1:]}}
MEASURES = ("busy", *_PARTS, "wait")
_COLUMNS = ("time", "cpu", "span_ms", "user", "nice", "system", "irq", "softirq", "iowait", "steal", "idle")
# Below the value there is room for the state that took most, so that one maximum finds both.
STATE_BITS = 3
_STATE = (1 << STATE_BITS) - 1
MOST_PERMILLE = (1 << 15 - STATE_BITS) - 1

OVERVIEW_FILE = OVERVIEW + PARQUET_SUFFIX
OVERVIEW_MEASURE = "busy"
_ROWS = "cpu.parquet"
# What the file holds, as JSON: a reader needs the scores alone, without their seconds and cores.
_INDEX_KEY = b"exhume.overview"
_CHECKSUM_KEY = b"exhume.checksum"
_OVERVIEW_TYPES = {"second": pa.int64(), "cpu": pa.uint16(), "score": pa.int16()}
_SCHEMA = pa.schema([pa.field(name, kind, nullable=False) for name, kind in _OVERVIEW_TYPES.items()])
# Rows further apart than any segment is long, or of cores that no machine has, are not worth an overview.
_MAX_CELLS = 1 << 20
# More than so many cells take uncompressed, with the metadata.
_MAX_BYTES = 16 * _MAX_CELLS


@dataclass(frozen=True, slots=True)
class CoreGrid:
    """`values[i, j]` is the greatest permille of core `cpus[i]` in cell j of the window, GAP where nothing was
    recorded; `dominant[i, j]` is the state (an index into STATES) that took most of that worst second, GAP likewise."""

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
    """Core number x second, from the wall clock's second `first` on: permille and state in one number, GAP where
    nothing was recorded."""

    first: int
    scores: Scores

    @property
    def nbytes(self) -> int:
        return self.scores.nbytes


def columns_for(measure: str) -> list[str]:
    """Raises UsageError for an unknown measure."""
    if measure not in MEASURES:
        raise UsageError(f"there is no measure {measure}; the measures are {', '.join(MEASURES)}")
    return [*_COLUMNS, *(["wait_ns"] if measure == "wait" else [])]


def build_grid(
    window: Window,
    cells: int,
    measure: str,
    segments: Iterable[SegmentName],
    read: Callable[[SegmentName], pa.Table | None],
) -> CoreGrid:
    """Pool the cpu rows that `read` gives for each segment. A row counts in the cell in which it begins; a cell in
    which none begins shows the row that covers it, so that zooming in below a second opens no gaps."""
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
    """What cpu rows (one at least) say of a measure."""
    first, last = _extent(name, rows)
    pool = _Pool(Window(first * NANOS, last * NANOS), last - first, measure)
    pool.add(rows, name)
    scores = pool.scores()
    limited = np.minimum(scores >> STATE_BITS, MOST_PERMILLE) << STATE_BITS | scores & _STATE
    return Piece(first, np.where(scores == GAP, GAP, limited).astype(np.int16))


def _extent(name: SegmentName, rows: pa.Table) -> tuple[int, int]:
    """The seconds of the wall clock that cpu rows (one at least) touch, half-open."""
    start = rows.column("time").to_numpy() + name.offset
    end = start + rows.column("span_ms").to_numpy().astype(np.int64) * MILLIS
    first = int(start.min()) // NANOS
    # A row of no length at a full second touches that second.
    return first, max(first + 1, -(-int(end.max()) // NANOS))


def row_in_cell(rows: pa.Table, measure: str, permille: int, cell: Window) -> Window | None:
    """The stretch of the row that gave a cell its value: one that begins inside, else the last that reaches into it.

    `rows` are those of the cell's core, with their `wall` time, from LONGEST_ROW_NS before the cell."""
    columns = _measured(rows, measure)
    since = columns["wall"].astype(np.int64)
    until = since + columns["span_ms"].astype(np.int64) * MILLIS
    alike = (_scores(columns, measure) >> STATE_BITS == permille) & (since < cell.until) & (until > cell.since)
    begun = np.flatnonzero(alike & (since >= cell.since))
    found = begun[:1] if len(begun) else np.flatnonzero(alike)[-1:]
    return Window(int(since[found[0]]), int(until[found[0]])) if len(found) else None


def _measured(rows: pa.Table, measure: str) -> dict[str, npt.NDArray[Any]]:
    """The columns of the rows that have a measure."""
    if measure == "wait":
        # Null is not zero: where the kernel does not report run-queue wait there is a gap.
        rows = rows.filter(rows.column("wait_ns").is_valid())
    return {column: rows.column(column).to_numpy() for column in rows.schema.names}


def _scores(columns: dict[str, npt.NDArray[Any]], measure: str) -> npt.NDArray[np.int32]:
    """The permille of each row, and below it, in STATE_BITS, the state that took most."""
    values: npt.NDArray[Any]
    if measure == "busy":
        values = 1000 - columns["idle"].astype(np.int32) - columns["iowait"]
    elif measure == "wait":
        values = columns["wait_ns"] / np.maximum(1, columns["span_ms"]) / 1000
    else:
        values = _taken(columns, measure)
    limited = np.clip(values, 0, np.iinfo(np.int32).max >> STATE_BITS).astype(np.int32)
    scores: npt.NDArray[np.int32] = (limited << STATE_BITS) | _state_of_most(columns, measure)
    return scores


def _taken(columns: dict[str, npt.NDArray[Any]], state: str) -> npt.NDArray[np.int32]:
    """The permille that a state took, in each row."""
    taken: npt.NDArray[np.int32] = sum(columns[part].astype(np.int32) for part in _PARTS[state])  # type: ignore[assignment]
    return taken


def _state_of_most(columns: dict[str, npt.NDArray[Any]], measure: str) -> npt.NDArray[np.int32]:
    """The state that took most of each row, the first of those that took alike. A core that waits for a disk is idle:
    what it did besides is what it was busy with."""
    # As one number with the value above, so that a maximum finds it: several times as quick as numpy's argmax.
    last = len(STATES) - 1
    most = np.zeros(len(columns["cpu"]), np.int32)
    for place, state in enumerate(STATES):
        if measure != "busy" or state != "iowait":
            np.maximum(most, (_taken(columns, state) << STATE_BITS) | (last - place), out=most)
    found: npt.NDArray[np.int32] = last - (most & _STATE)
    return found


class _Pool:
    """Two grids of maxima over one row a core number: of rows where they begin, and of rows wherever they cover."""

    def __init__(self, window: Window, cells: int, measure: str) -> None:
        self._window = window
        self._cells = cells
        self._measure = measure
        self._begun = np.full((0, cells), GAP, np.int32)
        self._covered = np.full((0, cells), GAP, np.int32)

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
        # A row that does not leave the cell in which it begins is in the other grid already; one that reaches into the
        # next alone is only looked at there where none begins.
        longer = (end > 0) & (start < self._window.nanos) & (~inside | (last > first))
        longer &= ~inside | (last > first + 1) | (begun[lines + last] == GAP)
        if longer.any():
            self._cover(cpu[longer], first[longer], last[longer], scores[longer])

    def _cell(self, since_start: Ints) -> Ints:
        # To the nanosecond while the product fits into 64 bits; months in thousands of cells, to the millisecond.
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
        """Core number x cell: permille and, below it, the state; GAP where there is neither."""
        found: npt.NDArray[np.int32] = np.where(self._begun == GAP, self._covered, self._begun)
        return found


class OverviewRows:
    """Collects the cpu rows of a segment while it is sealed."""

    def __init__(self) -> None:
        self._columns = columns_for(OVERVIEW_MEASURE)
        self._parts: list[pa.Table] = []

    def include(self, table: str, rows: pa.Table) -> None:
        # Another version's rows may lack columns: then there is no overview.
        if table == "cpu" and set(self._columns) <= set(rows.schema.names):
            self._parts.append(rows.select(self._columns))

    def write(self, directory: Path, name: SegmentName) -> None:
        """Write the overview, if there is one, of the segment whose files are in the directory. Raises OSError where
        the disk is full."""
        rows = pa.concat_tables(self._parts) if self._parts else None
        if rows is None or not rows.num_rows:
            return
        first, last = _extent(name, rows)
        if (last - first) * (int(rows.column("cpu").to_numpy().max()) + 1) > _MAX_CELLS:
            return
        piece = seconds_of(name, rows, OVERVIEW_MEASURE)
        size = (directory / _ROWS).stat().st_size
        index = json.dumps([str(name), size, piece.first, *piece.scores.shape]).encode()
        metadata = {
            FACTS_KEY: rows.schema.metadata[FACTS_KEY],
            TABLE_KEY: OVERVIEW.encode(),
            _INDEX_KEY: index,
            _CHECKSUM_KEY: _checksum(index, piece.scores),
        }
        with pq.ParquetWriter(
            directory / OVERVIEW_FILE, _SCHEMA, **layout_of(OVERVIEW, _SCHEMA).writer_options(_SCHEMA)
        ) as writer:
            writer.write_table(_to_table(piece))
            writer.add_key_value_metadata(metadata)


def read_overview(directory: Path, name: SegmentName) -> Piece | None:
    """The overview of a sealed segment; None where there is none that is whole and of the segment's rows."""
    try:
        # Hundreds are read for one view: paths are text here, and no more is looked at than is needed.
        content = read_regular(f"{directory}/{OVERVIEW_FILE}", _MAX_BYTES)
        # Page checksums are not verified: the one below covers all that is used.
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
        column = file.read_row_group(0, ["score"], use_threads=False).column(0).chunk(0)
        scores = column.to_numpy().astype(np.int16, copy=False).reshape(cores, seconds)
        whole = _checksum(metadata[_INDEX_KEY], scores) == metadata[_CHECKSUM_KEY]
        return Piece(first, scores) if whole else None
    except (*DECODING_ERRORS, UnreadableFile):
        return None


def _checksum(index: bytes, scores: Scores) -> bytes:
    return b"%d" % zlib.crc32(scores.astype("<i2", copy=False).data, zlib.crc32(index))


def _to_table(piece: Piece) -> pa.Table:
    """One row for each core and second, core by core."""
    cores, seconds = piece.scores.shape
    second = np.tile(np.arange(piece.first, piece.first + seconds, dtype=np.int64), cores)
    columns = (second, np.repeat(np.arange(cores, dtype=np.uint16), seconds), np.ascontiguousarray(piece.scores))
    # Not pa.array: given a numpy array it imports numpy.ma, which takes 40 ms and 4 MB of the recorder.
    arrays = [
        pa.Array.from_buffers(field.type, cores * seconds, [None, pa.py_buffer(values)])
        for field, values in zip(_SCHEMA, columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)
