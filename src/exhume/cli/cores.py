"""Draw cores x seconds in the terminal, or print the cells as JSON.

Each cell shows its busiest second: no spike is averaged away, however far the view is zoomed out.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from exhume.cli import exits
from exhume.cli.options import add_looking, value_of, whole_number

if TYPE_CHECKING:
    from exhume.cli.looking import Look
    from exhume.model.window import Window
    from exhume.present.cores import Worst
    from exhume.store.read.core_grid import CoreGrid
    from exhume.store.read.events import EventView

JSON_CELLS = 3600


def add_options(parser: ArgumentParser) -> None:
    add_looking(parser)
    measures = "busy, system, irq, softirq, user, steal, iowait or wait (for the core)"
    parser.add_argument("--measure", metavar="STATE", default="busy", help=f"{measures} [default: busy].")
    parser.add_argument(
        "--cells", type=whole_number(1, 100_000), metavar="N", help="Cells in the window, instead of what fits."
    )


def run(options: Namespace) -> int:
    from exhume.cli.looking import Look, report_damaged
    from exhume.cli.speaking import patience, say

    color = value_of(options, "color")
    look = Look.into(options)
    window = look.window(options.since, options.until)
    measured = _measuring(look, window, options.cells, JSON_CELLS if options.json else _room(color))
    with patience("reading cores"):
        grid = measured(options.measure)
        worst, marks = _worst(look, grid, measured), _marks(look, window)
    report_damaged(look.recording)
    if options.json:
        _print_json(look, grid, marks, worst)
    if not grid.cpus:
        say(f"exhume: {_why_nothing(look, window, options.measure)}")
        return exits.NOTHING
    if not options.json:
        _draw(look, window, grid, marks, worst, color=color)
    return exits.OK


def _room(color: str) -> int:
    from exhume.present.terminal.console import console
    from exhume.present.terminal.cores import cells_that_fit

    return cells_that_fit(console(color))


def _draw(
    look: "Look", window: "Window", grid: "CoreGrid", marks: "list[EventView]", worst: "Worst | None", *, color: str
) -> None:
    from exhume.cli.speaking import suggest
    from exhume.present.terminal.console import console
    from exhume.present.terminal.cores import draw_cores

    heading = f"{look.recording.facts.node} · {len(grid.cpus)} cores · {grid.measure} · {look.shown(window)}"
    draw_cores(console(color), grid, marks=marks, worst=worst, heading=heading, zone=look.zone)
    if worst is not None:
        suggest(_next(look, worst))


def _measuring(look: "Look", window: "Window", cells: int | None, most: int) -> "Callable[[str], CoreGrid]":
    """The grid of a measure: the window in as many cells as were asked for, else in whole seconds, as many as fit."""
    from exhume.present.cores import axis_for, grid_on

    def measured(measure: str) -> "CoreGrid":
        if cells or window.empty:
            return look.recording.cores(window, cells or 0, measure)
        return grid_on(axis_for(window, most), measure, lambda part, n: look.recording.cores(part, n, measure))

    return measured


def _why_nothing(look: "Look", window: "Window", measure: str) -> str:
    """A measure that the kernel doesn't give is missing for another reason than a time that was not recorded."""
    if measure == "wait" and not window.empty:
        missing = [source for source in look.recording.facts.sources_missing if "run-queue wait" in source]
        if missing:
            return "; ".join(missing)
    return look.nothing_in(window, "cores" if measure == "busy" else f"cores with the measure {measure}")


def _worst(look: "Look", grid: "CoreGrid", measured: "Callable[[str], CoreGrid]") -> "Worst | None":
    """The worst second. Many cells may be equally busy: when the worst is not busy with programs, it is the one in
    which that state itself took most. Its time is that of its row, because a cell may begin before or be longer."""
    from exhume.model.window import Window
    from exhume.present.cores import worst_cell
    from exhume.store.read.core_grid import LONGEST_ROW_NS, columns_for, row_in_cell

    worst = worst_cell(grid)
    if worst is None:
        return None
    if grid.measure == "busy" and worst.state != "user":
        worst = worst_cell(measured(worst.state)) or worst
    cell, columns = worst.window, [*columns_for(worst.measure), "wall"]
    rows = look.recording.read("cpu", Window(cell.since - LONGEST_ROW_NS, cell.until), columns, {worst.cpu})
    return replace(worst, window=row_in_cell(rows, worst.measure, worst.permille, cell) or cell)


def _marks(look: "Look", window: "Window") -> "list[EventView]":
    from exhume.model.events import KERNEL_LOG

    return [event for event in look.recording.events(window) if event.source == KERNEL_LOG]


def _print_json(look: "Look", grid: "CoreGrid", marks: "list[EventView]", worst: "Worst | None") -> None:
    import json

    from exhume.present.cores import cores_json

    print(json.dumps(cores_json(grid, marks, worst, look.recording.facts.node, look.zone)))


def _next(look: "Look", worst: "Worst") -> str:
    from exhume.cli.speaking import directory_words
    from exhume.model.clock import NANOS
    from exhume.model.times import format_moment

    around = (worst.window.since - 2 * NANOS, worst.window.until + 3 * NANOS)
    since, until = (format_moment(moment, look.zone, digits=0) for moment in around)
    where = directory_words(look.recording.directory)
    return f"exhume flame{where} --since {since} --until {until} --cpu {worst.cpu} -o worst.html"
