"""The recorder's status: words, plain lines, and the picture that is redrawn in place."""

import io
from datetime import UTC

import numpy as np
import pytest

from exhume.model.clock import NANOS, Tick
from exhume.model.progress import RecordingSummary, TickSummary
from exhume.present.status import cores_now, happenings, summary_lines, tick_words
from exhume.present.terminal.status import LiveStatus, PlainStatus

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
    assert (core.permille, core.state) == (850, "softirq")
    assert cores_now(None) == []


def test_the_words_of_a_tick():
    assert tick_words(tick()) == (
        "97 Hz · 194 samples/s · cost 1.3% of one core · 82.0 MiB memory · 4.0 KiB/s written · 3 lost"
    )
    told = list(happenings(tick(incidents=["core 39 starved"], losses=["4 samples"]), UTC))
    assert told == ["03:14:07 incident: core 39 starved", "03:14:07 lost: 4 samples"]


def test_the_last_words():
    summary = RecordingSummary(WALL, WALL + 60 * NANOS, 12_345, {"late-tick": 2}, 1, 0.6, 80 << 20, 1 << 20, 97)
    assert list(summary_lines(summary, "/here", 300 << 10)) == [
        "recorded 1 m 00 s into /here: 12,345 samples at 97 Hz, 1 incident, 300 KiB on disk",
        "lost: late-tick 2",
        "cost: 1.0% of one core, 80.0 MiB of memory at most, 1.0 MiB written while recording",
    ]


def test_the_last_words_without_a_sampler():
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


@pytest.mark.parametrize("cores", [1, 2, 8, 9, 17, 96, 256])
def test_the_picture_keeps_its_height_and_shows_every_core(cores):
    output = io.StringIO()
    status = LiveStatus(output, lambda upper, lower: f"[{upper}{lower}]", "/here", UTC)
    heights = []
    for second in range(5):
        output.seek(0)
        output.truncate()
        status.tick(tick(second, cores, user=1000))
        heights.append(output.getvalue().count("\n"))
    assert len(set(heights)) == 1
    assert heights[0] <= 11
    assert output.getvalue().startswith(f"\x1b[{heights[0]}A")
    rows = output.getvalue().split("\n")[1:-3]
    numbers = [number for row in rows for number in row.removeprefix("\x1b[2K").split()[0].split("-")]
    assert numbers[0] == "0"
    assert numbers[-1] == str(cores - 1)


def test_a_core_that_comes_or_goes_starts_the_picture_anew():
    output = io.StringIO()
    status = LiveStatus(output, None, "/here", UTC)
    for second, cores in enumerate((4, 3, 4)):
        status.tick(tick(second, cores, user=1000))
    last = output.getvalue().rpartition("recording into")[2].split("\n")
    assert [line.removeprefix("\x1b[2K").split() for line in last[1:5]] == [[str(core), "@"] for core in range(4)]
