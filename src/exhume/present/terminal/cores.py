"""The heatmap in the terminal: each core is half a character or more, coloured by its state and share."""

from collections.abc import Iterator, Sequence
from datetime import tzinfo

from rich.console import Console
from rich.style import Style
from rich.text import Text

from exhume.model.clock import NANOS
from exhume.model.text import duration, percent
from exhume.model.times import format_clock, format_day
from exhume.present.cores import (
    CoreRow,
    Worst,
    column_of,
    pooled_rows,
    state_of,
)
from exhume.present.palette import BY_NAME, LETTERS, STATES, State, blend, state_letter
from exhume.present.terminal.console import colours_in, fitted
from exhume.store.read.core_grid import GAP, CoreGrid
from exhume.store.read.events import EventView

GUTTER = 8
NIGHT = "#1b1d22"  # an idle core
NO_DATA = Style(color="#6b7078")
QUIET = Style(color="#8d939c")
LEVELS = " .:-=+*#%@"
WIDEST_CELL = 4
# Distances between labels on the time axis, in seconds.
TICKS = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
# Lines around the map: heading, axis, marks, legend, worst cell, prompt.
AROUND = 9


def cells_that_fit(terminal: Console) -> int:
    """How many cells there is room for on this terminal."""
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
    stretch = max(1, min(WIDEST_CELL, (terminal.width - GUTTER - 4) // max(1, grid.cells)))
    for line in fitted(terminal, Text(heading, Style(bold=coloured))):
        terminal.print(line)
    terminal.print(_axis(grid, stretch, zone))
    for line in _body(terminal, grid, stretch, coloured):
        terminal.print(line)
    if marks:
        terminal.print(_mark_row(grid, marks, stretch, coloured))
    for line in fitted(terminal, _legend(grid, bool(marks), coloured)):
        terminal.print(line)
    for line in fitted(terminal, Text(worst_line(worst, zone), Style(bold=coloured))):
        terminal.print(line)


def worst_line(worst: Worst | None, zone: tzinfo | None) -> str:
    """The worst cell: time, core, state, share."""
    if worst is None:
        return "worst: nothing was recorded in this window"
    since = worst.window.since
    when = f"{format_day(since, zone)} {format_clock(since, zone, digits=3 if since % NANOS else 0)}"
    share = percent(worst.permille / 1000, 0)
    what = "busy, mostly " if worst.measure == "busy" else ""
    return f"worst: {when} core {worst.cpu} {share} {what}{worst.state} ({_hue_of(worst.state).meaning})"


def _hue_of(state: str) -> State:
    # Hard and soft interrupts have one colour: both take the core from the running program.
    return BY_NAME["softirq" if state == "irq" else state]


def _body(terminal: Console, grid: CoreGrid, stretch: int, coloured: bool) -> Iterator[Text]:
    if not coloured:
        for row in pooled_rows(grid, len(grid.cpus) if not terminal.is_terminal else terminal.height - AROUND):
            cells = zip(row.values.tolist(), row.dominant.tolist(), strict=True)
            yield _labelled(row, Text("".join(_character(grid, *cell) * stretch for cell in cells)))
        return
    lines = max(8, terminal.height - AROUND)
    if len(grid.cpus) <= lines:
        for row in pooled_rows(grid, lines):
            yield _labelled(row, _cells(grid, row, None, stretch))
        return
    rows = pooled_rows(grid, lines * 2)
    for index in range(0, len(rows), 2):
        upper, lower = rows[index], rows[index + 1] if index + 1 < len(rows) else None
        yield _labelled(upper, _cells(grid, upper, lower, stretch), lower)


def _labelled(row: CoreRow, cells: Text, lower: CoreRow | None = None) -> Text:
    first, last = row.cpus[0], (lower or row).cpus[-1]
    label = str(first) if first == last else f"{first}-{last}"
    line = Text(f"{label:>{GUTTER - 1}} ", QUIET)
    line.append_text(cells)
    if len(row.cpus) > 1:
        worst = row if lower is None or row.rank >= lower.rank else lower
        line.append(f" {worst.worst_cpu}", QUIET)
    return line


def _cells(grid: CoreGrid, upper: CoreRow, lower: CoreRow | None, stretch: int) -> Text:
    text = Text()
    below = lower or upper
    for high, high_state, low, low_state in zip(
        upper.values.tolist(), upper.dominant.tolist(), below.values.tolist(), below.dominant.tolist(), strict=True
    ):
        if high == GAP and low == GAP:
            text.append("╱" * stretch, NO_DATA)
            continue
        top, bottom = _colour(grid, high, high_state), _colour(grid, low, low_state)
        if lower is None:
            text.append(" " * stretch, Style(bgcolor=top))
        else:
            text.append("▀" * stretch, Style(color=top, bgcolor=bottom))
    return text


def _colour(grid: CoreGrid, value: int, dominant: int) -> str:
    if value == GAP:
        return "#3a3d44"
    share = min(value, 1000) / 1000
    # The power lifts small shares out of the dark; below two percent a core counts as idle.
    return NIGHT if share < 0.02 else blend(NIGHT, _hue_of(state_of(grid, dominant)).hue, share**0.8)


def _character(grid: CoreGrid, value: int, dominant: int) -> str:
    """A cell without colours: the letter of its state, or the level of the one state that is measured."""
    if value == GAP:
        return "/"
    if grid.measure == "busy":
        return state_letter(state_of(grid, dominant), value)
    return LEVELS[min(len(LEVELS) - 1, max(0, value) * len(LEVELS) // 1000)]


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


def _mark_row(grid: CoreGrid, marks: Sequence[EventView], stretch: int, coloured: bool) -> Text:
    line = [" "] * (grid.cells * stretch)
    for mark in marks:
        column = column_of(grid, mark.wall)
        if column is not None and (mark.severity != "info" or line[column * stretch] == " "):
            line[column * stretch] = "·" if mark.severity == "info" else "◆"
    return Text(f"{'log':>{GUTTER - 1}} ", QUIET).append("".join(line).rstrip(), Style(bold=coloured))


def _legend(grid: CoreGrid, marked: bool, coloured: bool) -> Text:
    text = Text(" " * GUTTER)
    if coloured:
        shown = STATES if grid.measure == "busy" else [_hue_of(grid.measure)]
        for state in shown:
            if grid.measure == "busy" and state.name in ("wait", "iowait"):
                continue
            text.append("██", Style(color=state.hue)).append(f" {state.name}  ", QUIET)
        text.append("╱╱ not recorded  ", QUIET)
    else:
        scale = LETTERS if grid.measure == "busy" else f"levels: '{LEVELS}' from 0 to 100%"
        text.append(f"{scale}  / not recorded  ", QUIET)
    if marked:
        text.append("◆ kernel log: warning or worse (· routine)  ", QUIET)
    text.append(f"cell {duration(round(grid.cell_nanos))}", QUIET)
    return text
