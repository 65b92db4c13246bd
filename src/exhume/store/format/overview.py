"""Overviews: how busy each core was in each whole second of the wall clock, from the cpu rows of one segment.

A sealed segment has its overview in a Parquet file next to its tables, so that a view of a whole recording need not
decode every cpu row. Rows are what counts: an overview that is missing, damaged or of other rows is not used.
"""

import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.store.format.files import read_regular
from exhume.store.format.layout import layout_of
from exhume.store.format.names import SegmentName
from exhume.store.format.schema import DECODING_ERRORS, FACTS_KEY, TABLE_KEY, UnreadableFile, facts_in
from exhume.store.read.core_grid import GAP, CoreGrid, columns_for, grid_of_rows

TABLE = "overview"
FILE = "overview.parquet"
# Of earlier versions, in a format of its own; not read any more.
OLD_FILE = "overview.bin"
MEASURE = "busy"
# Below the value there is room for the state that took most, so that one maximum finds both.
STATE_BITS = 3
MOST_PERMILLE = (1 << 15 - STATE_BITS) - 1

Scores = npt.NDArray[np.int16]

_ROWS = "cpu.parquet"
# What the file holds, as JSON: a reader needs the scores alone, without their seconds and cores.
_INDEX_KEY = b"exhume.overview"
_CHECKSUM_KEY = b"exhume.checksum"
_SCHEMA = pa.schema(
    [
        pa.field("second", pa.int64(), nullable=False),
        pa.field("cpu", pa.uint16(), nullable=False),
        pa.field("score", pa.int16(), nullable=False),
    ]
)
# Rows further apart than any segment is long, or of cores that no machine has, are not worth an overview.
_MAX_CELLS = 1 << 20
# More than so many cells take uncompressed, with the metadata.
_MAX_BYTES = 16 * _MAX_CELLS


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


class OverviewRows:
    """Collects the cpu rows of a segment while it is sealed."""

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
        if rows is None or not rows.num_rows or _cells(name, rows) > _MAX_CELLS:
            return 0
        piece = seconds_of(name, rows, MEASURE)
        size = (directory / _ROWS).stat().st_size
        index = json.dumps([str(name), size, piece.first, *piece.scores.shape]).encode()
        metadata = {
            FACTS_KEY: rows.schema.metadata[FACTS_KEY],
            TABLE_KEY: TABLE.encode(),
            _INDEX_KEY: index,
            _CHECKSUM_KEY: _checksum(index, piece.scores),
        }
        path = directory / FILE
        with pq.ParquetWriter(path, _SCHEMA, **layout_of(TABLE, _SCHEMA).writer_options(_SCHEMA)) as writer:
            writer.write_table(_to_table(piece))
            writer.add_key_value_metadata(metadata)
        return path.stat().st_size


def read_overview(directory: Path, name: SegmentName) -> Piece | None:
    """The overview of a sealed segment; None where there is none that is whole and of the segment's rows."""
    try:
        content = read_regular(directory / FILE, _MAX_BYTES)
        # Page checksums are not verified: the one below covers all that is used.
        file = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)
        metadata = file.metadata.metadata
        facts_in(metadata, TABLE)
        segment, size, first, cores, seconds = json.loads(metadata[_INDEX_KEY])
        if segment != directory.name or size != (directory / _ROWS).stat().st_size:
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


def _cells(name: SegmentName, rows: pa.Table) -> int:
    first, last = extent_of(name, rows)
    return (last - first) * (int(rows.column("cpu").to_numpy().max()) + 1)
