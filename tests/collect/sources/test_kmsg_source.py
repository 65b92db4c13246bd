"""The kernel log as a source. A named pipe in packet mode stands in for /dev/kmsg: a record for each read."""

import ctypes
import errno
import fcntl
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.collect.fake_node import FakeNode, tick

from exhume.collect.sources.kmsg import (
    CLOCK_TICKS,
    KernelLogClock,
    KernelLogSource,
    LogPosition,
    klogctl,
    monotonic_of,
)
from exhume.model.clock import NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.procfs.host import Host

BOOT = "0123456789abcdef0123456789abcdef"


class Log:
    """The kernel's side."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # Open at both ends, so that an empty pipe is one that has nothing yet.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        fcntl.fcntl(self._fd, fcntl.F_SETFL, os.O_NONBLOCK | os.O_DIRECT)
        self.sequence = 100

    def say(self, text: str, *, priority: int = 6, flags: str = "-", at_us: int | None = None, skip: int = 0) -> int:
        self.sequence += 1 + skip
        stamp = self.sequence * 1000 if at_us is None else at_us
        os.write(self._fd, f"{priority},{self.sequence},{stamp},{flags};{text}\n".encode())
        return self.sequence

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def log(node: FakeNode) -> Iterator[Log]:
    node.proc("sys/kernel/random/boot_id", "01234567-89ab-cdef-0123-456789abcdef\n")
    log = Log(node.host.dev / "kmsg")
    yield log
    log.close()


def events(rows):
    columns = rows.get("events", {"time": []})
    return [{name: values[i] for name, values in columns.items()} for i in range(len(columns["time"]))]


def test_every_line_is_an_event_at_the_kernels_time(node: FakeNode, log: Log) -> None:
    source = KernelLogSource(node.host)
    log.say("eth0: link up", at_us=5_000_000)
    log.say("watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [cat:9]", at_us=6_500_000)
    plain, known = events(source.read(tick(1)))
    assert (plain["kind"], plain["severity"], plain["text"]) == ("kernel-line", "info", "eth0: link up")
    assert (plain["kernel_us"], plain["time"], plain["sequence"]) == (5_000_000, 5_000_000_000, 101)
    assert (known["kind"], known["severity"], known["cpu"], known["pid"]) == ("soft-lockup", "critical", 1, 9)
    assert known["time"] == 6_500_000_000
    assert source.read(tick(2)) == {}


def test_a_line_is_as_severe_as_the_kernel_says(node: FakeNode, log: Log) -> None:
    source = KernelLogSource(node.host)
    for priority in (6, 4, 3, 11):
        log.say(f"some text of priority {priority}", priority=priority)
    assert [row["severity"] for row in events(source.read(tick(1)))] == ["info", "info", "warning", "info"]


def test_the_backlog_is_searched_for_signatures_only(node: FakeNode, log: Log) -> None:
    log.say("Linux version 6.1")
    log.say("sched: RT throttling activated")
    source = KernelLogSource(node.host)
    log.say("after the start")
    assert [row["kind"] for row in events(source.read(tick(1)))] == ["rt-throttling", "kernel-line"]


def test_a_tick_without_length_keeps_the_lines_for_the_next(node: FakeNode, log: Log) -> None:
    log.say("sched: RT throttling activated")
    source = KernelLogSource(node.host)
    log.say("early")
    assert source.read(tick(0, seconds=0)) == {}
    log.say("later")
    texts = [row["text"] for row in events(source.read(tick(1)))]
    assert texts == ["sched: RT throttling activated", "early", "later"]


def test_a_restart_repeats_and_misses_nothing(node: FakeNode, log: Log) -> None:
    source = KernelLogSource(node.host)
    log.say("one")
    source.read(tick(1))
    position = source.position
    source.close()
    assert position == LogPosition(BOOT, 101, 101_000)
    log.say("two")
    again = KernelLogSource(node.host, after=position)
    log.say("three")
    assert [row["text"] for row in events(again.read(tick(2)))] == ["two", "three"]
    # A kernel that shows the whole log again is no reason to repeat it.
    log.sequence = 100
    log.say("one")
    assert again.read(tick(3)) == {}


def test_a_position_of_another_boot_is_void(node: FakeNode, log: Log) -> None:
    source = KernelLogSource(node.host, after=LogPosition("f" * 32, 1_000_000))
    log.say("new boot")
    assert [row["text"] for row in events(source.read(tick(1)))] == ["new boot"]
    assert source.position == LogPosition(BOOT, 101, 101_000)


def test_no_line_no_position(node: FakeNode, log: Log) -> None:
    assert KernelLogSource(node.host).position is None


def test_gaps_are_losses(node: FakeNode, log: Log) -> None:
    source = KernelLogSource(node.host)
    log.say("a")
    log.say("b", skip=41)
    source.read(tick(1))
    (loss,) = source.take_losses()
    assert (loss.kind, loss.count, loss.source) == ("sequence-gap", 41, "kernel-log")
    assert source.take_losses() == []
    resumed = KernelLogSource(node.host, after=source.position)
    log.say("c", skip=7)
    resumed.read(tick(2))
    assert [loss.count for loss in resumed.take_losses()] == [7]


FIRST = "ena 0000:00:05.0 eth0: TX q 5 is paused for too long (threshold 5000000). Time since last napi"
SECOND = "6596000 usec. napi scheduled: 1"


@pytest.mark.parametrize("cut", range(30, len(f"{FIRST} {SECOND}") - 1, 7))
def test_a_wrapped_line_is_one_event(node: FakeNode, log: Log, cut: int) -> None:
    whole = f"{FIRST} {SECOND}"
    source = KernelLogSource(node.host)
    log.say("something else", at_us=999_000)
    log.say(whole[:cut], at_us=1_000_000)
    log.say(whole[cut:], at_us=1_000_020)
    log.say("and another", at_us=1_000_030)
    rows = events(source.read(tick(1)))
    assert [row["kind"] for row in rows] == ["kernel-line", "nic-tx-paused", "kernel-line"]
    assert (rows[1]["queue"], rows[1]["value"], rows[1]["kernel_us"]) == (5, pytest.approx(6.596), 1_000_000)


def test_a_line_wrapped_at_a_blank(node: FakeNode, log: Log) -> None:
    source = KernelLogSource(node.host)
    log.say(FIRST, at_us=1_000_000)
    log.say(SECOND, at_us=1_000_010)
    (row,) = events(source.read(tick(1)))
    assert row["text"] == f"{FIRST} {SECOND}"
    assert row["device"] == "eth0"


def test_a_line_wrapped_over_two_ticks(node: FakeNode, log: Log) -> None:
    source = KernelLogSource(node.host)
    log.say(FIRST, at_us=1_000_000)
    assert [row["kind"] for row in events(source.read(tick(1)))] == ["kernel-line"]
    log.say(SECOND, at_us=1_000_010)
    assert [row["kind"] for row in events(source.read(tick(2)))] == ["nic-tx-paused"]


def test_lines_far_apart_are_two(node: FakeNode, log: Log) -> None:
    source = KernelLogSource(node.host)
    log.say(FIRST, at_us=1_000_000)
    log.say(SECOND, at_us=9_000_000)
    assert [row["kind"] for row in events(source.read(tick(1)))] == ["kernel-line", "kernel-line"]


def test_a_recognised_line_takes_in_nothing(node: FakeNode, log: Log) -> None:
    source = KernelLogSource(node.host)
    log.say("sched: RT throttling activated", at_us=1_000)
    log.say("hello", at_us=1_001)
    log.say("world", at_us=1_002)
    rows = events(source.read(tick(1)))
    assert [row["text"] for row in rows] == ["sched: RT throttling activated", "hello", "world"]


def test_a_continuation_is_the_same_line(node: FakeNode, log: Log) -> None:
    source = KernelLogSource(node.host)
    log.say("probing ports:", at_us=1_000)
    log.say(" 1", flags="c", at_us=1_001)
    log.say(" 2", flags="c", at_us=1_002)
    assert [row["text"] for row in events(source.read(tick(1)))] == ["probing ports: 1 2"]


def test_a_flood_is_bounded_and_counted(node: FakeNode, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.collect.sources.kmsg._ROWS_PER_TICK", {False: 4, True: 2000})
    source = KernelLogSource(node.host)
    source.read(tick(0))
    for number in range(10):
        log.say(f"noise {number}")
    log.say("sched: RT throttling activated")
    rows = source.read(tick(1))
    assert [row["kind"] for row in events(rows)] == ["kernel-line"] * 4 + ["rt-throttling"]
    assert [(loss.kind, loss.count) for loss in source.take_losses()] == [("rate-limit", 6)]
    log.say("quiet again")
    assert [row["text"] for row in events(source.read(tick(2)))] == ["quiet again"]


def test_records_of_another_shape_are_counted(node: FakeNode, log: Log) -> None:
    source = KernelLogSource(node.host)
    os.write(log._fd, b"no record at all")
    assert source.read(tick(1)) == {}
    assert [loss.kind for loss in source.take_losses()] == ["unreadable-record"]


def test_no_device(node: FakeNode) -> None:
    with pytest.raises(SourceUnavailable, match="/dev"):
        KernelLogSource(node.host)


class FakeLogClock(KernelLogClock):
    """An offset by hand, and how often it was measured."""

    def __init__(self, offset_ns: int = 0) -> None:
        super().__init__()
        self._offset = offset_ns
        self.measurements = 0

    def measure(self) -> bool:
        self.measurements += 1
        return True


def test_the_clock_of_the_log_is_measured_at_first_and_every_minute(node: FakeNode, log: Log) -> None:
    clock = FakeLogClock()
    source = KernelLogSource(node.host, clock=clock)
    assert clock.measurements == 1
    for second in range(2 * CLOCK_TICKS + 1):
        source.read(tick(second))
    assert clock.measurements == 4


def test_the_clock_of_the_log_is_brought_to_monotonic(node: FakeNode, log: Log) -> None:
    source = KernelLogSource(node.host, clock=FakeLogClock(50_000_000))
    now_us = (tick(1).end + 50_000_000) // 1000
    log.say("now", at_us=now_us)
    log.say("half of the boot ago", at_us=now_us // 2)
    now, earlier = events(source.read(tick(1)))
    assert now["time"] == tick(1).end
    assert earlier["time"] == pytest.approx(tick(1).end // 2, abs=2000)
    assert now["kernel_us"] == now_us


@given(st.integers(0, 10**13), st.integers(1, 10**16), st.integers(-(10**9), 10**9))
def test_no_line_is_moved_by_more_than_the_offset(stamp: int, now: int, offset: int) -> None:
    if stamp * 1000 <= now + offset:
        assert abs(monotonic_of(stamp, now, offset) - stamp * 1000) <= abs(offset) + 1


@pytest.mark.root
def test_lines_of_the_real_kernel_come_back_with_its_stamp() -> None:
    source = KernelLogSource(Host())
    mark = f"exhume-test-{os.getpid()}-{time.monotonic_ns()}"
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    for number in range(20):
        # Opened for each: the kernel takes ten lines in five seconds from one writer.
        with Path("/dev/kmsg").open("wb", buffering=0) as writer:
            writer.write(f"{mark} line {number}\n".encode())
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    rows = events(source.read(Tick(0, after - NANOS, after, 0)))
    mine = [row for row in rows if row["text"].startswith(mark)]
    assert [row["text"] for row in mine] == [f"{mark} line {number}" for number in range(20)]
    # The log's clock and ours drift apart by far less than this.
    assert all(before - NANOS < row["time"] < after + NANOS for row in mine)
    stamps = [row["kernel_us"] for row in mine]
    assert stamps == sorted(stamps)
    assert stamps[-1] - stamps[0] <= (after - before) / 1000 * 1.001 + 1000
    # A recorder that starts again goes on behind them.
    again = KernelLogSource(Host(), after=source.position)
    assert not [row for row in events(again.read(Tick(1, after, after + 1, 0))) if row["text"].startswith(mark)]


class Syslog:
    """The kernel's side of syslog(2): the newest lines that fit into the caller's buffer, and into its own."""

    def __init__(self, size: int = 1 << 17) -> None:
        self.size = size
        self.lines: list[bytes] = []
        self.refused = 0
        self.asked: list[int] = []

    def say(self, text: str, at_us: int, prefix: str = "") -> None:
        stamp = f"{at_us // 1_000_000:5d}.{at_us % 1_000_000:06d}"
        self.lines.append(f"<6>[{stamp}]{prefix} {text}\n".encode())

    def __call__(self, action: int, buffer, size: int) -> int:
        if self.refused:
            ctypes.set_errno(self.refused)
            return -1
        if action == 10:
            return self.size
        assert action == 3
        self.asked.append(size)
        text, room = b"", min(size, self.size)
        for line in reversed(self.lines):
            if len(text) + len(line) > room:
                break
            text = line + text
        buffer[: len(text)] = text
        return len(text)


@pytest.fixture
def syslog(node: FakeNode) -> Syslog:
    """A node whose /dev/kmsg is not there, as in a container."""
    node.proc("sys/kernel/random/boot_id", "01234567-89ab-cdef-0123-456789abcdef\n")
    return Syslog()


def test_without_kmsg_lines_come_by_syslog(node: FakeNode, syslog: Syslog) -> None:
    syslog.say("Linux version 6.1", at_us=0)
    syslog.say("sched: RT throttling activated", at_us=4_000_000)
    source = KernelLogSource(node.host, syslog=syslog)
    syslog.say("eth0: link up", at_us=5_000_000)
    known, plain = events(source.read(tick(1)))
    assert (known["kind"], known["time"], known["sequence"]) == ("rt-throttling", 4_000_000_000, None)
    assert (plain["kind"], plain["text"], plain["kernel_us"]) == ("kernel-line", "eth0: link up", 5_000_000)
    assert source.read(tick(2)) == {}
    # Two lines of one moment, and one that another core stamped a moment before: each once.
    syslog.say("first", at_us=6_000_000, prefix="[   T12]")
    syslog.say("first", at_us=6_000_000, prefix="[   T12]")
    syslog.say("behind", at_us=5_999_990)
    assert [row["text"] for row in events(source.read(tick(3)))] == ["first", "first", "behind"]
    syslog.say("next", at_us=5_999_995)
    assert [row["text"] for row in events(source.read(tick(4)))] == ["next"]
    assert source.take_losses() == []


def test_what_syslog_lacks_is_named(node: FakeNode, syslog: Syslog) -> None:
    source = KernelLogSource(node.host, syslog=syslog)
    (missing,) = source.missing
    assert missing.source == "kernel-log-numbers" and "without numbers" in missing.reason
    assert not KernelLogSource(Host(dev=Path("/dev"), proc=node.host.proc)).missing


def test_little_of_the_log_is_read_in_an_ordinary_tick(node: FakeNode, syslog: Syslog) -> None:
    for number in range(1500):
        syslog.say(f"line {number} " + "x" * 40, at_us=number * 1000)
    source = KernelLogSource(node.host, syslog=syslog)
    syslog.asked.clear()
    syslog.say("one more", at_us=2_000_000)
    assert [row["text"] for row in events(source.read(tick(1)))] == ["one more"]
    assert syslog.asked == [16 << 10]
    # A burst of more than that is read whole.
    for number in range(1000):
        syslog.say(f"burst {number} " + "y" * 40, at_us=3_000_000 + number)
    rows = events(source.read(tick(2)))
    assert [row["text"].split()[1] for row in rows] == [str(number) for number in range(1000)]
    assert source.take_losses() == []


def test_a_long_log_is_read_less_often(node: FakeNode, syslog: Syslog, monkeypatch) -> None:
    source = KernelLogSource(node.host, syslog=syslog)
    # A second of CPU time for a call: with a share of 0.2%, the next is due in minutes.
    clock = itertools.count(0, NANOS)
    monkeypatch.setattr(time, "thread_time_ns", lambda: next(clock))
    syslog.say("first", at_us=1_000_000)
    assert [row["text"] for row in events(source.read(tick(1)))] == ["first"]
    syslog.say("second", at_us=2_000_000)
    asked = len(syslog.asked)
    assert source.read(tick(2)) == {} and len(syslog.asked) == asked


def test_lines_that_syslog_overwrote_are_a_loss(node: FakeNode, syslog: Syslog) -> None:
    syslog.size = 1 << 15
    syslog.say("early", at_us=1000)
    source = KernelLogSource(node.host, syslog=syslog)
    source.read(tick(1))
    for number in range(2000):
        syslog.say(f"flood {number} " + "z" * 40, at_us=2_000_000 + number)
    rows = events(source.read(tick(2)))
    assert rows[-1]["text"].startswith("flood 1999") and 300 < len(rows) < 600
    (loss,) = source.take_losses()
    assert (loss.kind, loss.count, loss.source) == ("sequence-gap", 1, "kernel-log")


def test_a_log_that_was_cleared_goes_on_without_a_loss(node: FakeNode, syslog: Syslog) -> None:
    syslog.say("old", at_us=1_000_000)
    source = KernelLogSource(node.host, syslog=syslog)
    source.read(tick(1))
    syslog.lines.clear()
    assert source.read(tick(2)) == {}
    syslog.say("new", at_us=2_000_000)
    assert [row["text"] for row in events(source.read(tick(3)))] == ["new"]
    assert source.take_losses() == []


def test_a_recorder_goes_on_where_another_stopped_by_either_way(node: FakeNode, syslog: Syslog) -> None:
    syslog.say("one", at_us=101_000)
    source = KernelLogSource(node.host, syslog=syslog)
    syslog.say("two", at_us=102_000)
    source.read(tick(1))
    position = source.position
    assert position == LogPosition(BOOT, None, 102_000)
    syslog.say("three", at_us=103_000)
    again = KernelLogSource(node.host, after=position, syslog=syslog)
    assert [row["text"] for row in events(again.read(tick(2)))] == ["three"]
    # On the node itself, with numbers: the same lines have 101 to 104 there.
    log = Log(node.host.dev / "kmsg")
    for text in ("one", "two", "three", "four"):
        log.say(text)
    numbered = KernelLogSource(node.host, after=again.position)
    assert [row["text"] for row in events(numbered.read(tick(3)))] == ["four"]
    assert numbered.take_losses() == [] and numbered.position == LogPosition(BOOT, 104, 104_000)
    log.close()


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_a_refused_syslog_is_a_missing_log(node: FakeNode, syslog: Syslog, number: int) -> None:
    syslog.refused = number
    with pytest.raises(SourceUnavailable) as unavailable:
        KernelLogSource(node.host, syslog=syslog)
    assert unavailable.value.missing.source == "kernel-log"
    assert os.strerror(number) in unavailable.value.missing.reason
    assert "CAP_SYSLOG" in unavailable.value.missing.remedy


def test_lines_without_times_are_a_missing_log(node: FakeNode, syslog: Syslog) -> None:
    syslog.lines.append(b"<6>no stamp\n")
    with pytest.raises(SourceUnavailable) as unavailable:
        KernelLogSource(node.host, syslog=syslog)
    assert "printk/parameters/time" in unavailable.value.missing.remedy


def test_a_syslog_that_fails_later_is_a_loss(node: FakeNode, syslog: Syslog) -> None:
    source = KernelLogSource(node.host, syslog=syslog)
    syslog.refused = errno.EPERM
    assert source.read(tick(1)) == {}
    assert [(loss.kind, loss.count) for loss in source.take_losses()] == [("read-error", 1)]


@pytest.mark.root
def test_the_real_syslog_has_what_kmsg_has(tmp_path: Path) -> None:
    mark = f"exhume test {os.getpid()} {time.monotonic_ns()}"
    nowhere = Host(dev=tmp_path)
    by_syslog, by_device = KernelLogSource(nowhere, syslog=klogctl), KernelLogSource(Host())
    Path("/dev/kmsg").write_text(f"<6>{mark}\n")
    (same,) = [row for row in events(by_device.read(tick(1))) if mark in row["text"]]
    # On a machine with a long log, or a slow one, it is read less often than every tick.
    found = []
    for number in range(1, 21):
        found += [row for row in events(by_syslog.read(tick(number))) if mark in row["text"]]
        time.sleep(0 if found else 1)
    (seen,) = found
    assert (seen["text"], seen["kernel_us"], seen["kind"]) == (same["text"], same["kernel_us"], same["kind"])
