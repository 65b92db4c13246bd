"""Damaged live segments: what can be decoded is kept, what can't is named, and no process dies of it."""

import random
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tests.parts import quick
from tests.store.store_rows import cpu_rows, recorder, sample_rows, tick_at

from exhume.model import isolation
from exhume.model.clock import Window
from exhume.store.format.names import DAMAGED_SUFFIX
from exhume.store.format.schema import CHECKSUM_KEY, DAMAGED
from exhume.store.read.index import SET_ASIDE
from exhume.store.read.recording import Recording
from exhume.store.write.writer import SegmentWriter

ALWAYS = Window(0, 2**62)
TICKS = 6


def record(writer: SegmentWriter, ticks: range) -> None:
    for index in ticks:
        tick = tick_at(index)
        writer.append(
            "frames", {"frame": [7 + index], "kind": ["kernel"], "module": ["[kernel]"], "name": [f"f{index}"]}
        )
        writer.append("stacks", {"stack": [index], "frames": [[7 + index]]})
        writer.append("cpu", cpu_rows(tick, system=index))
        writer.append("samples", sample_rows(tick, [(0, 1, "a", index)]))
        writer.commit(tick)


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """What a killed recorder leaves: a live segment of six ticks."""
    writer = recorder(tmp_path / "recorded")
    record(writer, range(TICKS))
    shutil.copytree(tmp_path / "recorded", tmp_path / "left")
    writer.close()
    return tmp_path / "left"


def batch_bounds(path: Path) -> list[int]:
    """Where the batches of a live file begin, and where the last one ends."""
    source = pa.BufferReader(path.read_bytes())
    stream = pa.ipc.open_stream(source)
    return [source.tell(), *(source.tell() for _ in stream)]


def live_file(directory: Path, table: str) -> Path:
    return next(directory.glob(f"live/*/{table}.arrows"))


def send_offsets_astray(path: Path, batch: int) -> None:
    """Set the end of a batch's first text, as a flipped high bit does."""
    content = bytearray(path.read_bytes())
    begin, end = batch_bounds(path)[batch : batch + 2]
    # The offsets 0, 6 of `kernel`, in the first text column.
    text = content.index(b"kernel", begin, end)
    place = content.rindex((0).to_bytes(4, "little") + (6).to_bytes(4, "little"), begin, text)
    content[place + 7] |= 0x40
    path.write_bytes(content)


def test_offsets_out_of_bounds_cost_their_batch_alone(left: Path) -> None:
    victim = live_file(left, "frames")
    send_offsets_astray(victim, 2)
    recording = Recording.open(left)
    assert recording.read("frames").column("name").to_pylist() == ["f0", "f1", "f3", "f4", "f5"]
    assert [(skipped.path, skipped.reason) for skipped in recording.damaged] == [(victim, DAMAGED)]
    profile = recording.profile(ALWAYS)
    assert profile.samples == TICKS
    assert any(str(victim) in line for line in profile.blind_spots)


def test_a_damaged_leftover_is_sealed_but_for_what_is_damaged(left: Path) -> None:
    send_offsets_astray(live_file(left, "frames"), 2)
    writer = recorder(left)
    record(writer, range(100, 101))
    writer._sealer.close()
    record(writer, range(101, 102))
    writer.close()
    recording = Recording.open(left)
    assert recording.read("frames").column("name").to_pylist() == ["f0", "f1", "f3", "f4", "f5", "f100", "f101"]
    assert recording.damaged == []
    assert [(loss.source, loss.kind, loss.count) for loss in recording.losses()] == [("store", "damaged", 1)]
    assert "frames" in recording.losses()[0].text


def test_zero_pages_of_a_power_cut_are_named(left: Path) -> None:
    victim = live_file(left, "cpu")
    bounds = batch_bounds(victim)
    content = victim.read_bytes()
    victim.write_bytes(content[: bounds[3]] + bytes(len(content) - bounds[3]))
    recording = Recording.open(left)
    assert recording.read("cpu").column("system").to_pylist() == [0, 0, 1, 1, 2, 2]
    assert [skipped.path for skipped in recording.damaged] == [victim]


@pytest.fixture
def crashing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process that seals dies of SIGSEGV at its first segment."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nread name\nkill -SEGV $$\n")
    python.chmod(0o755)
    monkeypatch.setattr(isolation, "INTERPRETER", str(python))


@pytest.mark.usefixtures("crashing")
def test_a_segment_that_crashes_its_sealing_is_set_aside(left: Path) -> None:
    live = live_file(left, "cpu").parent
    writer = recorder(left)
    record(writer, range(100, 101))
    writer._sealer.close()
    record(writer, range(101, 102))
    writer.close()
    recording = Recording.open(left)
    aside = live.with_name(live.name + DAMAGED_SUFFIX)
    assert [(skipped.path, skipped.reason) for skipped in recording.info().skipped] == [(aside, SET_ASIDE)]
    assert [(loss.kind, loss.count) for loss in recording.losses()] == [("damaged", 1)]
    assert recording.read("cpu").column("system").to_pylist() == [100, 100, 101, 101]
    # The next recorder leaves it alone.
    recorder(left).close()
    assert aside.is_dir()


@pytest.mark.usefixtures("crashing")
def test_what_was_set_aside_goes_when_its_time_comes(left: Path) -> None:
    recorder(left).close()
    assert len(list(left.glob(f"live/*{DAMAGED_SUFFIX}"))) == 1
    writer = recorder(left, segment_s=5, max_age_s=30)
    record(writer, range(100, 110))
    writer.close()
    assert list((left / "live").iterdir()) == []


def test_a_process_that_is_killed_from_outside_costs_no_segment(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nread name\nkill -KILL $$\n")
    python.chmod(0o755)
    with monkeypatch.context() as killed:
        killed.setattr(isolation, "INTERPRETER", str(python))
        recorder(left).close()
    assert len(Recording.open(left).read("anchors")) == TICKS
    recorder(left).close()
    recording = Recording.open(left)
    assert all(segment.sealed for segment in recording.segments)
    assert len(recording.read("anchors")) == TICKS


def test_nothing_that_can_be_decoded_is_set_aside_too(left: Path) -> None:
    live = live_file(left, "cpu").parent
    for file in live.iterdir():
        file.write_bytes(random.Random(1).randbytes(4096))
    recorder(left).close()
    assert [skipped.reason for skipped in Recording.open(left).damaged] == [SET_ASIDE]


def test_a_flipped_bit_in_a_page_is_named(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    record(writer, range(TICKS))
    writer.close()
    victim = next(tmp_path.glob("2*/cpu.parquet"))
    whole, wanted = victim.read_bytes(), Recording.open(tmp_path).read("cpu")
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    named = 0
    for place in range(4, len(whole) - footer, 11):
        content = bytearray(whole)
        content[place] ^= 1 << place % 8
        victim.write_bytes(content)
        recording = Recording.open(tmp_path)
        if not recording.read("cpu").equals(wanted):
            assert [(skipped.path, skipped.reason) for skipped in recording.damaged] == [(victim, DAMAGED)]
            named += 1
    assert named > 20


def test_a_flipped_bit_in_a_live_file_costs_its_message_and_is_named(left: Path) -> None:
    victim = live_file(left, "cpu")
    whole, bounds = victim.read_bytes(), batch_bounds(victim)
    wanted = Recording.open(left).read("cpu").column("system").to_pylist()
    for place in range(0, bounds[-2], 19 if quick() else 5):
        content = bytearray(whole)
        content[place] ^= 1 << place % 8
        victim.write_bytes(content)
        recording = Recording.open(left)
        found = recording.read("cpu").column("system").to_pylist()
        # The first message is the schema, without which no row can be read.
        hit = sum(bound <= place for bound in bounds) - 1
        assert found == ([] if hit < 0 else wanted[: 2 * hit] + wanted[2 * hit + 2 :]), place
        assert [(skipped.path, skipped.reason) for skipped in recording.damaged] == [(victim, DAMAGED)]


def test_a_flipped_bit_in_a_live_file_is_a_loss_when_it_is_sealed(left: Path) -> None:
    victim = live_file(left, "cpu")
    content = bytearray(victim.read_bytes())
    content[batch_bounds(victim)[3] - 1] ^= 1
    content[batch_bounds(victim)[4] + 4] ^= 1
    victim.write_bytes(content)
    recorder(left).close()
    recording = Recording.open(left)
    assert recording.read("cpu").column("system").to_pylist() == [0, 0, 1, 1, 3, 3, 5, 5]


def test_live_files_of_earlier_versions_have_no_checksums_and_are_read(left: Path) -> None:
    victim = live_file(left, "cpu")
    wanted = Recording.open(left).read("cpu")
    stream = pa.ipc.open_stream(victim.read_bytes())
    metadata = {key: value for key, value in stream.schema.metadata.items() if key != CHECKSUM_KEY}
    messages = [stream.schema.with_metadata(metadata).serialize(), *(batch.serialize() for batch in stream)]
    victim.write_bytes(b"".join(message.to_pybytes() for message in messages))
    recording = Recording.open(left)
    assert recording.read("cpu").equals(wanted)
    assert recording.damaged == []


def test_a_schema_that_hides_the_checksums_is_damaged(left: Path) -> None:
    victim = live_file(left, "cpu")
    content = victim.read_bytes()
    victim.write_bytes(content.replace(CHECKSUM_KEY, CHECKSUM_KEY[:-1] + b"n", 1))
    recording = Recording.open(left)
    assert recording.read("cpu").num_rows == 0
    assert [skipped.path for skipped in recording.damaged] == [victim]


def test_the_search_for_the_next_message_is_bounded(left: Path) -> None:
    victim = live_file(left, "cpu")
    content, bounds = victim.read_bytes(), batch_bounds(victim)
    # What looks like the beginning of a message of 2 MiB, again and again.
    false_head = b"\xff\xff\xff\xff" + (32).to_bytes(4, "little") + CHECKSUM_KEY.ljust(32, b"\0")
    victim.write_bytes(content[: bounds[2]] + false_head * 50_000)
    began = time.monotonic()
    recording = Recording.open(left)
    assert recording.read("cpu").column("system").to_pylist() == [0, 0, 1, 1]
    assert [skipped.path for skipped in recording.damaged] == [victim]
    assert time.monotonic() - began < 5
