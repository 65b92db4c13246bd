"""Lines written to the kernel log come back from a recording, each at the kernel's own time."""

import os
import time
import uuid
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.on_time import on_time
from tests.system.proof.side_by_side import ask_json, await_recorded, await_wall, next_second, recorder

from exhume.model.clock import MILLIS
from exhume.store.read.recording import Recording

pytestmark = [pytest.mark.root, pytest.mark.alone]

LINES = 50
ATTEMPTS = 5
# Over a good part of a second boundary or two, so that lines fall into several ticks.
APART_S = 0.05
KMSG = Path("/dev/kmsg")
# Of this test: who reads the machine's log should not take them for a real device's.
DEVICE = "exhumeproof0"
BUS = f"ena 0000:00:00.0 {DEVICE}: "
PAUSED = "TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec. napi scheduled: 1"
STARVED = "napi handler hasn't been called for a long time but is scheduled"
RESET = "Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g"
SPLIT = ("TX q 7 is paused for too long (threshold 5000000). Time since last", "napi 6100000 usec. napi scheduled: 1")


@dataclass(frozen=True)
class Written:
    """A line, and the wall time before and after it was written."""

    text: str
    before: int
    after: int


def write(text: str) -> Written:
    """Each line opens the log again, as echo does: of one opener the kernel takes ten lines in five seconds."""
    before = time.time_ns()
    log = os.open(KMSG, os.O_WRONLY)
    try:
        os.write(log, f"<6>{text}\n".encode())
    finally:
        os.close(log)
    return Written(text, before, time.time_ns())


def stamps_since(log: int) -> dict[str, tuple[int, int]]:
    """The kernel's own (sequence, microseconds) of each line since the descriptor was opened at the log's end."""
    stamps = {}
    while True:
        try:
            head, _, body = os.read(log, 8192).decode().partition(";")
        except BlockingIOError:
            return stamps
        _, sequence, stamp, *_ = head.split(",")
        stamps[body.partition("\n")[0]] = (int(sequence), int(stamp))


@dataclass(frozen=True)
class Reported:
    lines: list[Written]
    known: list[Written]
    stamps: dict[str, tuple[int, int]]
    events: list[dict[str, Any]]
    incidents: list[dict[str, Any]]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    """Halves of a line that are read in different ticks stay apart: where the machine was held up just then, all of it
    is written again."""
    for _ in range(ATTEMPTS):
        directory = tmp_path_factory.mktemp("kernel-log") / "recording"
        written = write_and_record(directory)
        if in_one_tick(directory, written.known[-2:]):
            return written
    return pytest.fail("the halves of a line never fell into one tick")


def in_one_tick(directory: Path, halves: list[Written]) -> bool:
    """Neither did a tick end between them, nor was the log read then for one that had ended."""
    recording = Recording.open(directory)
    turns = {row["time"]: row["tick_us"] * 1000 for row in recording.read("self").to_pylist()}
    ticks = sorted((row["time"], row["wall"]) for row in recording.read("anchors").to_pylist())
    ends = [(wall, wall + turns[before]) for (before, _), (_, wall) in pairwise(ticks) if before in turns]
    return all(read < halves[0].before or halves[-1].after < end for end, read in ends)


def write_and_record(directory: Path) -> Reported:
    mark = uuid.uuid4().hex
    log = os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK)
    os.lseek(log, 0, os.SEEK_END)
    lines = []
    with recorder(directory):
        for number in range(LINES):
            lines.append(
                write(f"exhume proof {mark} line {number:02d} with a \ttab, an umlaut ü and 100% \\ backslash")
            )
            time.sleep(APART_S)
        # Well inside a tick, after all that its end made the recorder read.
        await_wall(next_second() + 600 * MILLIS)
        with on_time():
            known = [write(text) for text in (BUS + PAUSED, BUS + STARVED, BUS + RESET, BUS + SPLIT[0], SPLIT[1])]
        await_recorded(directory, known[-1].after)
    stamps = stamps_since(log)
    os.close(log)
    return Reported(
        lines,
        known,
        stamps,
        [event for event in ask_json(directory, "events")["events"] if event["source"] == "kernel-log"],
        ask_json(directory, "incidents", statuses=(0, 1))["incidents"],
    )


def escaped(text: str) -> str:
    """As /dev/kmsg shows it: what is not printable ASCII byte by byte, and the backslash itself."""
    raw = (chr(byte) if 32 <= byte < 127 and byte != 0x5C else f"\\x{byte:02x}" for byte in text.encode())
    return "".join(raw)


def wall_ns(event: dict[str, Any]) -> int:
    return round(datetime.fromisoformat(event["time"]).timestamp() * 1000) * MILLIS


def test_every_line_comes_back_once_at_the_kernels_own_time(reported: Reported) -> None:
    for line in reported.lines:
        found = [event for event in reported.events if event["text"] == line.text]
        assert len(found) == 1, line.text
        sequence, stamp = reported.stamps[escaped(line.text)]
        assert (found[0]["sequence"], found[0]["kernel_us"]) == (sequence, stamp)
        assert found[0]["kind"] == "kernel-line"


def test_the_wall_time_of_a_line_is_when_it_was_written(reported: Reported) -> None:
    """To a millisecond, which is also what times are shown to."""
    off = [
        max(line.before - at, at - line.after, 0) / MILLIS
        for line in reported.lines
        for at in (wall_ns(event) for event in reported.events if event["text"] == line.text)
    ]
    print(f"largest distance from the write: {max(off):.2f} ms")
    assert len(off) == LINES
    assert max(off) <= 1.0


def test_the_lines_of_a_starved_nic_are_recognised(reported: Reported) -> None:
    paused, starved, reset = (
        next(event for event in reported.events if event["text"] == line.text) for line in reported.known[:3]
    )
    assert (paused["kind"], paused["severity"], paused["queue"]) == ("nic-tx-paused", "critical", 5)
    assert paused["value"] == pytest.approx(6.596)
    assert (starved["kind"], reset["kind"]) == ("nic-napi-starved", "nic-reset")
    assert {event["device"] for event in (paused, starved, reset)} == {DEVICE}
    marked = [mark["text"] for mark in reported.incidents if mark["device"] == DEVICE]
    assert any(PAUSED in text for text in marked)
    assert any(RESET in text for text in marked)


def test_a_line_split_in_two_is_one_event_at_the_time_of_its_first_half(reported: Reported) -> None:
    first, second = reported.known[3:]
    # The log of this boot may hold such lines of an earlier run; those are recorded too.
    now = [event for event in reported.events if (event["sequence"] or 0) >= reported.stamps[first.text][0]]
    whole = [event for event in now if event["queue"] == 7 and event["device"] == DEVICE]
    assert [event["kind"] for event in whole] == ["nic-tx-paused"]
    assert whole[0]["value"] == pytest.approx(6.1)
    assert whole[0]["kernel_us"] == reported.stamps[first.text][1]
    assert not [event for event in now if event["text"] == second.text]
