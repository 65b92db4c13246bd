"""The view model of the heatmap: cores x time, with the worst cell named and the kernel log's marks beside it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

import numpy as np
import numpy.typing as npt

from exhume.model.clock import NANOS
from exhume.model.times import format_moment
from exhume.model.window import Window
from exhume.present.events_view import event_json
from exhume.store.cores import GAP, STATES, CoreGrid
from exhume.store.events import EventView

JSON_VERSION = 1
# Lengths of a cell that read well on an axis, in seconds.
NICE_SECONDS = (
    *(1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 40, 60, 80, 90, 120, 180, 240, 300, 400, 480, 600, 720, 900, 1200),
    *(1800, 2400, 3600, 5400, 7200, 10800, 14400, 21600, 43200, 86400),
)
# Among cells that are about equally busy (within five percent), the state that is least likely to be wanted comes
# first: programs are what a node is for.
_ABOUT_EQUAL = 50
_SUSPICION = {"system": 5, "softirq": 4, "irq": 4, "steal": 3, "iowait": 2, "user": 1}

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
    """A line of the heatmap: one core, or several pooled into their maximum, with the core that was worst overall."""

    cpus: list[int]
    values: Values
    dominant: npt.NDArray[np.int8]
    worst_cpu: int

    @property
    def label(self) -> str:
        return str(self.cpus[0]) if len(self.cpus) == 1 else f"{self.cpus[0]}-{self.cpus[-1]}"


def cells_for(window: Window, most: int) -> int:
    """How many cells to draw: one a second where there is room, else the nice length that fits."""
    for seconds in NICE_SECONDS:
        cells = -(-window.nanos // (seconds * NANOS))
        if cells <= most:
            return max(1, cells)
    return max(1, most)


def state_of(grid: CoreGrid, dominant: int) -> str:
    """The state whose colour a cell has: the one that took most of it, or the one that is being measured."""
    if grid.measure != "busy":
        return grid.measure
    return STATES[dominant]


def worst_cell(grid: CoreGrid) -> Worst | None:
    """The busiest cell; None where nothing was recorded."""
    if not grid.values.size or int(grid.values.max()) == GAP:
        return None
    suspicion = np.array([_SUSPICION[state] for state in STATES])[np.maximum(grid.dominant, 0)]
    values = grid.values.astype(np.int64)
    rank = (((values - 1) // _ABOUT_EQUAL) * 8 + suspicion) * (int(values.max()) + 2) + values
    row, column = divmod(int(np.argmax(rank)), grid.cells)
    state = state_of(grid, int(grid.dominant[row, column]))
    return Worst(cell_window(grid, column), grid.cpus[row], grid.measure, state, int(grid.values[row, column]))


def cell_window(grid: CoreGrid, column: int) -> Window:
    """The stretch of time of a column."""
    since, nanos = grid.window.since, grid.window.nanos
    return Window(since + nanos * column // grid.cells, since + nanos * (column + 1) // grid.cells)


def column_of(grid: CoreGrid, wall: int) -> int | None:
    """The column that a moment falls into; None outside."""
    if not grid.window.contains(wall):
        return None
    return (wall - grid.window.since) * grid.cells // grid.window.nanos


def pooled_rows(grid: CoreGrid, most: int) -> list[CoreRow]:
    """At most so many rows: neighbouring cores share one where there are more cores, and its maximum is kept."""
    size = max(1, -(-len(grid.cpus) // max(1, most)))
    return [_row(grid, slice(start, start + size)) for start in range(0, len(grid.cpus), size)]


def _row(grid: CoreGrid, part: slice) -> CoreRow:
    values, dominant, cpus = grid.values[part], grid.dominant[part], grid.cpus[part]
    leader = np.argmax(values, axis=0)[np.newaxis]
    worst = int(np.argmax(values.max(axis=1))) if values.shape[1] else 0
    return CoreRow(
        cpus,
        np.take_along_axis(values, leader, axis=0)[0],
        np.take_along_axis(dominant, leader, axis=0)[0],
        cpus[worst],
    )


def cores_json(
    grid: CoreGrid, marks: Sequence[EventView], worst: Worst | None, node: str, zone: tzinfo | None
) -> dict[str, Any]:
    """The documented shape of `exhume cores --json`."""
    return {
        "version": JSON_VERSION,
        "node": node,
        "window": {"since": format_moment(grid.window.since, zone), "until": format_moment(grid.window.until, zone)},
        "measure": grid.measure,
        "cells": grid.cells,
        "cell_seconds": grid.cell_nanos / NANOS,
        "worst": worst
        and {
            "since": format_moment(worst.window.since, zone),
            "until": format_moment(worst.window.until, zone),
            "cpu": worst.cpu,
            "measure": worst.measure,
            "state": worst.state,
            "permille": worst.permille,
        },
        "cores": list(_cores(grid)),
        "marks": [event_json(mark, zone) for mark in marks],
    }


def _cores(grid: CoreGrid) -> Iterator[dict[str, Any]]:
    for cpu, values, dominant in zip(grid.cpus, grid.values.tolist(), grid.dominant.tolist(), strict=True):
        yield {
            "cpu": cpu,
            "permille": [None if value == GAP else value for value in values],
            "state": [None if state == GAP else state_of(grid, state) for state in dominant],
        }
