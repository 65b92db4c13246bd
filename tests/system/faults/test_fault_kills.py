"""The recorder killed without warning, fifty times: what is recorded can be read, and what is sealed stays as it is."""

import hashlib
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import pytest
from tests.system.faults.recorder_process import (
    RecorderProcess,
    anchor_count,
    clean_words,
    monotonic,
    rows,
    seconds,
    until,
)

from exhume.store.read.recording import Recording

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.alone]

DIRECTORIES = 5
KILLS = 10
# What the recorder itself may lose. Five of them share the cores here: for the time in which others had them it can do
# nothing, and on a machine that is slow each turn takes longer.
GONE_AT_MOST_S = 2.0
LOOK_S = 0.05
# Whatever the machine's pace, the first is killed before its first tick is over, the last after its second.
AT_ONCE, AFTER_TWO_TICKS = 0, KILLS - 1


@dataclass
class Killed:
    """What became of one directory."""

    kills: int = 0
    ticks_at_kill: list[int] = field(default_factory=list)
    # Seconds that were lost, of those in which it did not have to wait for a core.
    gone: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Look:
    """Nanoseconds until a moment in which a recorder had to wait for a core; and in which it did or worked."""

    at: int
    waited: int
    busy: int


class Looks:
    """What a recorder did from any moment on."""

    def __init__(self, recorder: RecorderProcess) -> None:
        self._recorder = recorder
        self._looks: list[Look] = []
        self.take()

    def take(self) -> None:
        self._looks.append(Look(monotonic(), self._recorder.kept_waiting, self._recorder.kept_busy))

    def look_for(self, length: float) -> None:
        end = time.monotonic() + length
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left))
            self.take()

    def until_ticks(self, count: int) -> None:
        def ticked() -> bool:
            self.take()
            return anchor_count(self._recorder.directory, began) >= count

        began = monotonic()
        until(f"{count} ticks", ticked, every=LOOK_S)

    def since(self, moment: int) -> Look:
        before, last = ([look for look in self._looks if look.at <= moment] or self._looks[:1])[-1], self._looks[-1]
        return Look(last.at - before.at, last.waited - before.waited, last.busy - before.busy)


def sealed_files(directory: Path) -> dict[Path, str]:
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.glob("2*/*.parquet")}


def anchors(directory: Path) -> list[int]:
    return [row["time"] for row in rows(directory, "anchors")]


def kill_again_and_again(directory: Path, start: Callable[..., RecorderProcess], chance: random.Random) -> Killed:
    told = Killed()
    sealed: dict[Path, str] = {}
    for number in range(KILLS):
        began = monotonic()
        recorder = start(directory)
        recording_since = None
        # Some die while they start (and seal what the one before left), most while they record.
        if number in (AT_ONCE, AFTER_TWO_TICKS) or chance.random() < 0.7:
            recorder.recording()
            recording_since = monotonic()
        looks = Looks(recorder)
        if number == AFTER_TWO_TICKS:
            looks.until_ticks(2)
        elif number != AT_ONCE:
            looks.look_for(chance.uniform(0.0, 2.5))
        looks.take()
        assert not recorder.ended, recorder.err
        killed_at = monotonic()
        recorder.send(signal.SIGKILL)
        recorder.wait()
        clean_words(recorder)
        told.kills += 1
        if directory.exists() and (directory / "recorder.lock").exists():
            of_this_run = [time for time in anchors(directory) if time >= began]
            told.ticks_at_kill.append(len(of_this_run))
            assert Recording.open(directory).skipped == []
        else:
            of_this_run = []
        if recording_since is not None:
            last = of_this_run[-1] if of_this_run else recording_since
            since = looks.since(last)
            assert seconds(killed_at - last - since.busy) <= GONE_AT_MOST_S
            told.gone.append(seconds(killed_at - last - since.waited))
        now = sealed_files(directory)
        assert sealed.items() <= now.items(), "something that was sealed has changed"
        sealed = now
    return told


def record_once_more(directory: Path, start: Callable[..., RecorderProcess]) -> None:
    """A recorder that ends well after all those that were killed."""
    before = anchors(directory)
    sealed = sealed_files(directory)
    recorder = start(directory).ticks(1)
    assert recorder.stop() == 0, recorder.err
    clean_words(recorder)
    assert before == anchors(directory)[: len(before)], "what could be read after a kill is still there"
    assert sealed.items() <= sealed_files(directory).items()
    recording = Recording.open(directory)
    assert all(segment.sealed for segment in recording.segments)
    assert list((directory / "live").iterdir()) == []
    assert recording.info().skipped == []
    stacks = set(recording.read("stacks").column("stack").to_pylist())
    assert set(recording.read("samples").column("stack").to_pylist()) <= stacks, "every sample has its stack"


def test_killed_fifty_times_at_random(tmp_path: Path, start: Callable[..., RecorderProcess]) -> None:
    lock = threading.Lock()

    def start_one(directory: Path) -> RecorderProcess:
        with lock:
            return start(directory)

    directories = [tmp_path / f"recording-{number}" for number in range(DIRECTORIES)]
    with ThreadPoolExecutor(DIRECTORIES) as pool:
        work = [
            pool.submit(kill_again_and_again, directory, start_one, random.Random(seed))
            for seed, directory in enumerate(directories)
        ]
        told = [each.result() for each in work]
        for after in [pool.submit(record_once_more, directory, start_one) for directory in directories]:
            after.result()
    assert sum(each.kills for each in told) == DIRECTORIES * KILLS
    gone = sorted(lost for each in told for lost in each.gone)
    print("lost, in seconds: " + " ".join(f"{lost:.1f}" for lost in gone))
    assert median(gone) <= GONE_AT_MOST_S
    # Of some the first tick was not over, others had some: both sides were met.
    counts = [count for each in told for count in each.ticks_at_kill]
    assert 0 in counts
    assert max(counts) >= 2
