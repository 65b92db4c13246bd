"""A full disk: what goes, what stays, what is counted."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from tests.store.store_rows import cpu_rows, record_noise, recorded_ticks, recorder, tick_at

from exhume.store.format.names import RESERVE_NAME
from exhume.store.read.recording import Recording
from exhume.store.write.retention import RESERVE_BYTES, Reserve


@pytest.mark.root
def test_on_a_full_disk_the_oldest_goes_first(small_disk: Path) -> None:
    directory = small_disk / "recording"
    writer = recorder(directory, segment_s=5)
    record_noise(writer, range(600))
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
    record_noise(writer, range(20))
    ballast.unlink()
    record_noise(writer, range(20, 30))
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
    record_noise(writer, range(13))
    ballast = fill(small_disk)
    record_noise(writer, range(13, 60))
    ballast.unlink()
    record_noise(writer, range(60, 90))
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
    record_noise(writer, range(100), samples=40)
    writer.close()
    before = sealed_bytes(directory)
    kept = sorted(directory.glob("2*"))
    writer = recorder(directory, segment_s=5)
    for index in range(100, 150):
        take_all_room(ballast)
        record_noise(writer, range(index, index + 1), samples=40)
    assert writer.dropped_rows() > 0
    assert sealed_bytes(directory) >= before // 2
    left = [path for path in kept if path.exists()]
    assert left == kept[-len(left) :], "the oldest go first"
    # Another wave does not halve it again.
    ballast.unlink()
    record_noise(writer, range(150, 151), samples=40)
    for index in range(151, 170):
        take_all_room(ballast)
        record_noise(writer, range(index, index + 1), samples=40)
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
            record_noise(writer, range(index, index + 1))
        ballast.unlink()
        record_noise(writer, range(begin + 10, begin + 40))
    # A disk that is too small for all of it: the oldest segments go, and with them the rows that count.
    record_noise(writer, range(160, 600))
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
    record_noise(writer, range(3))
    ballast = fill(small_disk)
    take_all_room(ballast)
    for index in range(3, 20):
        record_noise(writer, range(index, index + 1))
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
    record_noise(writer, range(7))
    assert (tmp_path / "live" / RESERVE_NAME).stat().st_size == RESERVE_BYTES
    assert Recording.open(tmp_path).info().skipped == []
    writer.close()
    assert list((tmp_path / "live").iterdir()) == []


def test_a_write_that_only_half_fits_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writev = os.writev

    def half(fd: int, messages: list[pa.Buffer]) -> int:
        content = b"".join(bytes(message) for message in messages)
        return writev(fd, [content[: len(content) // 2]])

    writer = recorder(tmp_path)
    record_noise(writer, range(3), samples=5)
    with monkeypatch.context() as full:
        full.setattr(os, "writev", half)
        record_noise(writer, range(3, 5), samples=5)
    record_noise(writer, range(5, 8), samples=5)
    assert recorded_ticks(tmp_path) == [0, 1, 2, 5, 6, 7]
    writer.close()
    assert recorded_ticks(tmp_path) == [0, 1, 2, 5, 6, 7]
    assert [loss.count for loss in Recording.open(tmp_path).losses()] == [2 * 7]


def test_when_a_stack_could_not_be_written_all_are_requested_again(
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


@pytest.mark.root
def test_a_segment_that_found_no_room_is_sealed_when_the_recorder_ends(small_disk: Path) -> None:
    directory = small_disk / "recording"
    writer = recorder(directory, segment_s=5)
    record_noise(writer, range(3))
    ballast = fill(small_disk)
    # An empty tick at the boundary: the segment is complete, and there is no room to seal it.
    writer.commit(tick_at(4))
    ballast.unlink()
    writer.close()
    assert recorded_ticks(directory) == [0, 1, 2]
    assert all(segment.sealed for segment in Recording.open(directory).segments)
