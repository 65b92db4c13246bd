"""Mounts that become more on the real kernel: when reading their table takes twice the CPU time is forecast from the
first part, and compared with when it really does."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from exhume.diagnose.catalogue import catalogue, thresholds
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.facts.forecasts import count_forecast
from exhume.lab.leftovers import OwnMount
from exhume.lab.mounts import mount_tmpfs
from exhume.lab.score.play import recorder
from exhume.lab.stage import program_argv, stage
from exhume.model.clock import NANOS, Window
from exhume.store.read.recording import Recording

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.alone]
FIRST, PER_S, SECONDS, LEARNED_S = 600, 20, 175, 70
# Makes so many mounts a second.
GROW = """
import sys, time
from pathlib import Path
from exhume.lab.programs.files import bind
base, rate, seconds = Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
began, made = time.monotonic(), 0
while (now := time.monotonic() - began) < seconds:
    while made < now * rate:
        (base / f"more-{made}").mkdir()
        bind(base, f"more-{made}")
        made += 1
    time.sleep(0.02)
"""
# Reads the whole table at a steady pace, as an agent with an interval does.
READ = """
import sys, time
due, until = time.monotonic(), time.monotonic() + float(sys.argv[1])
while due < until:
    time.sleep(max(0.0, due - time.monotonic()))
    with open("/proc/self/mountinfo", "rb", buffering=1 << 16) as table:
        while table.read(1 << 16):
            pass
    # What was missed is not made up for.
    due = max(due + 0.02, time.monotonic())
"""


def reads(case: Case, pid: int) -> Mask:
    """The samples of a process in reading the table."""
    return case.samples.holding(catalogue()["mount-storm"].group("reading")) & (case.samples.pid == pid)


def seconds_until(recording: Recording, pid: int, window: Window, limit: float) -> float:
    """When a process took so many cores, over ten seconds around that moment."""
    case = Case(recording, window, Window(window.since, window.since))
    samples, own = case.samples, reads(case, pid)
    spent = np.bincount((samples.wall[own] - window.since) // NANOS, samples.weight[own] / 1e6)
    means = np.convolve(spent, np.full(10, 0.1), "valid")
    return 5 + float(np.flatnonzero(means >= limit)[0])


def test_when_reading_the_mounts_takes_twice_as_much_is_forecast(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = work / "mounts"
    with stage("mounts", seconds=SECONDS, work=work) as playing:
        playing.leftovers.add(OwnMount(str(base)))
        mount_tmpfs(base, size=1 << 26, files=4 * (FIRST + PER_S * SECONDS))
        subprocess.run(["mount", "--make-private", str(base)], check=True, capture_output=True)
        fill = [sys.executable, *program_argv("files.fill_mounts"), str(base), str(FIRST)]
        subprocess.run(fill, check=True, timeout=60)
        with recorder(work / "recording"):
            began = time.time_ns()
            args = [str(each) for each in (base, PER_S, SECONDS)]
            commands = ([sys.executable, "-c", GROW, *args], [sys.executable, "-c", READ, str(SECONDS)])
            grower, reader = (subprocess.Popen(command) for command in commands)
            # Other work on this machine doesn't slow its pace.
            os.sched_setscheduler(reader.pid, os.SCHED_RR, os.sched_param(1))
            assert grower.wait(SECONDS + 60) == 0 and reader.wait(60) == 0
    recording = Recording.open(work / "recording")
    learned = Window(began + (LEARNED_S - 20) * NANOS, began + LEARNED_S * NANOS)
    case = Case(recording, learned, Window(began, began))
    walk = case.load_of(reads(case, reader.pid))
    limits = thresholds("forecast")
    assert isinstance(limits, dict)
    monkeypatch.setitem(limits, "core", 2 * walk.cores)
    forecast = count_forecast(case, "mounts", "mounts", None, walk)
    assert forecast is not None, recording.read("node", case.focus, ["wall", "mounts"]).to_pylist()
    assert forecast.per_hour.low <= PER_S * 3600 <= forecast.per_hour.high
    [core] = forecast.milestones
    reached = seconds_until(recording, reader.pid, Window(learned.until, began + SECONDS * NANOS), core.limit)
    assert core.latest_s is not None
    assert core.earliest_s - 5 <= reached <= core.latest_s + 5
    assert core.in_s == pytest.approx(reached, rel=0.3)
