"""Cores x time as a grid of maxima: the worst second of a cell is what the cell shows, at every zoom.

One bad second on one of 96 cores stays visible in twelve hours; an average would hide it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.errors import UsageError
from exhume.store.format.names import SegmentName
from exhume.store.read.progress import reader_threads

Ints = npt.NDArray[np.int64]

GAP = -1
# A recorder that was held up writes one row for the whole while; one of a minute is still found by its end.
LONGEST_ROW_NS = 60 * NANOS
# What a core can be busy with; `dominant` indexes this.
STATES = ("user", "system", "irq", "softirq", "iowait", "steal")
# Columns of the cpu table that make up a measure; `busy` and `wait` are computed.
_PARTS = {
    "user": ("user", "nice"),
    "system": ("system",),
    "irq": ("irq",),
    "softirq": ("softirq",),
    "iowait": ("iowait",),
    "steal": ("steal",),
}
MEASURES = ("busy", *_PARTS, "wait")
_COLUMNS = ("time", "cpu", "span_ms", "user", "nice", "system", "irq", "softirq", "iowait", "steal", "idle")
# Room for the state below the value, so that one maximum finds both.
_STATE_BITS = 3


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
    return pool.grid()


def grid_of_rows(window: Window, cells: int, measure: str, name: SegmentName, rows: pa.Table) -> CoreGrid:
    """The cells of a window from the cpu rows of one segment."""
    pool = _Pool(window, cells, measure)
    pool.add(rows, name)
    return pool.grid()


def row_in_cell(rows: pa.Table, measure: str, permille: int, cell: Window) -> Window | None:
    """The stretch of the row that gave a cell its value: one that begins inside, else the last that reaches into it.

    `rows` are those of the cell's core, with their `wall` time, from LONGEST_ROW_NS before the cell."""
    columns = _measured(rows, measure)
    since = columns["wall"].astype(np.int64)
    until = since + columns["span_ms"].astype(np.int64) * MILLIS
    alike = (_scores(columns, measure) >> _STATE_BITS == permille) & (since < cell.until) & (until > cell.since)
    begun = np.flatnonzero(alike & (since >= cell.since))
    found = begun[:1] if len(begun) else np.flatnonzero(alike)[-1:]
    return Window(int(since[found[0]]), int(until[found[0]])) if len(found) else None


def _measured(rows: pa.Table, measure: str) -> dict[str, npt.NDArray[Any]]:
    """The columns of the rows that have a measure."""
    if measure == "wait":
        # Null is not zero: where the kernel does not report run-queue wait there is a gap.
        rows = rows.filter(pc.is_valid(rows.column("wait_ns")))
    return {column: rows.column(column).to_numpy() for column in rows.schema.names}


def _scores(columns: dict[str, npt.NDArray[Any]], measure: str) -> npt.NDArray[np.int32]:
    """The permille of each row, and below it, in _STATE_BITS, the state that took most."""
    values: npt.NDArray[Any]
    if measure == "busy":
        values = 1000 - columns["idle"].astype(np.int32) - columns["iowait"]
    elif measure == "wait":
        values = columns["wait_ns"] / np.maximum(1, columns["span_ms"]) / 1000
    else:
        values = _taken(columns, measure)
    limited = np.clip(values, 0, np.iinfo(np.int32).max >> _STATE_BITS).astype(np.int32)
    scores: npt.NDArray[np.int32] = (limited << _STATE_BITS) | _state_of_most(columns, measure)
    return scores


def _taken(columns: dict[str, npt.NDArray[Any]], state: str) -> npt.NDArray[np.int32]:
    """The permille that a state took, in each row."""
    first, *rest = (columns[part].astype(np.int32) for part in _PARTS[state])
    for part in rest:
        first += part
    return first


def _state_of_most(columns: dict[str, npt.NDArray[Any]], measure: str) -> npt.NDArray[np.int32]:
    """The state that took most of each row, the first of those that took alike. A core that waits for a disk is idle:
    what it did besides is what it was busy with."""
    # As one number with the value above, so that a maximum finds it: several times as quick as numpy's argmax.
    last = len(STATES) - 1
    most = np.zeros(len(columns["cpu"]), np.int32)
    for place, state in enumerate(STATES):
        if measure != "busy" or state != "iowait":
            np.maximum(most, (_taken(columns, state) << _STATE_BITS) | (last - place), out=most)
    found: npt.NDArray[np.int32] = last - (most & ((1 << _STATE_BITS) - 1))
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

    def grid(self) -> CoreGrid:
        scores = np.where(self._begun == GAP, self._covered, self._begun)
        seen = np.flatnonzero((scores != GAP).any(axis=1))
        scores = scores[seen]
        gaps = scores == GAP
        values = np.where(gaps, GAP, scores >> _STATE_BITS).astype(np.int32)
        dominant = np.where(gaps, GAP, scores & ((1 << _STATE_BITS) - 1)).astype(np.int8)
        return CoreGrid(self._window, self._measure, seen.tolist(), values, dominant)
