"""A recorder that dies at any moment leaves a recording that can be read, and takes nothing sealed with it."""

import errno
import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.store_rows import MONO, OFFSET, cpu_rows, recorder, tick_at
from tests.store.write.crash_recorder import SAMPLES, TICKS_A_RUN

from exhume.model.clock import NANOS, Window
from exhume.store.read.recording import Recording
from exhume.store.write import seal as seal_module
from exhume.store.write import seal_process, sealer

KILLS = 50
# How often something has to be sealed between two looks of a reader.
SEALINGS = 10


class Victims:
    """Recorders, one after the other, that can be killed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.write.crash_recorder"],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def start(self, run: int) -> int:
        """Start a recorder; returns its pid."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self._directory} {run}\n")
        return next(int(line.split()[1]) for line in self._lines() if line.startswith("pid"))

    def committed(self) -> int:
        """The next tick that the recorder says it has committed."""
        return int(next(self._lines()))

    def kill(self, pid: int) -> int | None:
        """Kill it; returns the last tick that it said it had committed, if there was one that was not read yet."""
        os.kill(pid, signal.SIGKILL)
        last = None
        for line in self._lines():
            if line == "dead":
                break
            last = int(line)
        return last

    def _lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            yield line.strip()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


@pytest.fixture
def victims(tmp_path: Path) -> Iterator[Victims]:
    found = Victims(tmp_path / "recording")
    yield found
    found.close()


def sealed_files(directory: Path) -> dict[Path, str]:
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.glob("2*/*.parquet")}


def ticks_in(recording: Recording, table: str, window: Window | None = None) -> list[int]:
    column = "time" if table == "cpu" else "time_ms"
    scale = NANOS if table == "cpu" else 1000
    times = recording.read(table, window, [column]).column(column).to_pylist()
    return sorted((time - MONO * scale // NANOS) // scale for time in times)


def run_window(run: int) -> Window:
    since = MONO + run * TICKS_A_RUN * NANOS + OFFSET
    return Window(since, since + TICKS_A_RUN * NANOS)


@pytest.mark.slow
def test_killed_fifty_times_at_random(tmp_path: Path, victims: Victims) -> None:
    chance = random.Random(20260714)
    directory = tmp_path / "recording"
    sealed: dict[Path, str] = {}
    for run in range(KILLS):
        pid = victims.start(run)
        last = victims.committed()
        time.sleep(chance.uniform(0, 0.12))
        last = victims.kill(pid) or last

        recording = Recording.open(directory)
        # Every tick that was committed is there once, with all of its rows; at most the one in the making is not.
        cpu = ticks_in(recording, "cpu", run_window(run))
        first = run * TICKS_A_RUN
        assert cpu[0] == first
        assert last <= cpu[-1] <= last + 1
        assert cpu == sorted([*range(first, cpu[-1] + 1)] * 2)
        samples = ticks_in(recording, "samples", run_window(run))
        assert samples[-1] - last in (0, 1)
        assert len(samples) == SAMPLES * (samples[-1] - first + 1)
        assert recording.skipped == []

        after = sealed_files(directory)
        assert sealed.items() <= after.items(), "something sealed was touched"
        sealed = after

    recorder(directory).close()
    recording = Recording.open(directory)
    assert all(segment.sealed for segment in recording.segments)
    assert list((directory / "live").iterdir()) == []
    profile = recording.profile(recording.span() or Window(0, 0))
    assert profile.frames.names == ["spin"]
    assert len(recording.gaps(recording.span() or Window(0, 0))) == KILLS - 1
    assert sealed.items() <= sealed_files(directory).items()


@pytest.mark.slow
def test_reading_while_it_is_being_recorded(tmp_path: Path, victims: Victims) -> None:
    """Segments are sealed under the reader's hands: no row is missing, none comes twice."""
    directory = tmp_path / "recording"
    pid = victims.start(0)
    last = victims.committed()
    sealings: set[int] = set()
    deadline = time.monotonic() + 60
    while len(sealings) <= SEALINGS and time.monotonic() < deadline:
        recording = Recording.open(directory)
        time.sleep(0.01)
        found = ticks_in(recording, "cpu")
        assert found == sorted([*range(found[-1] + 1)] * 2)
        assert found[-1] >= last
        profile = recording.profile(recording.span() or Window(0, 0))
        assert profile.frames.names == ["spin"]
        sealings.add(sum(segment.sealed for segment in recording.segments))
        last = victims.committed()
    assert len(sealings) > SEALINGS, "the recorder sealed nothing while it was read"
    victims.kill(pid)


def recording_with_leftovers(directory: Path, count: int) -> Path:
    """What so many recorders left that were killed, five ticks each."""
    writer = recorder(directory, segment_s=5)
    with pytest.MonkeyPatch.context() as no_sealing:
        no_sealing.setattr(sealer, "seal", lambda *_: None)
        for index in range(5 * count):
            writer.append("cpu", cpu_rows(tick_at(index)))
            writer.commit(tick_at(index))
        writer.close()
    return directory


def live_segments(directory: Path) -> int:
    return len(list((directory / "live").glob("2*")))


def test_what_killed_recorders_left_does_not_delay_the_end(tmp_path: Path) -> None:
    directory = recording_with_leftovers(tmp_path / "recording", 3)
    writer = recorder(directory, leftovers_s=0.0)
    writer.append("cpu", cpu_rows(tick_at(100)))
    writer.commit(tick_at(100))
    writer.close()
    assert [segment.sealed for segment in Recording.open(directory).segments] == [False, False, False, True]
    assert live_segments(directory) == 3, "nothing is left half sealed"
    recorder(directory).close()
    assert live_segments(directory) == 0
    assert ticks_in(Recording.open(directory), "cpu") == sorted([*range(15), 100] * 2)


def test_a_leftover_that_can_not_be_sealed_does_not_delay_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = recording_with_leftovers(tmp_path / "recording", 1)
    hangs = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(seal_process, "isolated_python", lambda *_: hangs)
    writer = recorder(directory, leftovers_s=0.2)
    writer.commit(tick_at(100))
    began = time.monotonic()
    writer.close()
    assert time.monotonic() - began < 60
    assert live_segments(directory) == 1
    assert Recording.open(directory).read("anchors").num_rows == 6


def test_live_files_are_synced_within_seconds_and_not_by_the_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a power cut leaves is what was synced: every table of the live segment, in another thread than the ticks."""
    synced: dict[str, int] = {}
    threads: set[int] = set()
    both = threading.Event()

    def sync(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        synced[path.name] = path.stat().st_size
        threads.add(threading.get_ident())
        if {"cpu.arrows", "anchors.arrows"} <= synced.keys():
            both.set()

    monkeypatch.setattr(sealer, "SYNC_S", 0.05)
    monkeypatch.setattr(os, "fdatasync", sync)
    writer = recorder(tmp_path)
    tick = tick_at(0)
    writer.append("cpu", cpu_rows(tick))
    writer.commit(tick)
    live = next(tmp_path.glob("live/2*"))
    assert both.wait(30)
    assert synced == {file.name: file.stat().st_size for file in live.iterdir()}
    assert threading.get_ident() not in threads
    # What did not grow since is not synced again.
    synced.clear()
    both.clear()
    tick = tick_at(1)
    writer.append("cpu", cpu_rows(tick))
    writer.append("softnet", {"time": [tick.start], "cpu": [0], "processed": [1], "dropped": [0], "squeezed": [0]})
    writer.commit(tick)
    assert both.wait(30)
    synced.clear()
    writer.commit(tick_at(2))
    deadline = time.monotonic() + 30
    while "anchors.arrows" not in synced and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    assert synced == {"anchors.arrows": (live / "anchors.arrows").stat().st_size}
    writer.close()


def test_all_live_files_are_being_written_before_the_first_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commit of a journal then covers all of them."""
    calls: list[tuple[str, str]] = []

    def note(call: str, fd: int) -> None:
        calls.append((call, Path(f"/proc/self/fd/{fd}").readlink().name))

    monkeypatch.setattr(sealer, "SYNC_S", 3600)
    monkeypatch.setattr(seal_module, "_start_writing", lambda fd, *_: note("start", fd))
    monkeypatch.setattr(os, "fdatasync", lambda fd: note("sync", fd))
    writer = recorder(tmp_path)
    tick = tick_at(0)
    writer.append("cpu", cpu_rows(tick))
    writer.commit(tick)
    writer._sealer._sync_live()
    assert [call for call, _ in calls] == ["start", "start", "sync", "sync"]
    assert {name for _, name in calls[:2]} == {name for _, name in calls[2:]} == {"anchors.arrows", "cpu.arrows"}
    writer.close()


def test_a_file_is_synced_without_a_way_to_start_writing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(sealer, "SYNC_S", 3600)
    monkeypatch.setattr(seal_module, "_start_writing", None)
    monkeypatch.setattr(os, "fdatasync", synced.append)
    writer = recorder(tmp_path)
    writer.commit(tick_at(0))
    writer._sealer._sync_live()
    assert len(synced) == 1
    writer.close()


def test_syncing_goes_on_while_a_segment_has_no_room_to_be_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = threading.Event()
    monkeypatch.setattr(sealer, "SYNC_S", 0.05)
    writer = recorder(tmp_path, segment_s=5)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as no_room:
        no_room.setattr(sealer, "seal", full)
        for index in range(7):
            writer.commit(tick_at(index))
        no_room.setattr(os, "fdatasync", lambda _: again.set())
        assert again.wait(30)
    writer.close()
    assert Recording.open(tmp_path).read("anchors").num_rows == 7
