"""Draw cores x seconds in the terminal, or print the cells as JSON.

Each cell shows its busiest second: no spike is averaged away, however far the view is zoomed out.
"""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from exhume.cli import exits
from exhume.cli.options import add_looking, value_of, whole_number

if TYPE_CHECKING:
    from exhume.cli.looking import Look
    from exhume.model.window import Window
    from exhume.present.cores import Worst
    from exhume.store.cores import CoreGrid
    from exhume.store.events import EventView

JSON_CELLS = 3600


def add_options(parser: ArgumentParser) -> None:
    add_looking(parser)
    measures = "busy, system, irq, softirq, user, steal, iowait or wait (for the core)"
    parser.add_argument("--measure", metavar="STATE", default="busy", help=f"{measures} [default: busy].")
    parser.add_argument(
        "--cells", type=whole_number(1, 100_000), metavar="N", help="Cells in the window, instead of what fits."
    )


def run(options: Namespace) -> int:
    from exhume.cli.looking import Look
    from exhume.cli.speaking import patience, say
    from exhume.present.cores import cells_for

    color = value_of(options, "color")
    look = Look.into(options)
    window = look.window(options.since, options.until)
    if window.empty:
        say(f"exhume: {look.nothing_in(window, 'cores')}")
        return exits.NOTHING
    if options.json:
        with patience("reading cores"):
            grid = look.recording.cores(window, options.cells or cells_for(window, JSON_CELLS), options.measure)
            worst, marks = _worst(look, grid), _marks(look, window)
        _print_json(look, grid, marks, worst)
    else:
        grid = _draw(look, window, options.measure, options.cells, color)
    return exits.OK if grid.cpus else exits.NOTHING


def _draw(look: "Look", window: "Window", measure: str, cells: int | None, color: str) -> "CoreGrid":
    from exhume.cli.speaking import patience, suggest
    from exhume.present.terminal.console import console
    from exhume.present.terminal.cores import cells_that_fit, draw_cores

    terminal = console(color)
    with patience("reading cores"):
        grid = look.recording.cores(window, cells or cells_that_fit(terminal, window), measure)
        worst, marks = _worst(look, grid), _marks(look, window)
    heading = f"{look.recording.facts.node} · {len(grid.cpus)} cores · {measure} · {look.shown(window)}"
    draw_cores(terminal, grid, marks=marks, worst=worst, heading=heading, zone=look.zone)
    if worst is not None:
        suggest(_next(look, worst))
    return grid


def _worst(look: "Look", grid: "CoreGrid") -> "Worst | None":
    """The worst second. Many cells may be equally busy: when the worst is not busy with programs, it is the one in
    which that state itself took most; and the second inside it, because cells of a long window are longer than that."""
    from exhume.present.cores import cells_for, worst_cell

    worst = worst_cell(grid)
    if worst is None:
        return None
    if grid.measure == "busy" and worst.state != "user":
        worst = worst_cell(look.recording.cores(grid.window, grid.cells, worst.state)) or worst
    finer = look.recording.cores(worst.window, cells_for(worst.window, JSON_CELLS), worst.measure)
    return worst_cell(finer) or worst


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
