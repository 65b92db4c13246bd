"""The heatmap: pooling keeps maxima, the worst cell is named, and the terminal shows what is there."""

import io
from datetime import UTC

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from exhume.model.clock import NANOS
from exhume.model.window import Window
from exhume.present.cores import cells_for, cores_json, pooled_rows, worst_cell
from exhume.present.palette import BY_NAME, channels
from exhume.present.terminal.cores import draw_cores, worst_words
from exhume.store.cores import GAP, STATES, CoreGrid
from exhume.store.events import EventView

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
    cells = cells_for(Window(START, START + seconds * NANOS), most)
    assert 1 <= cells <= min(most, seconds)
    assert seconds > most or cells == seconds


def test_the_worst_cell_is_the_busiest():
    worst = worst_cell(grid([[0, 100, 0], [0, 0, 900], [GAP, 0, 0]]))
    assert (worst.cpu, worst.permille, worst.state) == (1, 900, "user")
    assert worst.window == Window(START + 2 * NANOS, START + 3 * NANOS)


def test_among_equals_the_kernel_comes_before_programs():
    worst = worst_cell(grid([[1000, 1000]], [[USER, SYSTEM]]))
    assert (worst.state, worst.window.since) == ("system", START + NANOS)


def test_a_core_that_the_kernel_nearly_fills_is_worse_than_one_that_a_program_fills():
    worst = worst_cell(grid([[1000, 960, 955], [400, 300, 949]], [[USER, SYSTEM, SYSTEM], [SYSTEM, SYSTEM, SYSTEM]]))
    assert (worst.state, worst.permille) == ("system", 960)


def test_nothing_recorded_has_no_worst_cell():
    assert worst_cell(grid([[GAP, GAP]])) is None
    assert "nothing was recorded" in worst_words(None, UTC)


def test_without_colours_levels_are_characters_and_gaps_are_drawn():
    lines = drawn(grid([[0, 500, 1000], [GAP, GAP, 250]])).splitlines()
    rows = {line.split()[0]: line for line in lines if line[:8].strip().isdigit()}
    # Four characters a second, because there is room.
    assert rows["0"][8:].rstrip() == "    ++++@@@@"
    assert rows["1"][8:].rstrip() == "////////::::"
    assert "\x1b" not in "".join(lines)
    assert lines[-1] == "worst: 2026-03-01 03:14:02 core 0 100% busy, mostly user (programs)"


def test_the_kernel_log_marks_its_second():
    lines = drawn(grid([[0] * 60]), [log_line(30), log_line(31, "info")]).splitlines()
    marks = next(line for line in lines if line.lstrip().startswith("log"))
    assert marks[8:] == " " * 30 + "◆·"


@pytest.mark.parametrize(("cores", "height"), [(2, 24), (96, 60), (96, 30), (512, 40)])
def test_many_cores_fit_the_terminal_and_a_lone_spike_stays_visible(cores, height):
    values = np.zeros((cores, 60), np.int32)
    values[cores - 1, 17] = 1000
    shown = grid(values, np.full((cores, 60), SYSTEM))
    text = drawn(shown, coloured=True, height=height)
    assert len(text.splitlines()) < height
    red, green, blue = channels(BY_NAME["system"].hue)
    assert f"2;{red};{green};{blue}" in text
    assert f"core {cores - 1} 100% busy, mostly system" in text


def test_the_cells_as_json():
    shown = grid([[0, GAP], [1000, 5]], [[USER, GAP], [SYSTEM, USER]])
    found = cores_json(shown, [log_line(1)], worst_cell(shown), "node-17", UTC)
    assert found["version"] == 1
    assert found["window"] == {"since": "2026-03-01T03:14:00.000000000Z", "until": "2026-03-01T03:14:02.000000000Z"}
    assert found["cell_seconds"] == 1.0
    assert found["cores"][0] == {"cpu": 0, "permille": [0, None], "state": ["user", None]}
    assert found["worst"]["cpu"] == 1
    assert found["marks"][0]["kind"] == "nic-tx-paused"


def test_a_measure_gives_its_own_colour_and_name():
    assert worst_cell(grid([[700]], [[USER]], measure="wait")).state == "wait"
