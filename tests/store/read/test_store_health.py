"""The recorder's state for probes: written in place, read whole or not at all, and judged."""

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.model.clock import NANOS
from exhume.model.facts import MissingSource
from exhume.store.format.names import HEALTH_NAME, LIVE_DIRECTORY
from exhume.store.read.health import (
    HEALTH_BYTES,
    RecorderHealth,
    State,
    UnreadableHealth,
    judge,
    read_health,
    recorder_pid,
)

BOOT = "1f0c5a9e" + "0" * 24
NOW = 900 * NANOS
MISSING = [MissingSource("stacks", "perf_event_open was refused", "add CAP_PERFMON")]
WELL = RecorderHealth(
    pid=77,
    boot_id=BOOT,
    exhume_version="0.1.0",
    began=100 * NANOS,
    tick=NOW - NANOS // 2,
    wall=1_780_000_000 * NANOS,
    rate_hz=97,
    requested_rate_hz=97,
    cpu=0.0123,
    rss_bytes=100 << 20,
    sources_missing=MISSING,
)


def verdict(health, *, recording=True, recorder=77, boot_id=BOOT, **options):
    return judge(health, recording=recording, recorder=recorder, boot_id=boot_id, now=NOW, **options)


def test_what_was_written_is_read_again(tmp_path):
    (tmp_path / LIVE_DIRECTORY).mkdir()
    content = replace(WELL, losses={"late-tick": 3}).encode()
    (tmp_path / LIVE_DIRECTORY / HEALTH_NAME).write_bytes(content)
    assert len(content) == HEALTH_BYTES
    assert read_health(tmp_path) == replace(WELL, losses={"late-tick": 3})


def test_no_file_is_no_health(tmp_path):
    assert read_health(tmp_path) is None


def test_many_missing_sources_with_long_reasons_still_fit():
    many = [MissingSource(f"source {number}", "x" * 5000, "y" * 5000) for number in range(200)]
    content = replace(WELL, sources_missing=many).encode()
    assert len(content) == HEALTH_BYTES
    assert 10 < len(RecorderHealth.decode(content).sources_missing) < 200


@given(place=st.integers(0, WELL.encode().index(b"\n") - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed(place, bit):
    content = bytearray(WELL.encode())
    content[place] ^= 1 << bit
    with pytest.raises(UnreadableHealth):
        RecorderHealth.decode(bytes(content))


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_by_one_error(content):
    with pytest.raises(UnreadableHealth):
        RecorderHealth.decode(content)


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_what_is_no_file_is_neither_waited_for_nor_followed(tmp_path, kind):
    path = tmp_path / LIVE_DIRECTORY / HEALTH_NAME
    path.parent.mkdir()
    {"fifo": lambda: os.mkfifo(path), "link": lambda: path.symlink_to("/dev/zero"), "directory": path.mkdir}[kind]()
    with pytest.raises((OSError, UnreadableHealth)):
        read_health(tmp_path)


def test_a_recorder_on_time_without_losses_is_healthy():
    report = verdict(WELL)
    assert (report.state, report.problems, report.age_ns) == (State.HEALTHY, (), NANOS // 2)


def test_losses_degrade_unless_they_are_allowed_or_lose_nothing():
    lost = replace(WELL, losses={"lost-samples": 4})
    assert verdict(lost).problems == ("losses",)
    assert verdict(lost, allow_losses=True).state is State.HEALTHY
    assert verdict(replace(WELL, losses={"rate-raised": 1, "memory-released": 2})).state is State.HEALTHY


def test_a_tick_that_is_too_old_is_late():
    old = replace(WELL, tick=NOW - 6 * NANOS)
    assert verdict(old).problems == ("late",)
    assert verdict(old, max_age_ns=10 * NANOS).state is State.HEALTHY
    assert verdict(replace(old, losses={"late-tick": 1})).problems == ("late", "losses")


def test_a_new_recorder_is_not_judged_by_the_file_of_an_earlier_one():
    report = verdict(WELL, recorder=78)
    assert (report.state, report.problems, report.health) == (State.DEGRADED, ("no-tick",), None)
    # A member of the group can't read whose lock it is.
    assert verdict(WELL, recorder=None).state is State.HEALTHY
    assert verdict(None).problems == ("no-tick",)


def test_without_a_recorder_it_is_stopped_whatever_the_file_says():
    assert verdict(WELL, recording=False).state is State.STOPPED
    assert verdict(None, recording=False, recorder=None).state is State.STOPPED


def test_the_file_of_a_stopped_recorder_of_an_earlier_boot_has_no_age():
    old = replace(WELL, losses={"late-tick": 1})
    report = verdict(old, recording=False, boot_id="0" * 32)
    assert (report.age_ns, dict(report.losses)) == (None, {})
    assert verdict(old, recording=False).age_ns == NANOS // 2
    # The clock of this boot has not come so far yet.
    assert verdict(replace(WELL, tick=NOW + NANOS)).problems == ("no-tick",)


@pytest.mark.parametrize(("content", "pid"), [("1234\n", 1234), ("", None), ("x", None), ("-1", None)])
def test_the_pid_of_a_lock(tmp_path, content, pid):
    (tmp_path / "lock").write_text(content)
    assert recorder_pid(tmp_path / "lock") == pid
    assert recorder_pid(tmp_path / "none") is None
