"""What goes wrong around a recording: full, read-only and vanished disks, a second recorder, foreign files."""

import errno
import fcntl
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.parts import missing
from tests.store.store_rows import FACTS, cpu_rows, recorder, sample_rows, tick_at

from exhume.model.errors import DirectoryBusy, RecordingError
from exhume.model.window import Window
from exhume.store.format.schema import FACTS_KEY
from exhume.store.read.recording import Recording
from exhume.store.write.live import RESERVE_NAME
from exhume.store.write.lock import LOCK_NAME, DirectoryLock
from exhume.store.write.reserve import RESERVE_BYTES, Reserve
from exhume.store.write.writer import SegmentWriter


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        missing(f"a tmpfs to mount ({mounted.stderr.strip()})")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def record(writer: SegmentWriter, ticks: range, samples: int = 400) -> None:
    for index in ticks:
        tick = tick_at(index)
        writer.append("cpu", cpu_rows(tick, cores=1, system=index % 1000))
        writer.append(
            "samples", sample_rows(tick, [(0, i, f"c{i * 7919 % 104729}", i * 2**40) for i in range(samples)])
        )
        writer.commit(tick)


def recorded_ticks(directory: Path) -> list[int]:
    return sorted(Recording.open(directory).read("cpu", None, ["system"]).column("system").to_pylist())


@pytest.mark.root
def test_on_a_full_disk_the_oldest_goes_first(small_disk: Path) -> None:
    directory = small_disk / "recording"
    writer = recorder(directory, segment_s=5)
    record(writer, range(600))
    writer.close()
    ticks = recorded_ticks(directory)
    assert ticks[-1] == 599
    assert ticks[0] > 0, "the disk never was full: the test shows nothing"
    assert ticks == list(range(ticks[0], 600)), "the newest are all there"
    assert Recording.open(directory).losses() == []


def fill(disk: Path) -> Path:
    """Leave no free page."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))
    return ballast


@pytest.mark.root
def test_with_no_room_at_all_rows_are_dropped_and_counted_until_there_is_room(small_disk: Path) -> None:
    directory = small_disk / "recording"
    writer = recorder(directory, segment_s=5)
    # Nor in the reserve, which was given up before.
    writer._sealer._reserve.release()
    ballast = fill(small_disk)
    record(writer, range(20))
    ballast.unlink()
    record(writer, range(20, 30))
    writer.close()
    recording = Recording.open(directory)
    assert recorded_ticks(directory) == list(range(20, 30)), "it recovers by itself"
    # A row of cpu, 400 samples and an anchor a tick.
    assert [(loss.kind, loss.count) for loss in recording.losses()] == [("disk-full", 20 * 402)]
    assert recording.skipped == []


@pytest.mark.root
def test_a_disk_that_fills_up_while_recording_is_survived(small_disk: Path) -> None:
    directory = small_disk / "recording"
    writer = recorder(directory, segment_s=5)
    record(writer, range(13))
    ballast = fill(small_disk)
    record(writer, range(13, 60))
    ballast.unlink()
    record(writer, range(60, 90))
    writer.close()
    ticks = recorded_ticks(directory)
    assert set(range(60, 90)) <= set(ticks)
    assert len(ticks) == len(set(ticks))
    assert Recording.open(directory).skipped == []


def take_all_room(ballast: Path) -> None:
    """What a runaway log does: take every page that is free."""
    with ballast.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def sealed_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("2*/*"))


@pytest.mark.root
def test_who_fills_the_disk_does_not_erase_the_past(small_disk: Path) -> None:
    directory, ballast = small_disk / "recording", small_disk / "log"
    writer = recorder(directory, segment_s=5)
    record(writer, range(100), samples=40)
    writer.close()
    before = sealed_bytes(directory)
    kept = sorted(directory.glob("2*"))
    writer = recorder(directory, segment_s=5)
    for index in range(100, 150):
        take_all_room(ballast)
        record(writer, range(index, index + 1), samples=40)
    assert writer.dropped_rows() > 0
    assert sealed_bytes(directory) >= before // 2
    left = [path for path in kept if path.exists()]
    assert left == kept[-len(left) :], "the oldest go first"
    # Another wave does not halve it again.
    ballast.unlink()
    record(writer, range(150, 151), samples=40)
    for index in range(151, 170):
        take_all_room(ballast)
        record(writer, range(index, index + 1), samples=40)
    assert sealed_bytes(directory) >= before // 2
    ballast.unlink()
    writer.close()


@pytest.mark.root
def test_rows_that_were_dropped_stay_counted_when_their_segment_goes(small_disk: Path) -> None:
    directory, ballast = small_disk / "recording", small_disk / "log"
    writer = recorder(directory, segment_s=5)
    for wave in range(4):
        begin = wave * 40
        for index in range(begin, begin + 10):
            take_all_room(ballast)
            record(writer, range(index, index + 1))
        ballast.unlink()
        record(writer, range(begin + 10, begin + 40))
    # A disk that is too small for all of it: the oldest segments go, and with them the rows that count.
    record(writer, range(160, 600))
    writer.close()
    recording = Recording.open(directory)
    assert min(recorded_ticks(directory)) > 130
    counted = [loss.count for loss in recording.losses() if loss.kind == "disk-full"]
    assert sum(counted) == writer.dropped_rows() > 0
    assert recording.info().losses == {"store: disk-full": writer.dropped_rows()}


@pytest.mark.root
def test_what_is_dropped_until_the_end_is_counted_when_there_is_room_by_then(small_disk: Path) -> None:
    directory = small_disk / "recording"
    writer = recorder(directory, segment_s=5)
    record(writer, range(3))
    ballast = fill(small_disk)
    take_all_room(ballast)
    for index in range(3, 20):
        record(writer, range(index, index + 1))
        take_all_room(ballast)
    ballast.unlink()
    writer.close()
    losses = Recording.open(directory).losses()
    assert sum(loss.count for loss in losses) == writer.dropped_rows() > 0


def test_the_reserve_is_held_given_up_and_made_again(tmp_path: Path) -> None:
    reserve = Reserve(tmp_path)
    reserve.make()
    file = tmp_path / RESERVE_NAME
    assert file.stat().st_blocks * 512 >= file.stat().st_size == RESERVE_BYTES
    assert reserve.release()
    assert not file.exists()
    assert not reserve.release()
    reserve.make()
    # What a killed recorder left is held by the next one.
    assert Reserve(tmp_path).release()


def test_the_reserve_is_part_of_a_recording_and_gone_after_it(tmp_path: Path) -> None:
    writer = recorder(tmp_path, segment_s=5)
    record(writer, range(7))
    assert (tmp_path / "live" / RESERVE_NAME).stat().st_size == RESERVE_BYTES
    assert Recording.open(tmp_path).info().skipped == []
    writer.close()
    assert list((tmp_path / "live").iterdir()) == []


@pytest.mark.root
def test_a_read_only_disk_is_a_clear_error_and_can_be_read(small_disk: Path) -> None:
    directory = small_disk / "recording"
    writer = recorder(directory)
    record(writer, range(3))
    writer.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(RecordingError, match=r"read-only file system.*choose another"):
        recorder(directory)
    recording = Recording.open(directory)
    assert recording.profile(Window(0, 2**62)).samples == 1200
    assert recording.info().samples == 1200


def test_a_write_that_only_half_fits_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writev = os.writev

    def half(fd: int, messages: list[pa.Buffer]) -> int:
        content = b"".join(bytes(message) for message in messages)
        return writev(fd, [content[: len(content) // 2]])

    writer = recorder(tmp_path)
    record(writer, range(3), samples=5)
    with monkeypatch.context() as full:
        full.setattr(os, "writev", half)
        record(writer, range(3, 5), samples=5)
    record(writer, range(5, 8), samples=5)
    assert recorded_ticks(tmp_path) == [0, 1, 2, 5, 6, 7]
    writer.close()
    assert recorded_ticks(tmp_path) == [0, 1, 2, 5, 6, 7]
    assert [loss.count for loss in Recording.open(tmp_path).losses()] == [2 * 7]


def test_when_a_stack_could_not_be_told_all_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = recorder(tmp_path)
    writer.append("cpu", cpu_rows(tick_at(0)))
    with monkeypatch.context() as full:
        full.setattr(os, "writev", refuse)
        assert writer.commit(tick_at(0)) is False, "no later row leans on a core's share"
        writer.append("stacks", {"stack": [1], "frames": [[2]]})
        assert writer.commit(tick_at(1)) is True
    assert writer.commit(tick_at(2)) is False
    writer.close()


def test_a_disk_that_turns_read_only_while_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    writer = recorder(tmp_path)
    record(writer, range(3))
    with monkeypatch.context() as broken:
        broken.setattr(os, "writev", refuse)
        with pytest.raises(RecordingError, match="read-only file system"):
            record(writer, range(3, 4))
    writer.close()
    assert recorded_ticks(tmp_path) == [0, 1, 2]


def test_a_place_where_no_directory_can_be_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordingError, match=r"cannot record to .*/file is a file.*--dir"):
        recorder(tmp_path / "file" / "recording")


def test_a_vanished_directory_is_a_clear_error(tmp_path: Path) -> None:
    directory = tmp_path / "recording"
    writer = recorder(directory)
    record(writer, range(2))
    shutil.rmtree(directory)
    with pytest.raises(RecordingError, match="was deleted while it was being recorded"):
        record(writer, range(2, 3))
    with pytest.raises(RecordingError):
        writer.close()


def test_a_vanished_live_directory_is_noticed_at_the_next_tick(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    record(writer, range(2))
    shutil.rmtree(tmp_path / "live")
    with pytest.raises(RecordingError, match=r"live/.* was deleted while it was being recorded"):
        record(writer, range(2, 3))
    with pytest.raises(RecordingError):
        writer.close()


def test_a_file_in_the_place_of_the_live_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "live").touch()
    with pytest.raises(RecordingError, match=rf"{tmp_path}/live is not a directory"):
        recorder(tmp_path)
    (tmp_path / "live").unlink()
    recorder(tmp_path).close()


def test_a_second_recorder_is_refused_and_told_the_first(tmp_path: Path) -> None:
    first = recorder(tmp_path)
    with pytest.raises(DirectoryBusy, match=rf"process {os.getpid()}\b"):
        recorder(tmp_path)
    record(first, range(2))
    first.close()
    recorder(tmp_path).close()
    assert recorded_ticks(tmp_path) == [0, 1]


@pytest.fixture
def three_segments(tmp_path: Path) -> Path:
    writer = recorder(tmp_path, segment_s=10)
    record(writer, range(30), samples=5)
    writer.close()
    return tmp_path


def segment_files(directory: Path, table: str) -> list[Path]:
    return sorted(directory.glob(f"2*/{table}.parquet"))


@pytest.mark.parametrize("left", [0, 3, 100])
def test_a_truncated_file_is_named_and_the_rest_is_read(three_segments: Path, left: int) -> None:
    victim = segment_files(three_segments, "cpu")[1]
    os.truncate(victim, left)
    assert recorded_ticks(three_segments) == [*range(10), *range(20, 30)]
    recording = Recording.open(three_segments)
    assert recording.profile(Window(0, 2**62)).samples == 150
    assert [(skipped.path, skipped.reason) for skipped in recording.info().skipped] == [
        (victim, "truncated or damaged")
    ]


def test_damage_in_the_middle_is_named_too(three_segments: Path) -> None:
    victim = segment_files(three_segments, "samples")[0]
    content = bytearray(victim.read_bytes())
    content[4:200] = bytes(196)
    victim.write_bytes(content)
    recording = Recording.open(three_segments)
    profile = recording.profile(Window(0, 2**62))
    assert profile.samples == 100
    assert [skipped.path for skipped in recording.skipped] == [victim]
    assert any(str(victim) in line for line in profile.blind_spots)


def test_a_newer_format_is_named_and_the_rest_is_read(three_segments: Path) -> None:
    victim = segment_files(three_segments, "cpu")[2]
    newer = FACTS.to_json().replace('"format_version":1', '"format_version":2')
    rows = pq.read_table(victim)
    pq.write_table(rows.replace_schema_metadata({FACTS_KEY: newer}), victim)
    assert recorded_ticks(three_segments) == list(range(20))
    recording = Recording.open(three_segments)
    recording.read("cpu")
    assert [skipped.path for skipped in recording.skipped] == [victim]
    assert "format 2 is newer" in recording.skipped[0].reason


def test_foreign_files_are_named_left_alone_and_the_rest_is_read(three_segments: Path) -> None:
    segment = segment_files(three_segments, "cpu")[0].parent
    (three_segments / "notes.txt").write_text("mine")
    (three_segments / "live" / "other").mkdir()
    (segment / "readme.md").write_text("mine")
    pq.write_table(pa.table({"time": [1]}), segment / "events.parquet")
    writer = recorder(three_segments, segment_s=10, max_bytes=10**9, max_age_s=10**9)
    record(writer, range(30, 40), samples=5)
    writer.close()
    recording = Recording.open(three_segments)
    assert recording.events() == []
    found = {skipped.path: skipped.reason for skipped in recording.info().skipped}
    assert found == {
        three_segments / "notes.txt": "not part of a recording",
        three_segments / "live" / "other": "not part of a recording",
        segment / "readme.md": "not part of a recording",
        segment / "events.parquet": "not written by exhume",
    }
    assert recorded_ticks(three_segments) == list(range(40))
    assert (three_segments / "notes.txt").read_text() == "mine"


def test_a_torn_live_file_loses_only_its_tail(tmp_path: Path) -> None:
    directory, crashed = tmp_path / "recording", tmp_path / "crashed"
    writer = recorder(directory)
    record(writer, range(5), samples=5)
    for cut in (1, 40, 200):
        shutil.copytree(directory, crashed)
        victim = next(crashed.glob("live/*/cpu.arrows"))
        os.truncate(victim, victim.stat().st_size - cut)
        assert recorded_ticks(crashed) == [0, 1, 2, 3]
        recorder(crashed).close()
        assert recorded_ticks(crashed) == [0, 1, 2, 3]
        assert Recording.open(crashed).read("samples").num_rows == 25
        shutil.rmtree(crashed)
    writer.close()


def test_rows_that_do_not_fit_are_refused_at_once(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    with pytest.raises(ValueError, match="no column nonsense"):
        writer.append("cpu", {"nonsense": [1]})
    with pytest.raises(ValueError, match="differ in length"):
        writer.append("sampling", {"time": [1, 2], "cpu": [1], "busy": [1], "idle": [1], "lost": [1]})
    with pytest.raises(ValueError, match="must not be null"):
        writer.append("sampling", {"time": [1, 2], "cpu": [0, 1], "busy": [1, 2], "idle": [1, 2]})
    for cpus in ([0, 70000], [0, -1], np.array([0, 70000]), np.array([-1, 0]), ["0", "1"]):
        with pytest.raises(ValueError, match="don't fit table sampling"):
            writer.append("sampling", {"time": [1, 2], "cpu": cpus, "busy": [1, 2], "idle": [1, 2], "lost": [1, 2]})
    writer.commit(tick_at(0))
    writer.close()
    assert Recording.open(tmp_path).read("sampling").num_rows == 0


@pytest.mark.parametrize("lone", ["\udce9", "\ud800"])
@pytest.mark.parametrize("count", [1, 2])
def test_what_is_not_text_is_kept_as_well_as_text_can(tmp_path: Path, count: int, lone: str) -> None:
    """A process may call itself anything."""
    writer = recorder(tmp_path)
    tick = tick_at(0)
    writer.append("processes", {"time": [tick.start] * count, "pid": [*range(count)], "comm": ["caf" + lone] * count})
    names = np.array([b"caf\xe9"] * count)
    writer.append("samples", {**sample_rows(tick, [(0, 1, "", 1)] * count), "comm": names})
    writer.commit(tick)
    writer.close()
    recording = Recording.open(tmp_path)
    assert {name.rstrip("\ufffd") for name in recording.read("processes").column("comm").to_pylist()} == {"caf"}
    assert recording.read("samples").column("comm").to_pylist() == ["caf\ufffd"] * count


@pytest.mark.root
def test_a_segment_that_found_no_room_is_sealed_when_the_recorder_ends(small_disk: Path) -> None:
    directory = small_disk / "recording"
    writer = recorder(directory, segment_s=5)
    record(writer, range(3))
    ballast = fill(small_disk)
    # An empty tick at the boundary: the segment is complete, and there is no room to seal it.
    writer.commit(tick_at(4))
    ballast.unlink()
    writer.close()
    assert recorded_ticks(directory) == [0, 1, 2]
    assert all(segment.sealed for segment in Recording.open(directory).segments)


def test_a_reader_that_asks_in_that_instant_does_not_keep_a_recorder_out(tmp_path: Path) -> None:
    first = DirectoryLock(tmp_path)
    first.close()
    asking = os.open(tmp_path / LOCK_NAME, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    # The instant is a long one: who asks was held up in it.
    threading.Timer(0.3, os.close, (asking,)).start()
    DirectoryLock(tmp_path).close()
