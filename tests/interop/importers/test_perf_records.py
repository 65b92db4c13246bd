"""perf.data byte by byte: what no perf at hand writes, on any machine."""

import pytest
from tests.interop.importers.made_up import START, imported, put
from tests.interop.importers.perf_file import perf_file

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
