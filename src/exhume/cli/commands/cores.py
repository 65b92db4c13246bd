"""Draw cores x seconds in the terminal, or print the cells as JSON.

Each cell shows its busiest second: no spike is averaged away, however long the window is.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import replace

from exhume.cli import exit_codes
from exhume.cli.args import add_recording_options, option, value_of, whole_number
from exhume.cli.recording_args import RecordingView, report_damaged
from exhume.cli.terminal import activity, say, show, suggest
from exhume.model.clock import NANOS, Window
from exhume.model.settings import COLOR
from exhume.model.tables import KERNEL_LOG
from exhume.present.cores import Worst, axis_for, cores_json, grid_on, worst_cell
from exhume.present.terminal.console import console
from exhume.present.terminal.cores import cells_that_fit, draw_cores
from exhume.store.read.core_grid import LONGEST_ROW_NS, CoreGrid, columns_for, row_in_cell

JSON_CELLS = 3600
# The sources of the measure `wait`; recordings of exhume 0.1 name the second one for both.
WAIT_SOURCES = ("run-queue wait", "cpu")


def add_options(parser: ArgumentParser) -> None:
    add_recording_options(parser)
    measures = "busy, system, irq, softirq, user, steal, iowait or wait (for the core)."
    option(parser, "--measure STATE", measures, default="busy")
    option(parser, "--cells N", "Cells in the window, instead of what fits.", type=whole_number(1, 100_000))


def run(options: Namespace) -> int:
    view = RecordingView.open(options)
    window, cells = view.window(options), options.cells
    most = JSON_CELLS if options.json else cells_that_fit(console(value_of(options, COLOR)))

    def measured(measure: str) -> CoreGrid:
        """The window in as many cells as requested, else in whole seconds, as many as fit."""
        if cells or window.empty:
            return view.recording.cores(window, cells or 0, measure)
        return grid_on(axis_for(window, most), measure, lambda part, n: view.recording.cores(part, n, measure))

    node = view.recording.facts.node
    with activity("reading cores"):
        grid = measured(options.measure)
        worst = _worst(view, grid, measured)
        marks = [event for event in view.recording.events(window) if event.source == KERNEL_LOG]
    report_damaged(view.recording)
    if grid.cpus or options.json:
        heading = f"{node} · {len(grid.cpus)} cores · {grid.measure} · {view.format(window)}"
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


def _nothing(view: RecordingView, window: Window, measure: str) -> int:
    """Say why there are no cores: the kernel doesn't provide the measure, or nothing was recorded."""
    missing = view.recording.facts.missing(*WAIT_SOURCES) if measure == "wait" and not window.empty else []
    if missing:
        say(f"exhume: source unavailable: {'; and '.join(map(str, missing))}")
        return exit_codes.NO_DATA
    return view.no_data(window, "cores" if measure == "busy" else f"cores with the measure {measure}")


def _worst(view: RecordingView, grid: CoreGrid, measured: Callable[[str], CoreGrid]) -> Worst | None:
    """The worst second. Many cells may be equally busy: when the worst is not busy with programs, it is the one in
    which that state itself took most. Its time is that of its row, because a cell may begin before or be longer."""
    worst = worst_cell(grid)
    if worst is None:
        return None
    if grid.measure == "busy" and worst.state != "user":
        worst = worst_cell(measured(worst.state)) or worst
    cell, columns = worst.window, [*columns_for(worst.measure), "wall"]
    rows = view.recording.read("cpu", Window(cell.since - LONGEST_ROW_NS, cell.until), columns, {worst.cpu})
    return replace(worst, window=row_in_cell(rows, worst.measure, worst.permille, cell) or cell)
