"""Recordings in other states than well: without a sampler, stopped halfway, with a log that is older than they are."""

import json
import shutil
from dataclasses import replace

import pytest

from exhume.model.clock import NANOS, Tick
from exhume.model.facts import MissingSource, RecordingFacts
from exhume.store.format.names import LOCK_NAME
from exhume.store.write.writer import SegmentWriter

FACTS = RecordingFacts("node-1", "1f0c5a9e" + "0" * 24, 1, "6.8.0", "x86_64", "none", 0)
NO_STACKS = MissingSource("stacks", "perf_event_open was refused", "add CAP_PERFMON")
NO_WAITS = MissingSource("run-queue wait", "no /proc/schedstat", "run another kernel")
NO_LOG = MissingSource("kernel-log", "/dev/kmsg can't be opened", "run as root")
WALL = 1_780_000_020 * NANOS
MONO = 5_000 * NANOS
SHARES = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "guest", "idle")


def write(directory, facts=FACTS, events=()) -> SegmentWriter:
    """Three seconds of one idle core, and events as (seconds after the beginning, kind)."""
    writer = SegmentWriter(directory, facts, max_bytes=None, max_age_s=None)
    for index in range(3):
        start = MONO + index * NANOS
        row = {name: [1000 if name == "idle" else 0] for name in SHARES}
        writer.append("cpu", {"time": [start], "cpu": [0], "span_ms": [1000], **row})
        for at, kind in events if index == 0 else ():
            row = {"source": ["kernel-log"], "severity": ["warning"], "text": [f"a line at {at}"]}
            writer.append("events", {"time": [MONO + at * NANOS], "kind": [kind], **row})
        writer.commit(Tick(index, start, start + NANOS, start + NANOS + WALL - MONO))
    return writer


@pytest.fixture
def halfway(tmp_path):
    """A recorder at work: the recording grows, and its lock is held."""
    writer = write(tmp_path / "halfway")
    yield tmp_path / "halfway"
    writer.close()


def test_a_recording_that_grows_is_live(exhume, halfway):
    found = json.loads(exhume("info", "--dir", str(halfway), "--json").stdout)
    assert (found["live"], found["sealed"]) == (True, False)
    assert "(being recorded now)" in exhume("info", "--dir", str(halfway)).stdout


def test_a_recording_whose_recorder_was_killed_is_not_live(exhume, halfway, tmp_path):
    # A copy has all that a killed recorder leaves behind: every file as it was, and a lock without a holder.
    left = shutil.copytree(halfway, tmp_path / "left")
    (left / LOCK_NAME).chmod(0o444)
    found = json.loads(exhume("info", "--dir", str(left), "--json").stdout)
    assert (found["live"], found["sealed"]) == (False, False)
    text = exhume("info", "--dir", str(left)).stdout
    assert "(not sealed: the recorder was stopped; the next one seals it)" in text


def test_a_sealed_recording_is_neither(exhume, tmp_path):
    write(tmp_path).close()
    found = json.loads(exhume("info", "--dir", str(tmp_path), "--json").stdout)
    assert (found["live"], found["sealed"]) == (False, True)
    assert exhume("info", "--dir", str(tmp_path)).stdout.startswith(f"recording  {tmp_path}\n")


def test_asking_for_the_recorder_takes_no_lock(exhume, tmp_path):
    write(tmp_path).close()
    exhume("info", "--dir", str(tmp_path))
    SegmentWriter(tmp_path, FACTS, max_bytes=None, max_age_s=None).close()


@pytest.mark.parametrize(
    ("args", "missing", "code"),
    [(("flame", "-o", "-"), NO_STACKS, 3), (("events",), NO_LOG, 3), (("incidents",), NO_LOG, 0)],
)
def test_what_was_not_recorded_is_named(exhume, tmp_path, args, missing, code):
    write(tmp_path, replace(FACTS, sources_missing=[NO_WAITS, NO_STACKS, NO_LOG])).close()
    result = exhume(*args, "--dir", str(tmp_path), check=False)
    assert result.returncode == code
    assert result.stderr.endswith(f"; source unavailable: {missing}\n")
    assert result.stderr.count("\n") == 1


def test_info_without_a_sampler(exhume, tmp_path):
    write(tmp_path, replace(FACTS, sources_missing=[NO_STACKS])).close()
    text = exhume("info", "--dir", str(tmp_path)).stdout
    assert "no stack samples (see missing)" in text
    assert "0 Hz" not in text


def test_lines_from_before_the_recording_are_listed(exhume, tmp_path):
    write(tmp_path, events=[(-4000, "oom"), (1, "stall")]).close()
    assert texts(exhume, tmp_path) == ["a line at -4000", "a line at 1"]
    assert texts(exhume, tmp_path, "--since", f"@{WALL // NANOS - 4000}") == ["a line at -4000", "a line at 1"]
    assert texts(exhume, tmp_path, "--until", f"@{WALL // NANOS}") == ["a line at -4000"]
    assert texts(exhume, tmp_path, "--since", f"@{WALL // NANOS}") == ["a line at 1"]


def texts(exhume, directory, *args):
    return [
        event["text"]
        for event in json.loads(exhume("events", "--dir", str(directory), *args, "--json").stdout)["events"]
    ]
