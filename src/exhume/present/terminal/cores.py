"""The heatmap in the terminal: each core takes half a character or more, coloured by its state and share."""

from collections.abc import Callable, Iterator, Sequence
from datetime import tzinfo

from rich.console import Console
from rich.style import Style
from rich.text import Text

from exhume.model.clock import NANOS
from exhume.model.text import duration
from exhume.model.times import format_clock, format_day
from exhume.present.cores import CoreRow, Worst, column_of, pooled_rows, state_of, value_text
from exhume.present.palette import BY_NAME, CAPITALS, STATES, cell_colour, state_letter
from exhume.present.terminal.console import colours_in, fitted, print_lines
from exhume.store.read.core_grid import GAP, UNUSUAL_MEASURES, CoreGrid
from exhume.store.read.events import EventView

GUTTER = 8
NO_DATA, NO_DATA_HALF = "#6b7078", "#3a3d44"
QUIET = "#8d939c"
LEVELS = " .:-=+*#%@"
WIDEST_CELL = 4
# Intervals between labels on the time axis, in seconds.
TICKS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
# Lines that surround the map: heading, axis, marks, legend, worst cell, prompt.
AROUND = 9


# For measures whose cells have one of several states but are not a share: those states, and what colour strength and
# capitals mean.
_UNUSUAL = ("system", "softirq", "wait")
_SEVERAL_STATES = {
    "busy": tuple(state.name for state in STATES if state.name not in ("wait", "iowait")),
    **dict.fromkeys(UNUSUAL_MEASURES, _UNUSUAL),
}
_STRENGTH = {
    "unusual": "strong and capitals: held for seconds, else above its normal",
    "stall": "full strength: held for 10 s; capitals from 5 s",
    "deviation": "above its normal, capitals from 50 points",
}


def cells_that_fit(terminal: Console) -> int:
    """How many cells fit on this terminal."""
    return max(10, terminal.width - GUTTER - 4)


def draw_cores(
    terminal: Console,
    grid: CoreGrid,
    *,
    marks: Sequence[EventView],
    worst: Worst | None,
    heading: str,
    zone: tzinfo | None,
) -> None:
    """Print the map of a grid that has at most `cells_that_fit` cells."""
    coloured = colours_in(terminal)
    strong = Style(bold=coloured)
    stretch = max(1, min(WIDEST_CELL, (terminal.width - GUTTER - 4) // max(1, grid.cells)))
    print_lines(terminal, fitted(terminal, Text(heading, strong)))
    terminal.print(_axis(grid, stretch, zone))
    rows, halves = _rows(terminal, grid, coloured)
    colour_of = cell_colour(terminal.color_system) if coloured else None
    print_lines(terminal, _body(grid, rows, stretch, colour_of, halves=halves))
    if marks:
        terminal.print(_mark_row(grid, marks, stretch, strong))
    pooled = any(len(row.cpus) > 1 for row in rows)
    print_lines(terminal, fitted(terminal, _legend(grid, marked=bool(marks), pooled=pooled, coloured=coloured)))
    print_lines(terminal, fitted(terminal, Text(worst_line(worst, zone), strong)))


def worst_line(worst: Worst | None, zone: tzinfo | None) -> str:
    """The worst cell: time, core, state, share."""
    if worst is None:
        return "worst: nothing was recorded in this window"
    since = worst.window.since
    when = f"{format_day(since, zone)} {format_clock(since, zone, digits=3 if since % NANOS else 0)}"
    what = value_text(worst.measure, worst.state, worst.value)
    return f"worst: {when} core {worst.cpu} {what} ({BY_NAME[worst.state].meaning})"


def _rows(terminal: Console, grid: CoreGrid, coloured: bool) -> tuple[list[CoreRow], bool]:
    """The rows, and whether two rows share a line: only with colours, and if there are more rows than lines."""
    lines = terminal.height - AROUND if terminal.is_terminal else len(grid.cpus)
    if coloured:
        lines = max(8, terminal.height - AROUND)
    halves = coloured and len(grid.cpus) > lines
    return pooled_rows(grid, lines * 2 if halves else lines), halves


def _body(
    grid: CoreGrid, rows: list[CoreRow], stretch: int, colour_of: Callable[[str, int], str] | None, *, halves: bool
) -> Iterator[Text]:
    """A line per row, or per two rows as the upper and lower halves of its characters; pooled rows end with
    the number of their worst core."""
    for first in range(0, len(rows), 2 if halves else 1):
        upper, lower = rows[first], rows[first + 1] if halves and first + 1 < len(rows) else None
        worst = upper if lower is None or upper.rank >= lower.rank else lower
        cpus = sorted({upper.cpus[0], (lower or upper).cpus[-1]})
        line = Text().append(f"{'-'.join(map(str, cpus)):>{GUTTER - 1}} ", QUIET)
        coloured = colour_of and _cells(grid, upper, lower, stretch, colour_of)
        line.append_text(coloured or _letters(grid, upper, stretch))
        yield line.append(f" {worst.worst_cpu}", QUIET) if len(upper.cpus) > 1 else line


def _cells(
    grid: CoreGrid, upper: CoreRow, lower: CoreRow | None, stretch: int, colour_of: Callable[[str, int], str]
) -> Text:
    text, below = Text(), lower or upper
    for high, high_state, low, low_state in zip(
        upper.values.tolist(), upper.dominant.tolist(), below.values.tolist(), below.dominant.tolist(), strict=True
    ):
        top, bottom = (
            NO_DATA_HALF if value == GAP else colour_of(state_of(grid, dominant), value)
            for value, dominant in ((high, high_state), (low, low_state))
        )
        if high == GAP and low == GAP:
            text.append("╱" * stretch, NO_DATA)
        elif lower is None:
            text.append(" " * stretch, Style(bgcolor=top))
        else:
            text.append("▀" * stretch, Style(color=top, bgcolor=bottom))
    return text


def _letters(grid: CoreGrid, row: CoreRow, stretch: int) -> Text:
    """Cells without colours: the letter of the state, or the level if only one state is measured."""
    text = Text()
    for value, dominant in zip(row.values.tolist(), row.dominant.tolist(), strict=True):
        letter = LEVELS[min(len(LEVELS) - 1, max(0, value) * len(LEVELS) // 1000)]
        if grid.measure in _SEVERAL_STATES:
            letter = state_letter(state_of(grid, dominant), value)
        text.append(("/" if value == GAP else letter) * stretch)
    return text


def _axis(grid: CoreGrid, stretch: int, zone: tzinfo | None) -> Text:
    width = grid.cells * stretch
    line = [" "] * (width + 10)
    second_per_column = grid.window.seconds / max(1, width)
    step = next((nice for nice in TICKS if nice >= second_per_column * 12), TICKS[-1]) * NANOS
    wall, free = -(-grid.window.since // step) * step, 0
    while wall < grid.window.until:
        column = column_of(grid, wall)
        at = (column or 0) * stretch
        if column is not None and at >= free:
            label = f"╵{format_clock(wall, zone)}"
            line[at : at + len(label)] = label
            free = at + len(label) + 1
        wall += step
    return Text(" " * GUTTER + "".join(line).rstrip(), QUIET)


def _mark_row(grid: CoreGrid, marks: Sequence[EventView], stretch: int, strong: Style) -> Text:
    line = [" "] * (grid.cells * stretch)
    for mark in marks:
        column = column_of(grid, mark.wall)
        if column is not None and (mark.severity != "info" or line[column * stretch] == " "):
            line[column * stretch] = "·" if mark.severity == "info" else "◆"
    return Text(f"{'log':>{GUTTER - 1}} ", QUIET).append("".join(line).rstrip(), strong)


def _legend(grid: CoreGrid, *, marked: bool, pooled: bool, coloured: bool) -> Text:
    text = Text(" " * GUTTER)
    if coloured:
        states = _SEVERAL_STATES.get(grid.measure) or (grid.measure,)
        for state in states:
            text.append("██", BY_NAME[state].hue).append(f" {state}  ", QUIET)
        if grid.measure in _STRENGTH:
            text.append(f"{_STRENGTH[grid.measure]}  ", QUIET)
        text.append("╱╱ not recorded  ", QUIET)
    else:
        scale = f"levels: '{LEVELS}' from 0 to 100%"
        if several := _SEVERAL_STATES.get(grid.measure):
            letters = "  ".join(f"{BY_NAME[state].letter} {state}" for state in several)
            scale = f"{letters}  {_STRENGTH.get(grid.measure, CAPITALS)}"
        text.append(f"{scale}  / not recorded  ", QUIET)
    if marked:
        text.append("◆ kernel log: warning or worse (· routine)  ", QUIET)
    if pooled:
        text.append("number at the right: worst core of the row  ", QUIET)
    text.append(f"cell {duration(round(grid.cell_nanos))}", QUIET)
    return text
