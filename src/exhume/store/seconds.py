"""Cores x whole seconds of the wall clock, from the cpu rows of one segment: what wider views are pooled from."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exhume.model.clock import MILLIS, NANOS
from exhume.model.window import Window
from exhume.store.cores import GAP, CoreGrid, grid_of_rows
from exhume.store.names import SegmentName

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
    return int(start.min()) // NANOS, -(-int(end.max()) // NANOS)


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
