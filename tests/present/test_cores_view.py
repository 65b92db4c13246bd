"""The heatmap: pooling keeps maxima, the worst cell is named, and the terminal shows what is there."""

import io
import re
from dataclasses import replace
from datetime import UTC

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from exhume.model.clock import NANOS, Window
from exhume.present.cores import axis_for, cores_json, grid_on, pooled_rows, value_text, worst_cell
from exhume.present.palette import BY_NAME
from exhume.present.terminal.cores import draw_cores, worst_line
from exhume.store.read.core_grid import GAP, STATES, CoreGrid
from exhume.store.read.events import EventView

START = 1_772_334_840 * NANOS
USER, SYSTEM = STATES.index("user"), STATES.index("system")


def grid(values, dominant=None, measure="busy"):
    found = np.array(values, np.int32)
    states = np.where(found == GAP, GAP, USER) if dominant is None else np.array(dominant)
    window = Window(START, START + found.shape[1] * NANOS)
    return CoreGrid(window, measure, list(range(len(found))), found, states.astype(np.int8))


def log_line(second, severity="critical"):
    text = "TX q 5 is paused for too long"
    nothing = dict.fromkeys(("cpu", "pid", "comm", "device", "queue", "value", "kernel_us", "sequence"))
    return EventView(START + second * NANOS, 1, "kernel-log", "nic-tx-paused", severity, text, **nothing)


def drawn(shown, marks=(), *, coloured=False, height=50, width=100):
    output = io.StringIO()
    terminal = Console(
        file=output, force_terminal=coloured, color_system="truecolor" if coloured else None, width=width, height=height
    )
    draw_cores(terminal, shown, marks=marks, worst=worst_cell(shown), heading="node", zone=UTC)
    return output.getvalue()


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 60), st.integers(1, 100), st.randoms())
def test_pooling_cores_keeps_every_maximum(cores, cells, most, random):
    values = [[random.choice([GAP, 0, 500, 1000]) for _ in range(cells)] for _ in range(cores)]
    rows = pooled_rows(grid(values), most)
    assert len(rows) <= most
    assert [cpu for row in rows for cpu in row.cpus] == list(range(cores))
    for row in rows:
        assert row.values.tolist() == np.array(values)[row.cpus].max(axis=0).tolist()
        assert max(values[row.worst_cpu]) == row.values.max()


@settings(deadline=None)
@given(st.integers(1, 10**6), st.integers(10, 400))
def test_cells_fit_and_are_at_least_a_second(seconds, most):
    axis = axis_for(Window(START, START + seconds * NANOS), most)
    assert 1 <= axis.cells <= min(most, seconds)
    assert seconds > most or axis.cells == seconds


@settings(deadline=None)
@given(st.integers(0, 10**10), st.integers(1, 10**14), st.integers(10, 400))
def test_cells_are_whole_seconds_of_the_wall_clock(since, nanos, most):
    window = Window(START + since, START + since + nanos)
    axis = axis_for(window, most)
    assert axis.since % NANOS == axis.cell_nanos % NANOS == 0
    assert axis.cells <= most
    assert axis.since <= window.since < axis.since + NANOS
    assert axis.edge(axis.cells - 1) < window.until <= axis.edge(axis.cells)
    parts = list(axis.parts())
    assert sum(cells for _, cells in parts) == axis.cells
    # The parts are the window, and meet at edges of cells.
    assert [parts[0][0].since, *(part.until for part, _ in parts)] == [
        *(part.since for part, _ in parts),
        window.until,
    ]
    assert parts[0][0].since == window.since
    assert all((part.until - axis.since) % axis.cell_nanos == 0 for part, _ in parts[:-1])


def test_cores_that_are_in_only_one_part_of_a_window_are_gaps_in_the_others():
    axis = axis_for(Window(START + 1, START + 3 * NANOS), 10)

    def read(window, cells):
        cpus = [2] if cells == 1 else [1, 2]
        return CoreGrid(window, "busy", cpus, np.full((len(cpus), cells), 5), np.zeros((len(cpus), cells), np.int8))

    shown = grid_on(axis, "busy", read)
    assert (shown.window, shown.cpus) == (Window(START, START + 3 * NANOS), [1, 2])
    assert shown.values.tolist() == [[GAP, 5, 5], [5, 5, 5]]
    assert shown.dominant.tolist() == [[GAP, 0, 0], [0, 0, 0]]


def test_the_worst_cell_is_the_busiest():
    worst = worst_cell(grid([[0, 100, 0], [0, 0, 900], [GAP, 0, 0]]))
    assert (worst.cpu, worst.value, worst.state) == (1, 900, "user")
    assert worst.window == Window(START + 2 * NANOS, START + 3 * NANOS)


def test_among_equals_the_kernel_comes_before_programs():
    worst = worst_cell(grid([[1000, 1000]], [[USER, SYSTEM]]))
    assert (worst.state, worst.window.since) == ("system", START + NANOS)


def test_a_core_that_the_kernel_nearly_fills_is_worse_than_one_that_a_program_fills():
    worst = worst_cell(grid([[1000, 960, 955], [400, 300, 949]], [[USER, SYSTEM, SYSTEM], [SYSTEM, SYSTEM, SYSTEM]]))
    assert (worst.state, worst.value) == ("system", 960)


def test_nothing_recorded_has_no_worst_cell():
    assert worst_cell(grid([[GAP, GAP]])) is None
    assert "nothing was recorded" in worst_line(None, UTC)


def test_without_colours_each_state_has_its_letter():
    states = ["user", "system", "softirq", "irq", "steal"]
    dominant = [[STATES.index(state) for state in states]] * 3
    lines = drawn(grid([[1000] * 5, [499] * 5, [19] * 5], dominant), width=24).splitlines()
    rows = [line[8:].rstrip() for line in lines if line[:8].strip().isdigit()]
    assert rows == ["UUSSIIIITT", "uussiiiitt", ""]


def test_without_colours_a_single_measure_has_levels():
    lines = drawn(replace(grid([[0, 500, 1000], [GAP, GAP, 250]]), measure="system")).splitlines()
    rows = {line.split()[0]: line for line in lines if line[:8].strip().isdigit()}
    # Four characters a second, because there is room.
    assert rows["0"][8:].rstrip() == "    ++++@@@@"
    assert rows["1"][8:].rstrip() == "////////::::"
    assert "\x1b" not in "".join(lines)
    assert lines[-1] == "worst: 2026-03-01 03:14:02 core 0 100% system (kernel code)"


def test_the_kernel_log_marks_its_second():
    lines = drawn(grid([[0] * 60]), [log_line(30), log_line(31, "info")]).splitlines()
    marks = next(line for line in lines if line.lstrip().startswith("log"))
    assert marks[8:] == " " * 30 + "◆·"


def test_warnings_have_a_diamond_and_the_legend_says_so():
    lines = drawn(grid([[0] * 120]), [log_line(3, "warning")], width=160).splitlines()
    assert next(line for line in lines if line.lstrip().startswith("log"))[8:] == "   ◆"
    assert any("◆ kernel log: warning or worse (· routine)" in line for line in lines)


@pytest.mark.parametrize(("nanos", "says"), [(NANOS, "cell 1 s"), (NANOS // 4, "cell 250 ms"), (8 * NANOS, "cell 8 s")])
def test_the_legend_has_the_length_of_a_cell(nanos, says):
    shown = replace(grid([[0, 0]]), window=Window(START, START + 2 * nanos))
    assert drawn(shown).splitlines()[-2].endswith(says)


def test_the_legend_explains_the_number_behind_rows_of_several_cores():
    several = drawn(grid([[100]] * 96), coloured=True, height=24, width=160)
    assert "worst core of the row" in several
    assert "worst core of the row" not in drawn(grid([[100]] * 4), coloured=True, height=24, width=160)


def test_a_terminal_without_colours_gets_no_escapes():
    output = io.StringIO()
    terminal = Console(file=output, force_terminal=True, color_system="truecolor", no_color=True, width=100, height=40)
    shown = grid([[0, 500, 1000]])
    draw_cores(terminal, shown, marks=[log_line(1)], worst=worst_cell(shown), heading="node", zone=UTC)
    assert "◆" in output.getvalue()
    assert "\x1b" not in output.getvalue()


@pytest.mark.parametrize("state", ["system", "softirq", "irq", "steal"])
def test_a_program_that_fills_a_core_does_not_hide_a_starved_one_in_its_row(state):
    kernel = STATES.index(state)
    values = np.full((48, 1), 300)
    dominant = np.full((48, 1), USER)
    values[24], values[30], dominant[30] = 1000, 910, kernel
    row = next(row for row in pooled_rows(grid(values, dominant), 4) if row.cpus[0] == 24)
    # Value and hue are those of the same core.
    assert (row.worst_cpu, row.values.tolist(), row.dominant.tolist()) == (30, [910], [kernel])
    assert worst_cell(grid(values, dominant)).cpu == 30
    # Two pooled rows in a line: the label is the worse one's, though the other is busier.
    lines = drawn(grid(values, dominant), coloured=True, height=12).splitlines()
    assert any(re.search(r" 30(\x1b\[0m)?$", line) for line in lines)


@pytest.mark.parametrize(("cores", "height"), [(2, 24), (96, 60), (96, 30), (512, 40)])
def test_many_cores_fit_the_terminal_and_a_lone_spike_stays_visible(cores, height):
    values = np.zeros((cores, 60), np.int32)
    values[cores - 1, 17] = 1000
    shown = grid(values, np.full((cores, 60), SYSTEM))
    text = drawn(shown, coloured=True, height=height)
    assert len(text.splitlines()) < height
    red, green, blue = bytes.fromhex(BY_NAME["system"].hue[1:])
    assert f"2;{red};{green};{blue}" in text
    assert f"core {cores - 1} 100% system" in text


def test_the_cells_as_json():
    shown = grid([[0, GAP], [1000, 5]], [[USER, GAP], [SYSTEM, USER]])
    found = cores_json(shown, [log_line(1)], worst_cell(shown), "node-17", UTC)
    assert found["version"] == 1
    assert found["window"] == {"since": "2026-03-01T03:14:00.000000000Z", "until": "2026-03-01T03:14:02.000000000Z"}
    assert found["cell_seconds"] == 1.0
    assert found["cores"][0] == {"cpu": 0, "permille": [0, None], "state": ["user", None]}
    assert found["worst"]["cpu"] == 1
    assert found["marks"][0]["kind"] == "nic-tx-paused"


@pytest.mark.parametrize(
    ("measure", "value", "state", "says"),
    [
        ("busy", 474, "user", "47% user"),
        ("stall", 600, "system", "held for 6 s by system"),
        ("stall", 4000, "wait", "held for at least 40 s by waiting tasks"),
        ("deviation", 620, "softirq", "62 points above its normal, mostly softirq"),
        ("unusual", 310, "system", "62 points above its normal, mostly system"),
        ("unusual", 800, "system", "held for 6 s by system"),
    ],
)
def test_a_value_says_what_it_means(measure, value, state, says):
    assert value_text(measure, state, value) == says


def test_what_is_unusual_has_fields_of_its_own_in_json():
    shown = grid([[800, GAP, 310]], [[SYSTEM, GAP, SYSTEM]], measure="unusual")
    found = cores_json(shown, [], worst_cell(shown), "node-17", UTC)
    assert found["cores"][0] == {
        "cpu": 0,
        "stall_ms": [6000, None, 0],
        "deviation_permille": [0, None, 620],
        "state": ["system", None, "system"],
    }
    assert (found["worst"]["stall_ms"], found["worst"]["state"]) == (6000, "system")
    assert drawn(shown).splitlines()[3 - 1][8:].rstrip().startswith("SSSS////ssss")


def test_a_measure_gives_its_own_colour_and_name():
    assert worst_cell(grid([[700]], [[USER]], measure="wait")).state == "wait"
