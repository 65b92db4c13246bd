"""The recorder killed without warning, many times, also while it seals: what is recorded can be read by any Arrow
reader, what is sealed stays as it is, and the next start leaves nothing behind.

EXHUME_KILLS is the number of kills; `make soak-faults` takes 200."""

import ctypes
import hashlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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

from exhume.store.format.names import HEALTH_NAME
from exhume.store.read.recording import Recording

DIRECTORIES = 5
KILLS = -(-int(os.environ.get("EXHUME_KILLS", "30")) // DIRECTORIES)
pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.paced, pytest.mark.timeout(240 + DIRECTORIES * KILLS * 6)]

# What the recorder itself may lose. Five of them share the cores here: for the time in which others had them it can do
# nothing, and on a machine that is slow each turn takes longer.
GONE_AT_MOST_S = 2.0
LOOK_S = 0.05
# Whatever the machine's pace, the first is killed before its first tick is over, the second as soon as it seals, the
# last after its second tick.
AT_ONCE, AS_IT_SEALS, AFTER_TWO_TICKS = 0, 1, KILLS - 1
# How the names of segments end that are being sealed or removed, and how long after that they may still be there.
HALF_DONE = (".sealing", ".dropping")
SEALING_S = 0.15
# A recorder that was asked to end waits up to three seconds for names, which a mount that hangs in a test next to this
# one makes it do; then it seals.
SEALS_WITHIN_S = 10.0
# A child whose interpreter still starts finds out that its parent is gone when it has started.
CHILDREN_S = 10.0
# Kernel: include/uapi/linux/prctl.h.
PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def orphans() -> Iterator[Callable[[], list[str]]]:
    """The command lines of processes that recorders left behind: they become children of this one."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)

    def children() -> Iterator[tuple[int, bool]]:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if int(parent) == os.getpid():
                yield int(stat.parent.name), state == "Z"

    def left() -> list[str]:
        running = [Path(f"/proc/{pid}/cmdline").read_text() for pid, dead in children() if not dead]
        return [args.replace("\0", " ") for args in running if "exhume." in args]

    yield left
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0)
    for pid, dead in list(children()):
        if dead:
            os.waitpid(pid, 0)


@dataclass
class Killed:
    """What became of one directory."""

    kills: int = 0
    ticks_at_kill: list[int] = field(default_factory=list)
    # Seconds that were lost, of those in which it did not have to wait for a core; and all of them.
    gone: list[float] = field(default_factory=list)
    gone_in_all: list[float] = field(default_factory=list)
    # Kills that left a segment half sealed or half removed.
    while_sealing: int = 0


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


def half_done(directory: Path) -> set[tuple[str, int]]:
    """Names and times of what is being sealed or removed."""
    found = set()
    for path in (directory / "live").glob("2*"):
        with suppress(FileNotFoundError):
            if path.name.endswith(HALF_DONE):
                found.add((path.name, path.stat().st_ctime_ns))
    return found


def plain_anchors(directory: Path) -> list[int]:
    """The ends of all ticks, read without exhume. A live file may end within a batch."""
    found: set[int] = set()
    for path in directory.glob("2*/anchors.parquet"):
        found.update(pq.read_table(path).column("time").to_pylist())
    for path in directory.glob("live/*/anchors.arrows"):
        try:
            with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
                for batch in stream:
                    found.update(batch.column("time").to_pylist())
        except pa.ArrowInvalid:
            pass
    return sorted(found)


def wait_for_the_kill(
    recorder: RecorderProcess, number: int, chance: random.Random, looks: Looks, left: set[tuple[str, int]]
) -> int | None:
    """Wait until the recorder is to be killed; returns when it was asked to end, if it was: it records until then."""
    asked_at = None
    moment = chance.random()
    if number == AT_ONCE:
        return None
    if number == AFTER_TWO_TICKS:
        looks.until_ticks(2)
    elif moment < 0.5 and number != AS_IT_SEALS:
        looks.look_for(chance.uniform(0.0, 2.5))
    else:
        # What the one before left is sealed at the start; all is sealed at the end.
        if moment < 0.75 or number == AS_IT_SEALS:
            recorder.recording()
            looks.look_for(chance.uniform(0.0, 1.5))
            asked_at = monotonic()
            recorder.send(signal.SIGTERM)
        deadline = time.monotonic() + SEALS_WITHIN_S
        while not (half_done(recorder.directory) - left or recorder.ended or time.monotonic() > deadline):
            time.sleep(0.001)
        if number != AS_IT_SEALS:
            time.sleep(chance.uniform(0.0, SEALING_S) * chance.choice((0.1, 1.0)))
    return asked_at


def kill_again_and_again(
    directory: Path, start: Callable[..., RecorderProcess], chance: random.Random, orphans: Callable[[], list[str]]
) -> Killed:
    reported = Killed()
    sealed: dict[Path, str] = {}
    before: list[int] = []
    while reported.kills < KILLS:
        began, left = monotonic(), half_done(directory)
        recorder = start(directory)
        recording_since = None
        # Some die while they start (and seal what the one before left), most while they record.
        if reported.kills in (AT_ONCE, AFTER_TWO_TICKS) or chance.random() < 0.7:
            recorder.recording()
            recording_since = monotonic()
        looks = Looks(recorder)
        asked_at = wait_for_the_kill(recorder, reported.kills, chance, looks, left)
        if asked_at is None:
            looks.take()
            assert not recorder.ended, recorder.err
        killed_at = asked_at or monotonic()
        recorder.send(signal.SIGKILL)
        reported.kills += recorder.wait() == -signal.SIGKILL
        clean_words(recorder)
        until("its children end with it", lambda: not orphans(), patience=CHILDREN_S)
        reported.while_sealing += bool(half_done(directory) - left)
        of_this_run: list[int] = []
        if directory.exists() and (directory / "recorder.lock").exists():
            now = anchors(directory)
            assert now == plain_anchors(directory)
            assert now[: len(before)] == before, "what could be read before the kill is still there"
            before = now
            of_this_run = [time for time in now if time >= began]
            reported.ticks_at_kill.append(len(of_this_run))
            assert Recording.open(directory).skipped == []
        if recording_since is not None:
            last = of_this_run[-1] if of_this_run else recording_since
            since = looks.since(last)
            assert seconds(killed_at - last - since.busy) <= GONE_AT_MOST_S
            reported.gone.append(max(0.0, seconds(killed_at - last - since.waited)))
            reported.gone_in_all.append(max(0.0, seconds(killed_at - last)))
        after = sealed_files(directory)
        assert sealed.items() <= after.items(), "something that was sealed has changed"
        for path in after.keys() - sealed.keys():
            assert pq.read_table(path).num_rows > 0
        sealed = after
    return reported


def record_once_more(directory: Path, start: Callable[..., RecorderProcess]) -> None:
    """A recorder that ends well after all those that were killed."""
    before = anchors(directory)
    sealed = sealed_files(directory)
    recorder = start(directory).ticks(1)
    until("what was left is sealed", lambda: len(list((directory / "live").glob("2*"))) == 1)
    assert recorder.stop() == 0, recorder.err
    clean_words(recorder)
    assert before == anchors(directory)[: len(before)], "what could be read after a kill is still there"
    assert sealed.items() <= sealed_files(directory).items()
    recording = Recording.open(directory)
    assert all(segment.sealed for segment in recording.segments)
    assert {path.name for path in directory.iterdir() if not path.name.startswith("2")} == {"recorder.lock", "live"}
    assert [path.name for path in (directory / "live").iterdir()] == [HEALTH_NAME], "the last one's state stays"
    assert {path.suffix for path in directory.glob("2*/*")} == {".parquet"}
    assert recording.info().skipped == []
    assert plain_anchors(directory) == anchors(directory)
    stacks = set(recording.read("stacks").column("stack").to_pylist())
    assert set(recording.read("samples").column("stack").to_pylist()) <= stacks, "every sample has its stack"


def test_killed_many_times_at_random(
    tmp_path: Path, orphans: Callable[[], list[str]], start: Callable[..., RecorderProcess]
) -> None:
    lock = threading.Lock()

    def start_one(directory: Path) -> RecorderProcess:
        with lock:
            return start(directory)

    directories = [tmp_path / f"recording-{number}" for number in range(DIRECTORIES)]
    with ThreadPoolExecutor(DIRECTORIES) as pool:
        work = [
            pool.submit(kill_again_and_again, directory, start_one, random.Random(seed), orphans)
            for seed, directory in enumerate(directories)
        ]
        reported = [each.result() for each in work]
        for after in [pool.submit(record_once_more, directory, start_one) for directory in directories]:
            after.result()
    until("their children end with them", lambda: not orphans(), patience=CHILDREN_S)
    assert sum(each.kills for each in reported) == DIRECTORIES * KILLS
    gone = sorted(lost for each in reported for lost in each.gone)
    longest = max(lost for each in reported for lost in each.gone_in_all)
    while_sealing = sum(each.while_sealing for each in reported)
    print("lost, in seconds: " + " ".join(f"{lost:.1f}" for lost in gone))
    print(f"{DIRECTORIES * KILLS} kills, {while_sealing} of them left a segment half sealed or half removed")
    print(f"largest loss: {max(gone):.2f} s, and {longest:.2f} s with the time in which others had the cores")
    assert max(gone) <= GONE_AT_MOST_S
    # Of some the first tick was not over, others had some: both sides were met.
    counts = [count for each in reported for count in each.ticks_at_kill]
    assert 0 in counts
    assert max(counts) >= 2
    assert while_sealing >= max(1, DIRECTORIES * KILLS // 20)
