"""Verifying a fix: from a recording, live on this machine, and when it is interrupted."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.diagnose.scenes import Scene, at
from tests.parts import missing
from tests.remedy.verify.test_verify_baseline import ClockAt

from exhume.lab.stage import program_argv
from exhume.model.clock import SystemClock
from exhume.model.errors import ExhumeError
from exhume.model.remedy import Change, Effect, Measure, Step
from exhume.model.stop import Stop
from exhume.procfs.host import Host
from exhume.remedy.ledger import Entry, Fix, Mark
from exhume.remedy.verify.proof import take_baseline, verify

pytestmark = pytest.mark.slow

FORKS = Effect(Measure.FORKS, "fall")
KERNEL = Effect(Measure.KERNEL_CORE, "fall")


def applied(effects, began, baseline=None) -> Fix:
    step = Step("stop", "Stop it", "it fails", action="stop", effects=tuple(effects))
    kept = baseline.to_dict() if baseline is not None else None
    return Fix(
        "20260528-202700-0001", "node-1", "", "/", "", "a.service", "It is stopped.", began,
        (Entry(step, Mark.DONE),), baseline=kept, applied_at=began, finished_at=began,
    )  # fmt: skip


def storm_until(end: int) -> Scene:
    """A storm of forks for a minute, then calm."""
    scene = Scene(cores=2, seconds=end)
    for second in range(end):
        storm = second < 60
        scene.node(second, second + 1, forks=2000 + second % 7 * 30 if storm else 9 + second % 5)
        scene.core(1, second, second + 1, system=900 + second % 5 if storm else 40 + second % 9)
    return scene


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """A storm for a minute, then a fix, then a minute of calm."""
    return storm_until(120).write(tmp_path_factory.mktemp("storm"))


def test_a_recording_proves_it_without_waiting(recording):
    began = time.monotonic()
    proof = verify(applied([FORKS, KERNEL], began=at(60)), Host(), 60.0, recording, clock=ClockAt(at(120)))
    assert time.monotonic() - began < 30, "it would take 60 s to look"
    assert [each.change for each in proof.verification.measures] == [Change.IMPROVED, Change.IMPROVED]
    assert {each.after.source for each in proof.verification.measures} == {"recording"}
    assert proof.verification.looked_from == at(60)
    assert proof.before[0].seconds == pytest.approx(60)


def test_what_was_recorded_while_the_time_before_was_read_counts(tmp_path):
    """On a starved node that takes longer than a recording may lag behind."""
    recording = storm_until(60).write(tmp_path / "recording")
    baseline = take_baseline(Host(), [FORKS], 15.0, recording, clock=ClockAt(at(60)))
    shutil.rmtree(recording.directory)
    storm_until(120).write(recording.directory)
    began = time.monotonic()
    fix = applied([FORKS], began=at(60), baseline=baseline)
    proof = verify(fix, Host(), 60.0, recording, clock=ClockAt(at(120)))
    assert time.monotonic() - began < 30, "it would take 60 s to look"
    (forks,) = proof.verification.measures
    assert (forks.change, forks.after.source) == (Change.IMPROVED, "recording")


def test_the_longer_time_before_counts(recording):
    short = take_baseline(Host(), [FORKS], 15.0, recording, clock=ClockAt(at(60)))
    assert short.observed[0].since == at(0)
    with_both = applied([FORKS], began=at(60), baseline=short)
    assert verify(with_both, Host(), 60.0, recording, clock=ClockAt(at(120))).before[0].source == "recording"


def test_the_shortest_look_sees_something():
    now = SystemClock().wall_ns()
    baseline = take_baseline(Host(), [FORKS], 1.0)
    proof = verify(applied([FORKS], began=now, baseline=baseline), Host(), 1.0)
    assert proof.after[0].values and proof.verification.measures[0].change is Change.UNPROVEN


def test_without_a_time_before_there_is_no_proof():
    now = SystemClock().wall_ns()
    with pytest.raises(ExhumeError, match="--dir"):
        verify(applied([FORKS], began=now), Host(), 1.0)
    with pytest.raises(ExhumeError, match="promised no effect"):
        verify(applied([], began=now), Host(), 1.0)


def test_an_interrupted_watch_reports_its_observations():
    baseline = take_baseline(Host(), [FORKS], 2.0)
    now = SystemClock().wall_ns()
    stop = Stop()
    reported: list[float] = []

    def asks_for_an_end(done: float) -> None:
        reported.append(done)
        if len(reported) == 2:
            stop.set()

    try:
        before = applied([FORKS], began=now, baseline=baseline)
        proof = verify(before, Host(), 60.0, stop=stop, progress=asks_for_an_end)
    finally:
        stop.close()
    assert proof.verification.interrupted
    assert proof.verification.measures[0].after.observations == len(reported) == 2


@pytest.mark.long
@pytest.mark.alone
def test_a_real_storm_of_forks_that_stops_is_proved():
    """The lab's own program, on this machine: measured, ended, measured again. Forks are counted for the whole node, so
    others' storms must not be among them."""
    # Whatever ran before may still be ending.
    if not any(take_baseline(Host(), [FORKS], 3.0).observed[0].stretch.value <= 100 for _ in range(5)):
        missing("a machine on which nothing else forks more than 100 times a second")
    storm = subprocess.Popen(
        [sys.executable, "-I", "-S", *program_argv("processes.fork_loop"), "120", "fork"], start_new_session=True
    )
    try:
        wait_for_forks(1000)
        baseline = take_baseline(Host(), [FORKS], 10.0)
    finally:
        os.killpg(storm.pid, signal.SIGKILL)
        storm.wait()
    now = SystemClock().wall_ns()
    # Where the storm came and went in long waves, a short look may not be enough to be sure; that is said, and a longer
    # one is.
    for seconds in (10.0, 40.0):
        proof = verify(applied([FORKS], began=now, baseline=baseline), Host(), seconds)
        (forks,) = proof.verification.measures
        if forks.change is not Change.UNPROVEN:
            break
    assert (forks.change, forks.as_expected) == (Change.IMPROVED, True), (forks, proof.before, proof.after)


def wait_for_forks(more: int) -> None:
    """Until so many processes were started: a storm takes its time to begin."""
    before, until = forks(), time.monotonic() + 60
    while forks() - before < more:
        assert time.monotonic() < until, "the storm does not begin"
        time.sleep(0.1)


def forks() -> int:
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("processes "))
