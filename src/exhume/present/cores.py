"""The view model of the heatmap: cores x time, with the worst cell named and the marks of the kernel log."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

import numpy as np
import numpy.typing as npt

from exhume.model.clock import NANOS, Window
from exhume.present.events_view import event_json
from exhume.present.serializer import Shape, to_json
from exhume.store.read.core_grid import GAP, STATES, CoreGrid
from exhume.store.read.events import EventView

JSON_VERSION = 1
# Lengths of a cell that read well on an axis, in seconds.
NICE_SECONDS = (
    *(1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40, 60, 80, 90, 120, 180, 240, 300, 400, 480, 600, 720, 900, 1200),
    *(1800, 2400, 3600, 5400, 7200, 10800, 14400, 21600, 43200, 86400),
)
# Among cells that are about equally busy (within five percent), the state that is least likely to be intended comes
# first: programs are what a node is for.
_ABOUT_EQUAL = 50
_SUSPICION = np.array([{"system": 5, "softirq": 4, "irq": 4, "steal": 3, "iowait": 2, "user": 1}[s] for s in STATES])
# A core that is taken away from programs for nearly all of a second is worse than any that they fill.
_STARVING = np.array([state in ("system", "softirq", "irq", "steal") for state in STATES])
_NEARLY_ALL = 900

Values = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Worst:
    """The worst cell of a grid: `permille` of what was measured, and the state that took most of it."""

    window: Window
    cpu: int
    measure: str
    state: str
    permille: int


@dataclass(frozen=True, slots=True)
class CoreRow:
    """A line of the heatmap: one core, or several pooled into their maximum, with the core that was worst overall.

    `dominant` is the state of the worst core of each cell, and `rank` is how bad the worst cell of the line is."""

    cpus: list[int]
    values: Values
    dominant: npt.NDArray[np.int8]
    worst_cpu: int
    rank: int


@dataclass(frozen=True, slots=True)
class Axis:
    """Cells of whole seconds that begin where the wall clock's seconds do, and the window that they show.

    The first and the last cell may reach past the window; nothing from outside of it is shown in them."""

    window: Window
    since: int
    cells: int
    cell_nanos: int

    def edge(self, cell: int) -> int:
        return self.since + cell * self.cell_nanos

    def parts(self) -> Iterator[tuple[Window, int]]:
        """The window in stretches of equal cells: one that is cut off at the beginning, whole ones, one at the end."""
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
    """One cell a second where there is room for them, else of the nice length that fits."""
    since, until = window.since // NANOS, -(-window.until // NANOS)
    fitting = -(-(until - since) // max(1, most))
    seconds = next((nice for nice in NICE_SECONDS if nice >= fitting), fitting)
    return Axis(window, since * NANOS, max(1, -(-(until - since) // seconds)), seconds * NANOS)


def grid_on(axis: Axis, measure: str, read: Callable[[Window, int], CoreGrid]) -> CoreGrid:
    """The cells of an axis, from the grids that `read` gives for its parts."""
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
    """The state whose colour a cell has: the one that took most of it, or the one that is being measured."""
    return STATES[dominant] if grid.measure == "busy" else grid.measure


def worst_cell(grid: CoreGrid) -> Worst | None:
    """The busiest cell; None where nothing was recorded."""
    if not grid.values.size or int(grid.values.max()) == GAP:
        return None
    row, column = divmod(int(np.argmax(_ranks(grid))), grid.cells)
    since, nanos = grid.window.since, grid.window.nanos
    window = Window(since + nanos * column // grid.cells, since + nanos * (column + 1) // grid.cells)
    state = state_of(grid, int(grid.dominant[row, column]))
    return Worst(window, grid.cpus[row], grid.measure, state, int(grid.values[row, column]))


def _ranks(grid: CoreGrid) -> npt.NDArray[np.int64]:
    """How bad each cell is, as numbers that can be compared across the grid."""
    values = grid.values.astype(np.int64)
    if grid.measure != "busy":
        return values
    state = np.maximum(grid.dominant, 0)
    starved = _STARVING[state] & (values >= _NEARLY_ALL)
    alike = (values - 1) // _ABOUT_EQUAL * 8 + _SUSPICION[state]
    # Busy is at most 1000 permille: ten bits hold it, and ten the group above.
    ranks: npt.NDArray[np.int64] = (starved.astype(np.int64) << 20) + (alike << 10) + values
    return ranks


def column_of(grid: CoreGrid, wall: int) -> int | None:
    """The column that a moment falls into; None outside."""
    if not grid.window.contains(wall):
        return None
    return (wall - grid.window.since) * grid.cells // grid.window.nanos


def pooled_rows(grid: CoreGrid, most: int) -> list[CoreRow]:
    """At most so many rows: neighbouring cores share one where there are more cores, and its maximum is kept."""
    size = max(1, -(-len(grid.cpus) // max(1, most)))
    rows, all_ranks = [], _ranks(grid)
    for start in range(0, len(grid.cpus), size):
        part = slice(start, start + size)
        ranks, cpus = all_ranks[part], grid.cpus[part]
        leader = np.argmax(ranks, axis=0)[np.newaxis]
        dominant = np.take_along_axis(grid.dominant[part], leader, axis=0)[0]
        worst = cpus[int(np.argmax(ranks.max(axis=1)))]
        rows.append(CoreRow(cpus, grid.values[part].max(axis=0), dominant, worst, int(ranks.max())))
    return rows


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
        "worst": to_json(worst, zone, {Worst: Shape(omit=("window",), add=lambda each, _: to_json(each.window, zone))}),
        "cores": [
            {
                "cpu": cpu,
                "permille": [None if value == GAP else value for value in values],
                "state": [None if state == GAP else state_of(grid, state) for state in dominant],
            }
            for cpu, values, dominant in zip(grid.cpus, grid.values.tolist(), grid.dominant.tolist(), strict=True)
        ],
        "marks": [event_json(mark, zone) for mark in marks],
    }
