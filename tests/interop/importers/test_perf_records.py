"""perf.data byte by byte: what no perf at hand writes, on any machine."""

import io
import os
import platform
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.interop.importers.made_up import START, imported, put
from tests.interop.importers.perf_file import PID, perf_file, rounds_file, task_trailer

from exhume.interop.importers.files import InputFile
from exhume.interop.importers.form import FileSummary, ReadOptions
from exhume.interop.importers.perf_data import stacks, symbols
from exhume.interop.importers.perf_data.reader import PerfDataReader, read_perf_data
from exhume.interop.importers.perf_data.records import distinct
from exhume.interop.importers.spool import Intake, Spool
from exhume.model.clock import NANOS

SHAPES = {"file": {}, "pipe": {"pipe": True}, "compressed": {"compressed": True}}


@pytest.mark.parametrize("shape", SHAPES)
def test_samples_names_and_losses(tmp_path, shape):
    content = perf_file(samples=200, **SHAPES[shape])
    result, recording = imported(tmp_path, put(tmp_path, "perf.data", content))
    assert result.complete
    assert result.files[0].format == "perf.data"
    rows = recording.read("samples").sort_by("time_ms").to_pylist()
    assert [row["time_ms"] for row in rows] == [START // 10**6 + 10 * number for number in range(200)]
    assert {(row["pid"], row["tid"], row["comm"], row["weight_us"]) for row in rows} == {(4242, 4242, "tool", 10_000)}
    assert [row["cpu"] for row in rows[:4]] == [0, 1, 0, 1]
    frames = {(row["kind"], row["module"]) for row in recording.read("frames").to_pylist()}
    assert frames == {("kernel", "[kernel]"), ("user", "/usr/bin/tool")}
    names = {row["name"] for row in recording.read("frames").to_pylist()}
    # The first user address was running; the other is a return address, whose call is before it.
    assert {"tool+0x10", "tool+0xff"} <= names
    (loss,) = recording.losses()
    assert (loss.source, loss.kind, loss.count, loss.cpu) == ("stacks", "lost-samples", 3, 0)
    process = recording.read("processes").to_pylist()[0]
    assert (process["pid"], process["ppid"], process["comm"]) == (4242, 1, "tool")
    if shape != "pipe":
        assert (recording.facts.node, recording.facts.kernel) == ("elsewhere", "5.4.0")
    # Two cores sampled in turns at 100 Hz in all: each is busy for half of the time, in the kernel.
    busy = [(row["cpu"], row["system"]) for row in recording.read("cpu").to_pylist()]
    assert busy
    assert all(system == pytest.approx(500, abs=60) for _, system in busy)


@pytest.mark.parametrize("time", [3 * NANOS, 1 << 63], ids=["after-all-samples", "impossible"])
def test_task_records_with_a_damaged_time_cost_no_sample(tmp_path, time):
    """The process begins after it was sampled, or at a time that no clock reaches."""
    content = perf_file(samples=50)
    for moment in (5, 6):
        content = content.replace(task_trailer(PID, moment, 0), task_trailer(PID, time, 0))
    _, recording = imported(tmp_path, put(tmp_path, "perf.data", content))
    assert recording.read("samples").column("pid").to_pylist() == [PID] * 50


class MeasuredFile(io.BytesIO):
    """A file that keeps the largest read that was requested."""

    most = 0

    def read(self, size=-1):
        self.most = max(self.most, size)
        return super().read(size)


def test_no_more_is_requested_than_the_file_has(tmp_path):
    content = bytearray(perf_file(samples=50))
    begin, length = struct.unpack_from("<QQ", content, 40)
    # The size of the first section after the records, those of the features.
    struct.pack_into("<Q", content, begin + length + 8, 1 << 40)
    file = MeasuredFile(bytes(content))
    intake = Intake(Spool(tmp_path, 60), FileSummary("file"))
    reader = PerfDataReader(
        intake, ReadOptions(offset=START, start=START, cache=tmp_path), InputFile(put(tmp_path, "perf.data", content))
    )
    reader.read(file, len(content))
    assert file.most < 16 << 20


def test_unknown_records_are_counted_and_passed_over(tmp_path):
    content = perf_file(samples=50, pipe=True)
    odd = bytes.fromhex("c800000000001000") + bytes(8)
    result, recording = imported(tmp_path, put(tmp_path, "perf.data", content + odd * 3))
    assert [(each.reason, each.offset, each.count) for each in result.files[0].left_out] == [
        ("records of the unknown type 200", len(content), 3)
    ]
    assert recording.read("samples").num_rows == 50


def test_a_time_far_from_all_others_does_not_stretch_the_recording(tmp_path):
    content = bytearray(perf_file(samples=50))
    stamp = (10**9 + 7 * 10**7).to_bytes(8, "little")
    at = content.index(stamp)
    content[at : at + 8] = (10**18).to_bytes(8, "little")
    result, recording = imported(tmp_path, put(tmp_path, "perf.data", bytes(content)))
    assert sum(each.count for each in result.files[0].left_out) == 1
    assert recording.read("samples").num_rows == 49
    assert recording.span().nanos < 3 * NANOS


class Handed(Spool):
    """Keeps what was handed over: time and core of each sample, and the names in its stack."""

    def __init__(self):
        super().__init__(Path("/nonexistent"), 60)
        self.samples = []

    def add_samples(self, batch, book, comms):
        columns = (batch.time, batch.cpu, batch.stack)
        for time, cpu, place in zip(*(column.tolist() for column in columns), strict=True):
            self.samples.append((time, cpu, tuple(frame.name for frame in book.stacks[place])))

    def finish(self, book, comms):
        """Nothing is written."""


def handed(tmp_path, content):
    return handed_of(put(tmp_path, "perf.data", content))


def handed_of(path):
    spool = Handed()
    intake = Intake(spool, FileSummary("perf.data"))
    read_perf_data(InputFile(path), intake, ReadOptions(offset=0, cache=path.parent))
    assert not list(intake.left_out)
    return spool.samples


def test_compressed_samples_are_handed_over_in_the_order_of_time(tmp_path):
    # Several of the pieces that are unpacked at once, each with many rounds.
    rounds, samples = 40, 500
    times = [time for time, _, _ in handed(tmp_path, rounds_file(rounds, samples))]
    assert len(times) == 2 * rounds * samples
    assert times == sorted(times)


def test_nothing_changes_when_what_is_known_is_forgotten(tmp_path, monkeypatch):
    whole = perf_file(samples=300), rounds_file(20, 2000)
    expected = [handed(tmp_path, each) for each in whole]
    monkeypatch.setattr(stacks, "_MOST_STACKS", 0)
    assert [handed(tmp_path, each) for each in whole] == expected


def test_copied_stacks_are_counted_and_named(tmp_path):
    content = perf_file(samples=50, copied=bytes(range(64)))
    result, recording = imported(tmp_path, put(tmp_path, "perf.data", content))
    assert result.complete
    assert recording.read("samples").num_rows == 50
    (missing,) = [each for each in recording.facts.sources_missing if each.source == "user stacks"]
    assert missing.reason.startswith("those of 50 samples were copied")


def test_compiled_code_is_named_by_the_map_next_to_the_file(tmp_path):
    content = perf_file(samples=50, path=b"//anon")
    put(tmp_path, f"perf-{PID}.map", "400000 40 Interpreter\n4000f0 20 LazyCompile:*main app.js:1\nrubbish\n")
    _, recording = imported(tmp_path, put(tmp_path, "perf.data", content))
    frames = {(row["kind"], row["name"]) for row in recording.read("frames").to_pylist() if row["kind"] != "kernel"}
    assert frames == {("jit", "Interpreter"), ("jit", "LazyCompile:*main app.js:1"), ("user", "[anon]")}


def test_compiled_code_without_a_map_has_no_name(tmp_path):
    content = perf_file(samples=10, path=b"//anon")
    put(tmp_path, "perf-1.map", "400000 1000 of another process\n")
    _, recording = imported(tmp_path, put(tmp_path, "perf.data", content))
    assert {row["name"] for row in recording.read("frames").to_pylist() if row["kind"] != "kernel"} == {"[anon]"}


@pytest.mark.root
@pytest.mark.parametrize("place", ["next to the file", "/tmp"])
@pytest.mark.parametrize("owner", ["root", "the user", "another", "another, by a link"])
def test_a_map_of_another_user_is_not_used(tmp_path, monkeypatch, place, owner):
    # As if it was recorded here.
    monkeypatch.setattr(platform, "node", lambda: "elsewhere")
    monkeypatch.setattr(platform, "release", lambda: "5.4.0")
    user, others, directory = 12345, tmp_path / "tmp", tmp_path / "own"
    for each in (others, directory):
        each.mkdir()
    monkeypatch.setattr(symbols, "_TMP", others)
    data = put(others if place == "next to the file" else directory, "perf.data", perf_file(samples=10, path=b"//anon"))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    os.chown(data, user, -1)
    map_ = put(others, "real" if owner.endswith("link") else f"perf-{PID}.map", "400000 1000 Interpreter\n")
    os.chown(map_, {"the user": user, "another": user + 1}.get(owner, 0), -1)
    if owner.endswith("link"):
        (others / f"perf-{PID}.map").symlink_to(map_)
    names = {name for _, _, stack in handed_of(data) for name in stack}
    assert ("Interpreter" in names) == (not owner.startswith("another"))
    assert ("[anon]" in names) == owner.startswith("another")


@pytest.mark.root
def test_a_map_of_the_recordings_owner_is_used(tmp_path):
    data = put(tmp_path, "perf.data", perf_file(samples=10, path=b"//anon"))
    for each in (data, put(tmp_path, f"perf-{PID}.map", "400000 1000 Interpreter\n")):
        os.chown(each, 12345, -1)
    assert "Interpreter" in {name for _, _, stack in handed_of(data) for name in stack}


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5)))
def test_distinct_values(values):
    found = distinct(np.array(values, np.uint64))
    assert found.values.tolist() == list(dict.fromkeys(values))
    assert [values[place] for place in found.first.tolist()] == found.values.tolist()
    assert found.first.tolist() == [values.index(value) for value in found.values.tolist()]
    assert found.values[found.which].tolist() == values
