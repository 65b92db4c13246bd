"""The view model of the heatmap: cores x time, with its worst cell and the marks from the kernel log."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

import numpy as np
import numpy.typing as npt

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.text import count, duration, percent
from exhume.present.events_view import event_json
from exhume.present.serializer import Shape, to_json
from exhume.store.read.core_grid import CELL_STATES, GAP, UNUSUAL_MEASURES, CoreGrid, weights_of
from exhume.store.read.core_seconds import LONGEST_STALL_S, decode_unusual
from exhume.store.read.events import EventView

JSON_VERSION = 1
# Cell lengths in seconds that make a readable axis.
NICE_SECONDS = (
    *(1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40, 60, 80, 90, 120, 180, 240, 300, 400, 480, 600, 720, 900, 1200),
    *(1800, 2400, 3600, 5400, 7200, 10800, 14400, 21600, 43200, 86400),
)
Values = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Worst:
    """The worst cell of a grid: its value and its dominant state."""

    window: Window
    cpu: int
    measure: str
    state: str
    value: int


@dataclass(frozen=True, slots=True)
class CoreRow:
    """A row of the heatmap: one core, or several pooled into their maximum, with the core that was worst overall.

    `values` and `dominant` are taken from the worst core of each cell. `rank` is the badness of the worst cell in the
    row.
    """

    cpus: list[int]
    values: Values
    dominant: npt.NDArray[np.int8]
    worst_cpu: int
    rank: float


@dataclass(frozen=True, slots=True)
class Axis:
    """The time axis: cells of whole seconds, aligned to the wall clock, over the displayed window.

    The first and the last cell may extend past the window, but they contain only data from within it.
    """

    window: Window
    since: int
    cells: int
    cell_nanos: int

    def edge(self, cell: int) -> int:
        return self.since + cell * self.cell_nanos

    def parts(self) -> Iterator[tuple[Window, int]]:
        """The window split into stretches of equal cells: a partial first cell, whole cells, a partial last cell."""
        first = -(-(self.window.since - self.since) // self.cell_nanos)
        last = (self.window.until - self.since) // self.cell_nanos
        if first > last:
            yield self.window, 1
            return
        if first:
            yield Window(self.window.since, self.edge(first)), first
        if last > first:
            yield Window(self.edge(first), self.edge(last)), last - first
        if self.window.until > self.edge(last):
            yield Window(self.edge(last), self.window.until), 1


def axis_for(window: Window, most: int) -> Axis:
    """The axis for a window: cells of one second if they fit, else of the shortest nice length that fits."""
    since, until = window.since // NANOS, -(-window.until // NANOS)
    fitting = -(-(until - since) // max(1, most))
    seconds = next((nice for nice in NICE_SECONDS if nice >= fitting), fitting)
    return Axis(window, since * NANOS, max(1, -(-(until - since) // seconds)), seconds * NANOS)


def grid_on(axis: Axis, measure: str, read: Callable[[Window, int], CoreGrid]) -> CoreGrid:
    """The grid of an axis, joined from the grids that `read` returns for each of its parts."""
    grids = [read(window, cells) for window, cells in axis.parts()]
    cpus = sorted({cpu for grid in grids for cpu in grid.cpus})
    values = np.full((len(cpus), axis.cells), GAP, np.int32)
    dominant = np.full((len(cpus), axis.cells), GAP, np.int8)
    column = 0
    for grid, (_, cells) in zip(grids, axis.parts(), strict=True):
        if grid.cpus:
            rows = np.searchsorted(cpus, grid.cpus)
            values[rows, column : column + cells] = grid.values
            dominant[rows, column : column + cells] = grid.dominant
        column += cells
    return CoreGrid(Window(axis.since, axis.edge(axis.cells)), measure, cpus, values, dominant)


def state_of(grid: CoreGrid, dominant: int) -> str:
    """The state that a cell's value belongs to."""
    return CELL_STATES[dominant] if grid.measure in ("busy", *UNUSUAL_MEASURES) else grid.measure


def worst_cell(grid: CoreGrid) -> Worst | None:
    """The worst cell, the earliest if several are equal; None if nothing was recorded."""
    if not grid.values.size or int(grid.values.max()) == GAP:
        return None
    # Transposed, so that argmax finds the earliest cell; `worstCells` in the page breaks ties the same way.
    column, row = divmod(int(np.argmax(_ranks(grid).T)), len(grid.cpus))
    since, nanos = grid.window.since, grid.window.nanos
    window = Window(since + nanos * column // grid.cells, since + nanos * (column + 1) // grid.cells)
    state = state_of(grid, int(grid.dominant[row, column]))
    return Worst(window, grid.cpus[row], grid.measure, state, int(grid.values[row, column]))


def value_text(measure: str, state: str, value: int) -> str:
    """A cell's value as text: `98% system`, `held for 6 s by system`, `62 points above its normal, mostly system` (a
    difference of two shares). `valueText` in heat.ts produces the same text."""
    if measure not in UNUSUAL_MEASURES:
        return f"{percent(value / 1000, 0)} {state}"
    found = decode_unusual(measure, value)
    if not found.stall_ms and not found.deviation_permille:
        return f"as it normally is, mostly {state}"
    if not found.stall_ms:
        return f"{count(round(found.deviation_permille / 10), 'point')} above its normal, mostly {state}"
    least = "at least " if found.stall_ms >= LONGEST_STALL_S * 1000 else ""
    return f"held for {least}{duration(found.stall_ms * MILLIS)} by {'waiting tasks' if state == 'wait' else state}"


def _value_json(measure: str, value: int) -> dict[str, int | None]:
    """A cell's value as JSON: a share, or the two figures of an unusual-activity measure."""
    if measure not in UNUSUAL_MEASURES:
        return {"permille": None if value == GAP else value}
    if value == GAP:
        return {"stall_ms": None, "deviation_permille": None}
    found = decode_unusual(measure, value)
    return {"stall_ms": found.stall_ms, "deviation_permille": found.deviation_permille}


def _ranks(grid: CoreGrid) -> npt.NDArray[np.float64]:
    """The badness of each cell, comparable across the grid."""
    weights = np.array(weights_of(grid.measure))
    ranks: npt.NDArray[np.float64] = grid.values * weights[np.maximum(grid.dominant, 0)]
    return np.where(grid.values == GAP, GAP, ranks)


def column_of(grid: CoreGrid, wall: int) -> int | None:
    """The column that contains a moment; None if the moment is outside the grid."""
    if not grid.window.contains(wall):
        return None
    return (wall - grid.window.since) * grid.cells // grid.window.nanos


def pooled_rows(grid: CoreGrid, most: int) -> list[CoreRow]:
    """At most `most` rows: when there are more cores, neighbouring cores share a row, which shows their maximum."""
    size = max(1, -(-len(grid.cpus) // max(1, most)))
    rows, all_ranks = [], _ranks(grid)
    for start in range(0, len(grid.cpus), size):
        part = slice(start, start + size)
        ranks, cpus = all_ranks[part], grid.cpus[part]
        leader = np.argmax(ranks, axis=0)[np.newaxis]
        values, dominant = (np.take_along_axis(of[part], leader, axis=0)[0] for of in (grid.values, grid.dominant))
        worst = cpus[int(np.argmax(ranks.max(axis=1)))]
        rows.append(CoreRow(cpus, values, dominant, worst, float(ranks.max())))
    return rows


def _worst_json(worst: Worst, zone: tzinfo | None) -> dict[str, Any]:
    return {**to_json(worst.window, zone), **_value_json(worst.measure, worst.value)}


def cores_json(
    grid: CoreGrid, marks: Sequence[EventView], worst: Worst | None, node: str, zone: tzinfo | None
) -> dict[str, Any]:
    """The documented shape of `exhume cores --json`."""
    return {
        "version": JSON_VERSION,
        "node": node,
        "window": to_json(grid.window, zone),
        "measure": grid.measure,
        "cells": grid.cells,
        "cell_seconds": grid.cell_nanos / NANOS,
        "worst": to_json(worst, zone, {Worst: Shape(omit=("window", "value"), add=_worst_json)}),
        "cores": [
            {
                "cpu": cpu,
                **{name: [each[name] for each in read] for name in _value_json(grid.measure, GAP)},
                "state": [None if state == GAP else state_of(grid, state) for state in dominant],
            }
            for cpu, values, dominant in zip(grid.cpus, grid.values.tolist(), grid.dominant.tolist(), strict=True)
            for read in [[_value_json(grid.measure, value) for value in values]]
        ],
        "marks": [event_json(mark, zone) for mark in marks],
    }
