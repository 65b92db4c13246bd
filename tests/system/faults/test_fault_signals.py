"""However a recorder is asked to stop, it seals what it has and says so; what watches it may leave at any time."""

import os
import pty
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.system.faults.recorder_process import (
    PATIENCE_S,
    PROGRAM,
    RecorderProcess,
    anchor_count,
    clean_words,
    fill,
    until,
    until_rows_are_dropped,
)

from exhume.store.read.recording import Recording

pytestmark = pytest.mark.root

Start = Callable[..., RecorderProcess]

SIGTERM_S = 5.0
HOUR_S = 3600


def held(recorder: RecorderProcess, start: Start) -> None:
    recorder.send(signal.SIGSTOP)
    time.sleep(0.5)


def clock_set(recorder: RecorderProcess, start: Start) -> None:
    """An hour ahead, and in the next second an hour back."""
    for ahead in (HOUR_S, -HOUR_S):
        clock_of(recorder).write_text(str(ahead))
        recorder.ticks(1)


def disk_full(recorder: RecorderProcess, start: Start) -> None:
    fill(recorder.directory.parent)
    until_rows_are_dropped(recorder)


def disk_read_only(recorder: RecorderProcess, start: Start) -> None:
    subprocess.run(["mount", "-o", "remount,abort", str(recorder.directory.parent)], check=True)


def directory_removed(recorder: RecorderProcess, start: Start) -> None:
    # Aside first: it makes files meanwhile, also in what was just found empty.
    shutil.rmtree(recorder.directory.rename(recorder.directory.with_name("removed")))


def second_recorder(recorder: RecorderProcess, start: Start) -> None:
    assert start(recorder.directory).wait() == 2


def one_killed_before(recorder: RecorderProcess, start: Start) -> RecorderProcess:
    recorder.kill()
    # It still seals what the other left.
    return start(recorder.directory).recording()


def clock_of(recorder: RecorderProcess) -> Path:
    """The file that sets its wall clock."""
    return recorder.directory.parent.with_name("clock")


@pytest.mark.paced
@pytest.mark.slow
@pytest.mark.needs("gcc")
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (held, 0),
        (clock_set, 0),
        (disk_full, 0),
        (second_recorder, 0),
        (one_killed_before, 0),
        (disk_read_only, 2),
        (directory_removed, 2),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_sigterm_ends_it_within_seconds_whatever_is_wrong(
    start: Start,
    compiled: Callable[..., Path],
    request: pytest.FixtureRequest,
    fault: Callable[[RecorderProcess, Start], RecorderProcess | None],
    code: int,
) -> None:
    disk = request.getfixturevalue("ext4_disk" if fault is disk_read_only else "small_disk")
    directory = disk / "recording"
    clock, preload = disk.with_name("clock"), compiled("wrong_clock", "-shared", "-fPIC")
    recorder = start(directory, under=["env", f"LD_PRELOAD={preload}", f"WRONG_CLOCK={clock}"]).ticks(1)
    recorder = fault(recorder, start) or recorder
    recorder.send(signal.SIGTERM)
    recorder.send(signal.SIGCONT)
    assert recorder.wait(SIGTERM_S) == code, recorder.err
    clean_words(recorder)
    if directory.exists():
        assert anchor_count(directory) >= 1


def sealed_whole(directory: Path) -> bool:
    segments = Recording.open(directory).segments
    return bool(segments) and all(segment.sealed for segment in segments)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_signal_seals_and_summarises(tmp_path: Path, start: Start, number: signal.Signals) -> None:
    recorder = start(tmp_path / "recording").ticks(2)
    assert recorder.stop(number) == 0
    clean_words(recorder)
    assert sealed_whole(recorder.directory)
    last = recorder.out.splitlines()[-4:]
    assert [line.split()[0] for line in last] == ["recorded", "lost:", "cost:", "next:"]


def test_impatient_signals_change_nothing(tmp_path: Path, start: Start) -> None:
    recorder = start(tmp_path / "recording").ticks(2)
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        recorder.send(number)
    assert recorder.wait() == 0
    clean_words(recorder)
    assert sealed_whole(recorder.directory)


def test_under_nohup_a_closed_terminal_changes_nothing(tmp_path: Path, start: Start) -> None:
    recorder = start(tmp_path / "recording", under=["nohup"]).ticks(1)
    recorder.send(signal.SIGHUP)
    recorder.ticks(2)
    assert recorder.stop() == 0


def test_a_terminal_that_is_closed_seals(tmp_path: Path) -> None:
    directory = tmp_path / "recording"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(PROGRAM, [PROGRAM, "record", "--dir", str(directory)])
    try:
        # What it draws has to be read, or it waits for us.
        while anchor_count(directory) < 2:
            os.read(terminal, 65536)
    finally:
        os.close(terminal)
        ended: list[int] = []

        def has_ended() -> bool:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                ended.append(os.waitstatus_to_exitcode(status))
            return bool(found)

        try:
            until("the recorder ends with its terminal", has_ended)
        except AssertionError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
    assert ended == [0]
    assert sealed_whole(directory)


def test_a_reader_that_leaves_does_not_stop_the_recording(tmp_path: Path, start: Start) -> None:
    reader, writer = os.pipe()
    recorder = start(tmp_path / "recording", stdout=writer)
    os.close(writer)
    assert os.read(reader, 4096).startswith(b"recording into")
    os.close(reader)
    until("the recording goes on", lambda: anchor_count(recorder.directory) >= 3)
    assert recorder.stop() == 0
    clean_words(recorder)
    assert sealed_whole(recorder.directory)


def test_a_full_disk_under_the_log_does_not_stop_the_recording(tmp_path: Path, start: Start) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    recorder = start(tmp_path / "recording", stdout=full)
    os.close(full)
    until("the recording goes on", lambda: anchor_count(recorder.directory) >= 3)
    assert recorder.stop() == 0
    clean_words(recorder)
    assert sealed_whole(recorder.directory)


def test_bare_exhume_is_stopped_alike(tmp_path: Path) -> None:
    directory = tmp_path / "recording"
    process = subprocess.Popen(
        [PROGRAM], env={**os.environ, "EXHUME_DIR": str(directory)}, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        until("the recording begins", lambda: (directory / "live").exists() and anchor_count(directory) >= 1)
        process.terminate()
        assert process.wait(timeout=PATIENCE_S) == 0
    finally:
        process.kill()
        process.communicate()
    assert sealed_whole(directory)
