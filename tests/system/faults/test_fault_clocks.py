"""Time that misbehaves: a wall clock that is set, and a recorder that is held."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from tests.on_time import on_time
from tests.system.faults.recorder_process import (
    RecorderProcess,
    clean_words,
    exhume,
    losses,
    monotonic,
    rows,
    seconds,
    until,
)

from exhume.cli.recorder import facts_of
from exhume.collect.loop import Recorder, RecorderOptions
from exhume.collect.source_set import open_sources
from exhume.model.clock import MILLIS, NANOS, SystemClock, read_boot_id
from exhume.model.progress import RecordingSummary, TickSummary
from exhume.model.stop import Stop
from exhume.model.times import format_moment
from exhume.procfs.host import Host
from exhume.store.read.recording import Recording
from exhume.store.write.writer import SegmentWriter

pytestmark = [pytest.mark.root, pytest.mark.slow]

Start = Callable[..., RecorderProcess]
Load = Callable[..., subprocess.Popen[str]]

HOUR = 3600 * NANOS


class SetClock(SystemClock):
    """The node's clocks, with a wall clock that can be set without anybody else noticing."""

    def __init__(self) -> None:
        self.ahead = 0

    def wall_ns(self) -> int:
        return super().wall_ns() + self.ahead


class WatchedStop(Stop):
    """Remembers for how many seconds the recorder wanted to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float) -> bool:
        self.waits.append(timeout)
        return super().wait(timeout)


def record_with(
    clock: SetClock, directory: Path, on_tick: Callable[[TickSummary], None], ticks: int
) -> RecordingSummary:
    """The real sources and the real store, on a clock of our own."""
    with closing(open_sources(Host(), 97, None)) as sources:
        facts = facts_of(read_boot_id(), sources, 97)
        with (
            closing(SegmentWriter(directory, facts, max_bytes=None, max_age_s=None)) as store,
            closing(WatchedStop()) as stop,
        ):

            def tick(summary: TickSummary) -> None:
                on_tick(summary)
                if summary.tick.index == ticks:
                    stop.set()

            summary = Recorder(sources, RecorderOptions(), clock).run(store, stop, None, tick)
    # A machine that is busy otherwise may cost a second all the same: that is not the clock's.
    assert max(stop.waits) <= 1.2, "no second is missed: the next tick is planned for the next one, whatever it is"
    return summary


def set_and_set_right_again(directory: Path, step: int) -> dict[str, int]:
    """Record while the wall clock is set wrong by so much, and set right again; returns what was written to the kernel
    log meanwhile, and when by that clock."""
    clock = SetClock()
    marks: dict[str, int] = {}
    ticked: list[int] = []
    began = clock.monotonic_ns()

    def on_tick(summary: TickSummary) -> None:
        ticked.append(clock.monotonic_ns())
        # Set wrong and set right again, each time just after a tick, and a line in the kernel log in each part.
        index = summary.tick.index
        if index in (1, 3):
            clock.ahead = step - clock.ahead
        if index in (0, 2, 4):
            text = f"exhume fault test {os.getpid()} {step} {index} {directory.name}"
            Path("/dev/kmsg").write_text(f"<6>{text}\n")
            marks[text] = clock.wall_ns()

    with on_time():
        summary = record_with(clock, directory, on_tick, 5)
    # From before the first tick until after the last.
    longest, shortest = clock.monotonic_ns() - began, ticked[-1] - ticked[0]
    assert shortest - NANOS < summary.until - summary.since < longest + NANOS, "the length is not the wall clock's"
    return marks


def clock_difference() -> int:
    """By how much the wall clock is ahead of the monotonic one."""
    return time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)


@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
def test_a_wall_clock_that_is_set_and_set_right_again(tmp_path: Path, step: int) -> None:
    for attempt in range(3):
        directory, before = tmp_path / f"recording-{attempt}", clock_difference()
        marks = set_and_set_right_again(directory, step)
        true = clock_difference()
        # Again where the host's own clock was set meanwhile, as hypervisors do.
        if abs(true - before) < NANOS // 20:
            break
    recording = Recording.open(directory)
    assert len(recording.segments) >= 3, "the clock was set twice"
    # By the true difference between the clocks, each row lies where the wall clock showed it.
    for table in ("cpu", "node", "sampling", "self"):
        moved = {round((row["wall"] - row["time"] - true) / NANOS, 1) for row in rows(directory, table, "wall")}
        assert moved == {0.0, step / NANOS}, table
    samples = recording.read("samples", None, ["time_ms", "wall"]).to_pylist()
    assert {round((row["wall"] - row["time_ms"] * MILLIS - true) / NANOS, 1) for row in samples} <= {0.0, step / NANOS}
    anchors = [row["time"] for row in rows(directory, "anchors")]
    assert len(anchors) == len(set(anchors))

    everywhere = [event["text"] for event in exhume("events", "--dir", directory)["events"]]
    for text, wall in marks.items():
        since, until_ = (format_moment(moment) for moment in (wall - NANOS // 2, wall + NANOS // 2))
        found = exhume("events", "--dir", directory, "--since", since, "--until", until_)["events"]
        assert text in [event["text"] for event in found], "found at the time that the wall clock showed"
        assert everywhere.count(text) == 1
    wrong = sorted(marks.values())[-1 if step > 0 else 0]
    grid = recording.cores(Recording.open(directory).span(), 3600)
    assert (grid.values >= 0).any()
    window = (format_moment(wrong - 2 * NANOS), format_moment(wrong + 2 * NANOS))
    cells = exhume("cores", "--dir", directory, "--since", window[0], "--until", window[1])
    assert cells["cores"], "the wrong hour can be looked at"


@pytest.mark.alone
@pytest.mark.needs("gcc", "taskset")
def test_a_recorder_that_is_held_for_many_seconds(
    tmp_path: Path, start: Start, load: Load, compiled: Callable[[str], Path]
) -> None:
    """What it did is reported by the clock: the longest of its ticks is the one in which it was held."""
    held_s = int(os.environ.get("EXHUME_HELD_S", "10"))
    directory = tmp_path / "recording"
    recorder = start(directory).ticks(2)
    # The core is its own, whatever else runs: the more of its stacks there are, the sooner they have no room.
    deep = load(compiled("deep_stack"), 300, core=1, nice=-20)
    until("its stacks are sampled", lambda: deep.pid in pids_sampled(directory), every=0.2)
    recorder.send(signal.SIGSTOP)
    held_from = monotonic()
    time.sleep(held_s)
    held_until, before = monotonic(), recorder.kept_busy
    recorder.send(signal.SIGCONT)
    recorder.ticks(3)
    busy = recorder.kept_busy - before
    assert recorder.stop() == 0
    clean_words(recorder)

    ends = [row["time"] for row in rows(directory, "anchors")]
    tick = max(pairwise(ends), key=lambda pair: pair[1] - pair[0])
    # It may have been held in the midst of a turn: then it ends that first, and waits for the next full second.
    assert tick[0] < held_from + NANOS // 2
    assert held_until < tick[1] < held_until + busy + NANOS * 5 // 4, "then it goes on at once"
    reported = rows(directory, "losses", "kind", "count")
    late = [row["count"] for row in reported if (row["time"], row["kind"]) == (tick[0], "late-tick")]
    assert late == [round(seconds(tick[1] - tick[0])) - 1], "the seconds that have no row of their own"
    walls = [row["wall"] - row["time"] for row in rows(directory, "anchors", "wall")]
    assert max(walls) - min(walls) < 20 * MILLIS, "no time is wrong"
    spans = [row["span_ms"] for row in rows(directory, "cpu", "span_ms", "cpu") if row["cpu"] == 0]
    assert max(spans) == (tick[1] - tick[0]) // MILLIS, "what the cores did meanwhile is one long row"

    samples = Recording.open(directory).read("samples").to_pylist()
    mine = [row["time_ms"] * MILLIS for row in samples if row["pid"] == deep.pid]
    meanwhile = [moment for moment in mine if held_from + NANOS < moment < held_until - NANOS]
    lost = losses(directory)["lost-samples"]
    print(f"{lost} samples lost of {len(mine)} kept, {len(meanwhile)} while it was held")
    assert len(meanwhile) > 97 * 3, "the kernel went on sampling while the recorder was held"
    assert max(meanwhile) - min(meanwhile) > 3 * NANOS
    # The ring of the core with the large stacks overflowed: each sample is there or counted.
    assert lost > 0
    on_core = [row for row in rows(directory, "sampling", "cpu", "busy", "idle", "lost") if row["cpu"] == 1]
    taken = sum(row["busy"] + row["idle"] + row["lost"] for row in on_core)
    length = seconds(ends[-1] - on_core[0]["time"])
    assert 0.75 < taken / (97 * length) < 1.1, f"{taken} samples in {length:.1f} s"


def pids_sampled(directory: Path) -> set[int]:
    return set(Recording.open(directory).read("samples").column("pid").to_pylist())
