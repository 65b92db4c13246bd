"""Cores x whole seconds of the wall clock, from the cpu rows of one segment: what wider views are pooled from."""

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exhume.model.clock import MILLIS, NANOS
from exhume.model.window import Window
from exhume.store.format.files import read_regular
from exhume.store.format.names import SegmentName
from exhume.store.format.schema import DECODING_ERRORS, UnreadableFile
from exhume.store.read.core_grid import GAP, CoreGrid, columns_for, grid_of_rows

# Below the value there is room for the state that took most, so that one maximum finds both.
STATE_BITS = 3
MOST_PERMILLE = (1 << 15 - STATE_BITS) - 1

Scores = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Piece:
    """Core number x second, from the wall clock's second `first` on: permille and state in one number, GAP where
    nothing was recorded."""

    first: int
    scores: Scores

    @property
    def nbytes(self) -> int:
        return self.scores.nbytes


def extent_of(name: SegmentName, rows: pa.Table) -> tuple[int, int]:
    """The seconds of the wall clock that cpu rows (one at least) touch, half-open."""
    start = rows.column("time").to_numpy() + name.offset
    end = start + rows.column("span_ms").to_numpy().astype(np.int64) * MILLIS
    first = int(start.min()) // NANOS
    # A row of no length at a full second touches that second.
    return first, max(first + 1, -(-int(end.max()) // NANOS))


def seconds_of(name: SegmentName, rows: pa.Table, measure: str) -> Piece:
    """What cpu rows (one at least) say of a measure."""
    first, last = extent_of(name, rows)
    grid = grid_of_rows(Window(first * NANOS, last * NANOS), last - first, measure, name, rows)
    return Piece(first, _whole(grid))


def _whole(grid: CoreGrid) -> Scores:
    """One line for every core number, in one number a cell."""
    lines = np.full((max(grid.cpus, default=-1) + 1, grid.cells), GAP, np.int16)
    joined = np.minimum(grid.values, MOST_PERMILLE) << STATE_BITS | np.maximum(grid.dominant, 0)
    lines[grid.cpus] = np.where(grid.values == GAP, GAP, joined)
    return lines


FILE = "overview.bin"
MEASURE = "busy"
_ROWS = "cpu.parquet"
_MAGIC = b"EXOVIEW1"
# The magic and a checksum of all that follows; then the size of the file of rows, the first second, cores, seconds, and
# the length of the segment's name, which comes next. The rest are the scores, compressed.
_SEALED = struct.Struct("<8sI")
_HEAD = struct.Struct("<qqIIH")
_CODEC = "zstd"
# Rows that lie further apart than any segment is long, or tell of cores that no machine has, are not worth an overview.
_MOST_CELLS = 1 << 20
# What so many cells take at most, if they can't be compressed.
MOST_BYTES = 4 * _MOST_CELLS


class OverviewRows:
    """The cpu rows that pass by while a segment is sealed."""

    def __init__(self) -> None:
        self._columns = columns_for(MEASURE)
        self._batches: list[pa.RecordBatch] = []

    def include(self, table: str, batch: pa.RecordBatch) -> None:
        # Another version's rows may lack columns: then there is no overview.
        if table == "cpu" and set(self._columns) <= set(batch.schema.names):
            self._batches.append(batch.select(self._columns))

    def write(self, directory: Path, name: SegmentName) -> int:
        """Write the overview of the segment whose files are in the directory; returns its bytes, 0 where there is
        none. Raises OSError where the disk is full."""
        rows = pa.Table.from_batches(self._batches) if self._batches else None
        if rows is None or not rows.num_rows or _cells(name, rows) > _MOST_CELLS:
            return 0
        size = (directory / _ROWS).stat().st_size
        return (directory / FILE).write_bytes(_told(name, size, seconds_of(name, rows, MEASURE)))


def read_overview(directory: Path, name: SegmentName) -> Piece | None:
    """What the overview of a sealed segment says; None where there is none that can be believed."""
    try:
        told = read_regular(directory / FILE, MOST_BYTES)
        size = (directory / _ROWS).stat().st_size
    except (OSError, UnreadableFile):
        return None
    if not is_whole(told):
        return None
    rows_size, first, cores, seconds, length = _HEAD.unpack_from(told, _SEALED.size)
    body = _SEALED.size + _HEAD.size + length
    if rows_size != size or told[body - length : body] != str(name).encode():
        return None
    if cores * seconds > _MOST_CELLS or abs(first - name.wall_ms // 1000) > _MOST_CELLS:
        return None
    try:
        scores = pa.decompress(told[body:], cores * seconds * 2, _CODEC, asbytes=True)
        return Piece(first, np.frombuffer(scores, "<i2").reshape(cores, seconds))
    except DECODING_ERRORS:
        return None


def is_whole(told: bytes) -> bool:
    """Whether these are the bytes of an overview as they were written."""
    if len(told) < _SEALED.size + _HEAD.size:
        return False
    return told.startswith(_SEALED.pack(_MAGIC, zlib.crc32(told[_SEALED.size :])))


def _told(name: SegmentName, rows_size: int, piece: Piece) -> bytes:
    words = str(name).encode()
    cores, seconds = piece.scores.shape
    head = _HEAD.pack(rows_size, piece.first, cores, seconds, len(words))
    scores: bytes = pa.compress(piece.scores.astype("<i2").tobytes(), _CODEC, asbytes=True)
    told = head + words + scores
    return _SEALED.pack(_MAGIC, zlib.crc32(told)) + told


def _cells(name: SegmentName, rows: pa.Table) -> int:
    first, last = extent_of(name, rows)
    return (last - first) * (int(rows.column("cpu").to_numpy().max()) + 1)
