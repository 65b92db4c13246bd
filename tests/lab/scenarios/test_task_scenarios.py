"""Storms of names, mounts, forks and restarts, shortly: they do what they say, and leave nothing."""

import os
import time
from pathlib import Path

import pytest
from tests.lab.lab_program import PATIENCE_S, play_until
from tests.parts import missing

from exhume.collect.perf.netlink import ExitCodes
from exhume.lab.leftovers import OwnCgroup
from exhume.lab.scenarios import SCENARIOS
from exhume.lab.stage import stage

pytestmark = [pytest.mark.root, pytest.mark.alone]


def dentries_negative() -> int:
    return int(Path("/proc/sys/fs/dentry-state").read_text().split()[4])


def mounts_below(directory: Path) -> int:
    return Path("/proc/self/mountinfo").read_text().count(f" {directory}")


def forks() -> int:
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("processes "))


def test_names_that_do_not_exist_are_remembered_and_forgotten(tmp_path: Path) -> None:
    if dentries_negative() == 0:
        missing("a kernel that counts negative dentries")
    before = dentries_negative()
    with stage("names", seconds=PATIENCE_S, work=tmp_path) as playing:
        play = SCENARIOS["negative-dentries"].play
        assert play_until(playing, play, lambda: dentries_negative() - before > 100_000)
        directory = playing.directory
        began = time.process_time()
    assert not directory.exists()
    assert dentries_negative() - before < 20_000
    assert time.process_time() - began < 10


def test_mounts_are_many_while_it_plays_and_gone_at_once(tmp_path: Path) -> None:
    scenario = SCENARIOS["mount-storm"]
    with stage("mounts", seconds=1.0, work=tmp_path) as playing:
        assert scenario.prepare is not None
        scenario.prepare(playing)
        assert mounts_below(playing.directory) >= 2_000
        scenario.play(playing)
        directory = playing.directory
        began = os.times()
    ended = os.times()
    assert mounts_below(directory) == 0
    assert not directory.exists()
    # What it takes of a core: whether one is to be had is up to others. umount does it, a process of its own.
    assert sum(ended[:4]) - sum(began[:4]) < 5


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_processes_are_started_by_the_hundred(tmp_path: Path, seed: int) -> None:
    before = forks()
    with stage("forks", seconds=PATIENCE_S, seed=seed, work=tmp_path) as playing:
        assert play_until(playing, SCENARIOS["fork-storm"].play, lambda: forks() - before > 200)
        pids = [process.pid for process in playing.running]
    assert pids
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_a_service_fails_and_is_started_again(tmp_path: Path, seed: int) -> None:
    """In a cgroup of its own or not, as the seeds draw it."""
    try:
        codes = ExitCodes()
    except OSError as error:
        missing(f"the kernel's process connector ({error})")
    failures: list[int] = []

    def failed_twice() -> bool:
        failures.extend(status for status in codes.drain().values() if status == 1 << 8)
        return len(failures) >= 2

    with stage("loop", seconds=PATIENCE_S, seed=seed, work=tmp_path) as playing:
        assert play_until(playing, SCENARIOS["crash-loop"].play, failed_twice)
        cgroups = [Path(each.path) for each in playing.leftovers.changes if isinstance(each, OwnCgroup)]
        supervisor = playing.running[0].pid
    codes.close()
    assert not any(cgroup.exists() for cgroup in cgroups)
    assert not Path(f"/proc/{supervisor}").exists()
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _is_of(pid, tmp_path)]  # noqa: PTH208


def _is_of(pid: str, work: Path) -> bool:
    try:
        return os.fsencode(work) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
