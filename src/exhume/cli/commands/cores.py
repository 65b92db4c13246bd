"""Draw cores x seconds in the terminal, or print the cells as JSON.

Each cell shows its worst second: no spike is averaged away, however long the window is.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Collection
from dataclasses import replace

from exhume.cli import exit_codes
from exhume.cli.args import add_recording_options, option, value_of, whole_number
from exhume.cli.recording_args import RecordingView, add_cpu, parse_cpus, report_damaged
from exhume.cli.terminal import activity, say, show, suggest
from exhume.model.clock import NANOS, Window
from exhume.model.settings import COLOR
from exhume.model.tables import KERNEL_LOG
from exhume.model.text import count
from exhume.present.cores import Worst, axis_for, cores_json, grid_on, worst_cell
from exhume.present.terminal.console import console
from exhume.present.terminal.cores import cells_that_fit, draw_cores
from exhume.store.read.core_grid import (
    HELD,
    LONGEST_ROW_NS,
    UNUSUAL_MEASURES,
    CoreGrid,
    columns_for,
    greatest_row,
    row_window,
)

JSON_CELLS = 3600
# The sources of the measure `wait`; recordings of exhume 0.1 name the second one for both.
WAIT_SOURCES = ("run-queue wait", "cpu")


def add_options(parser: ArgumentParser) -> None:
    add_recording_options(parser)
    measures = "busy, unusual, stall, deviation, system, irq, softirq, user, steal, iowait or wait (for the core)."
    option(parser, "--measure STATE", measures, default="busy")
    add_cpu(parser)
    option(parser, "--cells N", "Cells in the window, instead of what fits.", type=whole_number(1, 100_000))


def run(options: Namespace) -> int:
    cpus = parse_cpus(options.cpu or [])
    view = RecordingView.open(options)
    window, cells = view.window(options), options.cells
    most = JSON_CELLS if options.json else cells_that_fit(console(value_of(options, COLOR)))

    def measured(measure: str) -> CoreGrid:
        """The window in as many cells as requested, else in whole seconds, as many as fit."""
        if cells or window.empty:
            return _of_cpus(view.recording.cores(window, cells or 0, measure), cpus)
        axis = axis_for(window, most)
        return _of_cpus(grid_on(axis, measure, lambda part, n: view.recording.cores(part, n, measure)), cpus)

    node = view.recording.facts.node
    with activity("reading cores"):
        grid = measured(options.measure)
        worst = _worst(view, grid)
        marks = [event for event in view.recording.events(window) if event.source == KERNEL_LOG]
    report_damaged(view.recording)
    if grid.cpus or options.json:
        heading = f"{node} · {count(len(grid.cpus), 'core')} · {grid.measure} · {view.format(window)}"
        show(
            options,
            lambda: cores_json(grid, marks, worst, node, view.zone),
            lambda terminal: draw_cores(terminal, grid, marks=marks, worst=worst, heading=heading, zone=view.zone),
        )
    if not grid.cpus:
        return _nothing(view, window, options.measure)
    if worst is not None and not options.json:
        around = view.window_args(worst.window.since - 2 * NANOS, worst.window.until + 3 * NANOS)
        suggest(f"exhume flame{around} --cpu {worst.cpu} -o worst.html")
    return exit_codes.OK


def _of_cpus(grid: CoreGrid, cpus: Collection[int] | None) -> CoreGrid:
    """The rows of some cores; all where none was chosen."""
    if cpus is None:
        return grid
    kept = [row for row, cpu in enumerate(grid.cpus) if cpu in cpus]
    rows = [grid.cpus[row] for row in kept]
    return replace(grid, cpus=rows, values=grid.values[kept], dominant=grid.dominant[kept])


def _nothing(view: RecordingView, window: Window, measure: str) -> int:
    """Say why there are no cores: the kernel doesn't provide the measure, or nothing was recorded."""
    missing = view.recording.facts.missing(*WAIT_SOURCES) if measure == "wait" and not window.empty else []
    if missing:
        say(f"exhume: source unavailable: {'; and '.join(map(str, missing))}")
        return exit_codes.NO_DATA
    return view.no_data(window, "cores" if measure == "busy" else f"cores with the measure {measure}")


def _worst(view: RecordingView, grid: CoreGrid) -> Worst | None:
    """The worst second. Its time is that of its row, because a cell may begin before or be longer."""
    worst = worst_cell(grid)
    if worst is None:
        return None
    measure = HELD if worst.measure in UNUSUAL_MEASURES else worst.measure
    cell, columns = worst.window, [*columns_for(measure), "wall"]
    rows = view.recording.read("cpu", Window(cell.since - LONGEST_ROW_NS, cell.until), columns, {worst.cpu})
    row = greatest_row(rows, measure, cell)
    return worst if row is None else replace(worst, window=row_window(rows, row))
