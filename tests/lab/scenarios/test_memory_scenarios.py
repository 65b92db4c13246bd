"""Scenarios of memory cgroups on the real kernel: each makes its trouble, and nothing of it is left."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.lab.lab_program import PATIENCE_S, play_until
from tests.parts import missing

from exhume.diagnose.engine import diagnose
from exhume.lab.hierarchies import find_memory_hierarchy
from exhume.lab.scenarios import SCENARIOS, memory
from exhume.lab.score.plan import Plan
from exhume.lab.stage import Stage, stage
from exhume.model.clock import Window
from exhume.model.errors import LabError
from exhume.procfs.host import Host
from exhume.store.read.recording import Recording


def no_memory_cgroups() -> bool:
    try:
        find_memory_hierarchy(Host())
    except LabError:
        return True
    return False


@pytest.fixture(autouse=True, scope="module")
def memory_cgroups() -> None:
    if no_memory_cgroups():
        missing("memory cgroups")


pytestmark = [pytest.mark.root, pytest.mark.alone]
COUNT = 400


def played(name: str, work: Path, seen: Callable[[Stage], bool]) -> None:
    """Play a scenario until that is seen while its stage stands, and see that it goes."""
    scenario = SCENARIOS[name]
    with stage(name, seconds=PATIENCE_S, work=work) as playing:
        if scenario.prepare is not None:
            scenario.prepare(playing)
        assert play_until(playing, scenario.play, lambda: seen(playing))
        cgroup = playing.cgroup
        assert cgroup.is_dir()
    assert not cgroup.exists()
    assert not list(work.iterdir())


def vmstat(name: str) -> int:
    lines = Path("/proc/vmstat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.split()[0] == name)


def times_at_limit(cgroup: Path) -> int:
    if (cgroup / "memory.failcnt").exists():
        return int((cgroup / "memory.failcnt").read_text())
    events = dict(line.split() for line in (cgroup / "memory.events").read_text().splitlines())
    return int(events["max"])


def test_zombies_are_there_while_it_is_played(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FEWEST_ZOMBIES", COUNT)
    monkeypatch.setattr(memory, "MOST_ZOMBIES", COUNT)
    hierarchy = find_memory_hierarchy(Host())

    def seen(playing: Stage) -> bool:
        pages = hierarchy.residual_pages(playing.cgroup)
        return (hierarchy.dying(playing.cgroup) if pages is None else pages) >= COUNT

    played("zombie-memcgs", work, seen)


def test_live_cgroups_are_there_while_it_is_played(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FEWEST_LIVE", COUNT)
    monkeypatch.setattr(memory, "MOST_LIVE", COUNT)

    def seen(playing: Stage) -> bool:
        found = [path for path in playing.cgroup.rglob("*") if path.is_dir()]
        return len([path for path in found if path.name != "maker"]) == COUNT

    played("cgroup-excess", work, seen)


def test_a_limit_is_hit_again_and_again(work: Path) -> None:
    played("memory-reclaim", work, lambda playing: times_at_limit(playing.cgroup) >= COUNT)


def test_the_kernel_kills_more_than_once(work: Path) -> None:
    before = vmstat("oom_kill")
    played("oom-thrash", work, lambda playing: vmstat("oom_kill") - before >= 2)


@pytest.mark.long
def test_an_agent_of_many_threads_is_found_in_a_recording(work: Path) -> None:
    """It takes no core, and little of its time is in functions of cgroups."""
    plan = Plan(1, "cgroup-agent", 7, 0, calm_s=6.0, seconds=20.0, after_s=1.0, background="nothing")
    command = [
        sys.executable,
        "-m",
        "exhume.lab.score.play",
        json.dumps(asdict(plan)),
        work / "recording",
        work / "lab",
    ]
    (work / "lab").mkdir()
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    played = json.loads(done.stdout)
    recording = Recording.open(work / "recording")
    found = diagnose(recording, Window(played["began"], played["ended"]))
    finding = next(each for each in found.findings if each.cause == "cgroup-excess")
    assert finding.culprit.comm in played["names"]
    assert finding.culprit.pid is not None
