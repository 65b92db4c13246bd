"""The one bad stretch of ten busy minutes: it is found, and headline, baseline, evidence and times are about it."""

import random
from argparse import Namespace
from pathlib import Path

import pytest
from tests.diagnose.judged import judged_recording
from tests.diagnose.nodes import COMPUTING
from tests.diagnose.scenes import Scene, at

from exhume.cli.commands.diagnose import find_target
from exhume.cli.recording_args import RecordingView
from exhume.diagnose.engine import diagnose
from exhume.diagnose.focus import find_foci
from exhume.library import LAST_NS
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Diagnosis, Finding
from exhume.store.read.recording import Recording

SECONDS = 600
BAD = (412, 430)
WALK = ["do_syscall_64", "memcg_stat_show", "mem_cgroup_iter"]
READ = ["do_syscall_64", "ksys_read", "vfs_read", "filemap_read"]
SLACK_S = 3


def busy_machine(cores: int = 4) -> Scene:
    """Batch work on every core, which comes and goes; forks and faults in bursts; a container that is throttled now and
    then; short waits of ksoftirqd."""
    scene, dice = Scene(cores=cores, seconds=SECONDS), random.Random(11)
    for second in range(SECONDS):
        for cpu in range(cores):
            user, system = dice.randrange(450, 900), dice.randrange(20, 90)
            wait = dice.randrange(50, 700) * 1_000_000
            scene.core(cpu, second, second + 1, user=user, system=system, wait_ns=wait)
            scene.stack(cpu, second, second + 1, user / 1000, f"batch{cpu}", 1000 + cpu, COMPUTING)
            scene.stack(cpu, second, second + 1, system / 1000, f"batch{cpu}", 1000 + cpu, READ)
        scene.node(second, second + 1, forks=dice.randrange(20, 300), pgfault=dice.randrange(5_000, 60_000))
        if dice.random() < 0.1:
            scene.row("throttling", second, cgroup="/pods/a", periods=10, throttled=3, throttled_ns=40_000_000)
        if dice.random() < 0.05:
            scene.row("threads", second, tid=9, comm="ksoftirqd/1", cpu=1, run_ns=0, wait_ns=120_000_000)
    for second in range(5, SECONDS, 60):
        scene.row("cgroups", second, hierarchy="memory", parent="", kernel=20_300, visible=300, dying=20_000)
    return scene


def walked(scene: Scene, cpu: int = 2, stretch: tuple[int, int] = BAD) -> Scene:
    scene.core(cpu, *stretch, user=20, system=970, wait_ns=1_500_000_000)
    return scene.stack(cpu, *stretch, 0.97, "kubelet", 77, WALK)


def assert_about(found: Diagnosis, finding: Finding, stretch: tuple[int, int]) -> None:
    """The finding, its evidence and the times are about the stretch, and the baseline is a calm time outside of it."""
    since, until = at(stretch[0] - SLACK_S), at(stretch[1] + SLACK_S)
    assert since <= finding.focus[0] and finding.focus[1] <= until
    assert finding.focus[1] - finding.focus[0] >= 0.7 * (stretch[1] - stretch[0]) * NANOS
    assert found.focus == finding.focus
    baseline = Window(*found.baseline)
    assert not baseline.empty and (baseline.until <= at(stretch[0]) or at(stretch[1]) <= baseline.since)
    assert found.accounting is not None and (found.accounting.since, found.accounting.until) == found.focus
    quoted = [each for link in finding.chain for each in link.evidence if each.table in ("cpu", "samples")]
    spans = [Window(*found.focus), baseline]
    # A tick that began before the window reaches into it.
    assert quoted and all(
        any(span.since - NANOS <= each.since and each.until <= span.until + NANOS for span in spans) for each in quoted
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return walked(busy_machine()).write(tmp_path_factory.mktemp("busy"))


@pytest.mark.slow
def test_one_bad_stretch_of_ten_busy_minutes(recorded: Recording) -> None:
    found = judged_recording(recorded, Window(at(0), at(SECONDS)))
    top = found.findings[0]
    assert (top.cause, top.culprit.cpu, found.verdict) == ("zombie-memcgs", 2, "starved")
    assert_about(found, top, BAD)
    assert top.lost_s > 10


@pytest.mark.slow
def test_nothing_in_ten_busy_minutes(tmp_path: Path) -> None:
    found = judged_recording(busy_machine().write(tmp_path), Window(at(0), at(SECONDS)))
    assert [each.cause for each in found.findings if each.severity != "info"] == []


@pytest.mark.slow
def test_without_arguments_marks_that_are_less_do_not_hide_it(tmp_path: Path) -> None:
    """The recorder marked the stretch, and two short waits later on."""
    scene = walked(busy_machine())
    for second, text in ((BAD[0] + 3, "core 2 starved"), (520, "ksoftirqd/1 waited"), (575, "ksoftirqd/1 waited")):
        scene.event(second, "incident", text, source="recorder", cpu=2 if second < 500 else 1)
    for second in (520, 575):
        scene.row("threads", second, tid=9, comm="ksoftirqd/1", cpu=1, run_ns=0, wait_ns=520_000_000)
    recording = scene.write(tmp_path)
    options = Namespace(dir=tmp_path, at=None, last=None, since=None, until=None, utc=True)
    target = find_target(RecordingView.open(options), options)
    assert target.window.nanos <= LAST_NS and target.at is None
    found = diagnose(recording, target.window, at=target.at)
    assert found.findings[0].cause == "zombie-memcgs"
    assert_about(found, found.findings[0], BAD)


@pytest.mark.parametrize("long", [True, False])
def test_a_peak_on_top_of_a_longer_trouble_is_the_same_episode(tmp_path: Path, long: bool) -> None:
    """A core that is half in the kernel for a while, and a ksoftirqd that waits once meanwhile."""
    scene = Scene(cores=4, seconds=120).core(2, 50, 80 if long else 64, system=600)
    scene.row("threads", 60, tid=9, comm="ksoftirqd/2", cpu=2, run_ns=0, wait_ns=900_000_000)
    foci = find_foci(scene.write(tmp_path), scene.window)
    whole = Window(at(50), at(80 if long else 64))
    assert whole in [each.window for each in foci]
    assert all(whole.since <= each.window.since and each.window.until <= whole.until for each in foci)


def test_the_headline_has_the_time_of_the_first_finding(tmp_path: Path) -> None:
    """A short severe trouble after a longer and lesser one, of another cause, on another core."""
    scene = Scene(cores=4, seconds=180)
    scene.core(0, 40, 60, user=970).stack(0, 40, 60, 0.97, "burst", 50, COMPUTING)
    walked(scene, 2, (120, 126)).row(
        "cgroups", 10, hierarchy="memory", parent="", kernel=20_300, visible=300, dying=20_000
    )
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert found.findings[0].cause == "zombie-memcgs"
    assert_about(found, found.findings[0], (120, 126))
