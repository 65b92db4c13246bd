"""The recorder's status: its parts, plain lines, and the block that is redrawn in place."""

import io
import re
from dataclasses import replace
from datetime import UTC

import numpy as np
import pytest

from exhume.model.clock import NANOS, Tick
from exhume.model.progress import RecordingSummary, TickSummary
from exhume.present.palette import state_colour
from exhume.present.terminal.status import (
    Colours,
    LiveStatus,
    PlainStatus,
    cores_now,
    summary_lines,
    tick_events,
    tick_parts,
)

WALL = 1_772_334_847 * NANOS
STATES = ("user", "nice", "system", "irq", "softirq", "steal")


def cpu_rows(cores, **shares):
    return {"cpu": list(range(cores)), **{state: np.full(cores, shares.get(state, 0)) for state in STATES}}


def tick(index=0, cores=2, incidents=(), losses=(), **shares):
    return TickSummary(
        tick=Tick(index, index * NANOS, (index + 1) * NANOS, WALL + index * NANOS),
        cpu=cpu_rows(cores, **shares),
        samples=194,
        lost=3,
        rate_hz=97,
        own_cpu=0.013,
        rss_bytes=82 << 20,
        written_bytes=4096,
        incidents=list(incidents),
        losses=list(losses),
    )


def test_the_state_of_a_core_is_what_took_most_of_it():
    (core,) = cores_now(cpu_rows(1, user=100, system=300, irq=200, softirq=250))
    # Its own share, not that of all states together.
    assert (core.permille, core.state) == (450, "softirq")
    assert cores_now(None) == []


def test_the_parts_of_a_tick():
    assert tick_parts(tick()) == [
        "97 Hz", "194 samples/s", "3 samples lost", "cost 1.3% of one core", "82.0 MiB memory", "4.0 KiB/s written"
    ]  # fmt: skip
    events = list(tick_events(tick(incidents=["core 39 starved"], losses=["4 samples"]), UTC))
    assert events == ["03:14:07 incident: core 39 starved", "03:14:07 loss: 4 samples"]


def test_the_summary():
    summary = RecordingSummary(WALL, WALL + 60 * NANOS, 12_345, {"late-tick": 2}, 1, 0.6, 80 << 20, 1 << 20, 97)
    assert list(summary_lines(summary, "/here", 300 << 10)) == [
        "recorded 1 m 00 s into /here: 12,345 samples at 97 Hz, 1 incident, 300 KiB on disk",
        "lost: late-tick 2",
        "cost: 1.0% of one core, 80.0 MiB of memory at most, 1.0 MiB written while recording",
    ]


def test_the_summary_without_a_sampler():
    summary = RecordingSummary(WALL, WALL + 60 * NANOS, 0, {}, 0, 0.6, 80 << 20, 1 << 20, 0)
    assert "/here: no stack samples, 0 incidents, " in next(summary_lines(summary, "/here", 0))


def test_piped_it_is_a_line_a_minute_and_one_for_what_happens():
    output = io.StringIO()
    status = PlainStatus(output, "/here", UTC)
    for second in range(121):
        status.tick(tick(second, incidents=["core 1 starved"] if second == 30 else ()))
    lines = output.getvalue().splitlines()
    assert lines[0] == "recording into /here"
    assert [line[:8] for line in lines if " recording: " in line] == ["03:14:07", "03:15:07", "03:16:07"]
    assert [line for line in lines if "incident" in line] == ["03:14:37 incident: core 1 starved"]
    assert "\x1b" not in output.getvalue()


@pytest.fixture
def size(monkeypatch):
    """Set the size of the terminal."""

    def set_size(columns, lines=24):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", str(lines))

    set_size(100)
    return set_size


class Screen(io.StringIO):
    """What a terminal shows after the escape sequences of the status."""

    def lines(self):
        rows, row = [""], 0
        for code, text in re.findall(r"\x1b\[([0-9;]*[A-Zm])|([^\x1b])", self.getvalue()):
            if code.endswith("A"):
                row -= int(code[:-1])
                assert row >= 0, "above the beginning of the screen"
            elif code == "2K":
                rows[row] = ""
            elif code == "J":
                del rows[row:]
                rows.append("")
            elif text == "\n":
                row += 1
                rows += [""] * (row + 1 - len(rows))
            elif text != "\r":
                rows[row] += text
        return rows[:-1]


@pytest.mark.parametrize("cores", [1, 2, 8, 9, 17, 96, 256])
def test_the_block_keeps_its_height_and_shows_every_core(size, cores):
    screen = Screen()
    status = LiveStatus(screen, Colours(lambda colour, foreground: "0", state_colour), "/here", UTC)
    heights = set()
    for second in range(5):
        status.tick(tick(second, cores, user=1000))
        heights.add(len(screen.lines()))
    assert len(heights) == 1
    assert heights.pop() <= 12
    labels = [line.split()[0] for line in screen.lines() if line.endswith("▀" * 5)]
    numbers = [number for label in labels for number in label.split("-")]
    assert (numbers[0], numbers[-1]) == ("0", str(cores - 1))


def test_of_several_cores_in_a_cell_the_worst_is_shown(size):
    screen = Screen()
    status = LiveStatus(screen, None, "/here", UTC)
    rows = cpu_rows(32, user=900)
    rows["system"][5], rows["user"][5] = 600, 0
    status.tick(replace(tick(cores=32), cpu=rows))
    cells = [line.split()[1] for line in screen.lines() if re.match(r" +\d+-\d+ ", line)]
    assert cells == ["U", "S", *"UUUUUU"]


def test_a_core_that_comes_or_goes_restarts_the_rows(size):
    screen = Screen()
    status = LiveStatus(screen, None, "/here", UTC)
    for second, cores in enumerate((4, 3, 4)):
        status.tick(tick(second, cores, user=1000))
    assert [line.split() for line in screen.lines()[1:5]] == [[str(core), "U"] for core in range(4)]


@pytest.mark.parametrize("width", [30, 40, 80, 120])
def test_the_address_of_the_page_stays_in_the_block(size, width):
    size(width)
    screen = Screen()
    status = LiveStatus(screen, None, "/var/lib/exhume", UTC)
    status.announce("exhume: http://localhost:8420/")
    for second in range(3):
        status.tick(tick(second, 2, user=1000, incidents=["a long sentence about a core " * 4]))
        status.note("exhume: WARNING: source node failed")
    text = "\n".join(screen.lines())
    assert text.count("http://localhost:8420/") == 1
    assert " ".join(text.split()).count("3 samples lost") == 1
    assert "source node failed" in " ".join(text.split())
    assert max(map(len, screen.lines())) <= width
    assert len(screen.lines()) < 24


def test_a_low_terminal_keeps_what_matters(size):
    size(80, 6)
    screen = Screen()
    status = LiveStatus(screen, None, "/here", UTC)
    status.announce("exhume: http://localhost:8420/")
    for second in range(3):
        status.tick(tick(second, 8, incidents=["one", "two", "three"], user=1000))
    assert len(screen.lines()) <= 5
    assert "exhume: http://localhost:8420/" in screen.lines()
    assert any("3 samples lost" in line for line in screen.lines())


def test_a_terminal_that_is_gone_is_no_error(size):
    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(5, "Input/output error")

    for status in (LiveStatus(Gone(), None, "/here", UTC), PlainStatus(Gone(), "/here", UTC)):
        status.tick(tick())
        status.announce("x")
