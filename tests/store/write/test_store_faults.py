"""What goes wrong around a recording: full, read-only and vanished disks, a second recorder, foreign files."""

import errno
import fcntl
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.store.store_rows import FACTS, record_noise, recorded_ticks, recorder, sample_rows, tick_at

from exhume.model.clock import Window
from exhume.model.errors import DirectoryBusy, RecordingError
from exhume.store.format.names import LOCK_NAME
from exhume.store.format.schema import FACTS_KEY
from exhume.store.read.recording import Recording
from exhume.store.write import sealer
from exhume.store.write.lock import DirectoryLock
from exhume.store.write.retention import Reserve


@pytest.mark.root
def test_a_read_only_disk_is_a_clear_error_and_can_be_read(small_disk: Path) -> None:
    directory = small_disk / "recording"
    writer = recorder(directory)
    record_noise(writer, range(3))
    writer.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(RecordingError, match=r"read-only file system.*choose another"):
        recorder(directory)
    recording = Recording.open(directory)
    assert recording.profile(Window(0, 2**62)).samples == 1200
    assert recording.info().samples == 1200


def test_a_disk_that_turns_read_only_while_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    writer = recorder(tmp_path)
    record_noise(writer, range(3))
    with monkeypatch.context() as broken:
        broken.setattr(os, "writev", refuse)
        with pytest.raises(RecordingError, match="read-only file system"):
            record_noise(writer, range(3, 4))
    writer.close()
    assert recorded_ticks(tmp_path) == [0, 1, 2]


def test_a_disk_that_turns_read_only_before_the_end_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    writer = recorder(tmp_path)
    record_noise(writer, range(3))
    monkeypatch.setattr(Reserve, "release", refuse)
    with pytest.raises(RecordingError, match="read-only file system"):
        writer.close()
    assert recorded_ticks(tmp_path) == [0, 1, 2]


def test_rows_dropped_in_the_last_tick_are_counted_though_its_segment_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room_for_frames(fd: int, buffers: list[bytes], writev: Callable[..., int] = os.writev) -> int:
        if Path(f"/proc/self/fd/{fd}").readlink().name == "frames.arrows":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return writev(fd, buffers)

    monkeypatch.setattr(os, "writev", no_room_for_frames)
    writer = recorder(tmp_path)
    writer.append("frames", {"frame": [7], "kind": ["kernel"], "module": ["[kernel]"], "name": ["spin"]})
    record_noise(writer, range(1))
    writer.close()
    recording = Recording.open(tmp_path)
    assert [(loss.kind, loss.count) for loss in recording.losses()] == [("disk-full", 1)]
    assert recorded_ticks(tmp_path) == [0]
    assert all(segment.sealed for segment in recording.segments)


def test_a_disk_that_stays_full_does_not_cost_the_segment_that_waits_to_be_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = recorder(tmp_path)
    record_noise(writer, range(3))
    with monkeypatch.context() as no_room:
        no_room.setattr(os, "writev", full)
        no_room.setattr(sealer, "seal", full)
        for index in range(3, 8):
            # Without its names the segment ends.
            writer.append("frames", {"frame": [7], "kind": ["kernel"], "module": ["[kernel]"], "name": ["spin"]})
            record_noise(writer, range(index, index + 1), samples=1)
    writer.close()
    assert recorded_ticks(tmp_path) == [0, 1, 2]
    assert [(loss.kind, loss.count) for loss in Recording.open(tmp_path).losses()] == [("disk-full", 5 * 4)]
    assert list((tmp_path / "live").iterdir()) == []


def test_a_place_where_no_directory_can_be_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordingError, match=r"cannot record to .*/file is a file.*--dir"):
        recorder(tmp_path / "file" / "recording")


def test_a_vanished_directory_is_a_clear_error(tmp_path: Path) -> None:
    directory = tmp_path / "recording"
    writer = recorder(directory)
    record_noise(writer, range(2))
    shutil.rmtree(directory)
    with pytest.raises(RecordingError, match="was deleted while it was being recorded"):
        record_noise(writer, range(2, 3))
    with pytest.raises(RecordingError):
        writer.close()


def test_a_vanished_live_directory_is_noticed_at_the_next_tick(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    record_noise(writer, range(2))
    shutil.rmtree(tmp_path / "live")
    with pytest.raises(RecordingError, match=r"live/.* was deleted while it was being recorded"):
        record_noise(writer, range(2, 3))
    with pytest.raises(RecordingError):
        writer.close()


def test_a_file_in_the_place_of_the_live_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "live").touch()
    with pytest.raises(RecordingError, match=rf"{tmp_path}/live is not a directory"):
        recorder(tmp_path)
    (tmp_path / "live").unlink()
    recorder(tmp_path).close()


def test_a_second_recorder_is_refused_and_names_the_first(tmp_path: Path) -> None:
    first = recorder(tmp_path)
    with pytest.raises(DirectoryBusy, match=rf"process {os.getpid()}\b"):
        recorder(tmp_path)
    record_noise(first, range(2))
    first.close()
    recorder(tmp_path).close()
    assert recorded_ticks(tmp_path) == [0, 1]


@pytest.fixture
def three_segments(tmp_path: Path) -> Path:
    writer = recorder(tmp_path, segment_s=10)
    record_noise(writer, range(30), samples=5)
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
    record_noise(writer, range(30, 40), samples=5)
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
    record_noise(writer, range(5), samples=5)
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
    for cpus in ([0, 70000], [0, -1], np.array([0, 70000]), np.array([-1, 0]), np.array([0, 1.5]), ["0", "1"]):
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


def test_a_reader_that_asks_in_that_instant_does_not_keep_a_recorder_out(tmp_path: Path) -> None:
    first = DirectoryLock(tmp_path)
    first.close()
    asking = os.open(tmp_path / LOCK_NAME, os.O_RDONLY)
    fcntl.flock(asking, fcntl.LOCK_SH)
    # The instant is a long one: who asks was held up in it.
    threading.Timer(0.3, os.close, (asking,)).start()
    DirectoryLock(tmp_path).close()
