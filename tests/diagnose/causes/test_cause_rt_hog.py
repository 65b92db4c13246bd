"""A real-time thread that keeps its core is told by its policy, or by what only a real-time thread can do."""

from pathlib import Path

from tests.diagnose.codes import doubts
from tests.diagnose.judged import judged_recording
from tests.diagnose.nodes import COMPUTING, healthy
from tests.diagnose.scenes import Scene

from exhume.model.clock import NANOS
from exhume.model.finding import Diagnosis, Finding

LINE = "sched: RT throttling activated"


def hog(
    scene: Scene, cpu: int = 2, since: int = 20, until: int = 28, *, policy: int | None = 1, share: float = 0.95
) -> Scene:
    scene.core(cpu, since, until, user=round(share * 1000), system=0)
    scene.stack(cpu, since, until, share, "mixer", 99, COMPUTING)
    return scene.row("processes", since, pid=99, comm="mixer", cmdline="mixer -v", policy=policy, rt_priority=50)


def finding(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "rt-hog"), None)


def test_a_real_time_thread_on_one_core_of_96(tmp_path: Path) -> None:
    scene = hog(Scene(cores=96, seconds=40), cpu=63)
    scene.stack(63, 0, 20, 0.5, "peer", 50, COMPUTING).core(63, 0, 20, user=500)
    scene.stack(63, 20, 28, 0.04, "peer", 50, COMPUTING)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = found.findings[0]
    assert (top.cause, top.severity) == ("rt-hog", "critical")
    assert (top.culprit.cpu, top.culprit.pid, top.culprit.comm) == (63, 99, "mixer")
    assert top.confidence >= 0.8
    assert any("SCHED_FIFO, priority 50" in link.text for link in top.chain)
    assert "user-hog" not in {each.cause for each in found.findings}
    assert any("99" in remedy.command for remedy in top.remedies)


def test_an_ordinary_hog_is_not_one(tmp_path: Path) -> None:
    scene = hog(Scene(cores=4, seconds=40), policy=0)
    scene.event(24, "rt-throttling", LINE, "warning")
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert finding(found) is None
    assert "user-hog" in {each.cause for each in found.findings}


def test_where_policies_were_not_recorded_a_ksoftirqd_that_waits_tells(tmp_path: Path) -> None:
    scene = hog(Scene(cores=4, seconds=40), policy=None)
    scene.row("threads", 26, tid=9, comm="ksoftirqd/2", cpu=2, run_ns=0, wait_ns=2 * NANOS)
    told = finding(judged_recording(scene.write(tmp_path), scene.window))
    assert told is not None
    assert told.severity == "critical"
    assert 0.4 <= told.confidence < 0.8
    assert "rt-hog.no-policy" in doubts(told)


def test_without_policy_wait_or_line_it_is_a_busy_program(tmp_path: Path) -> None:
    scene = hog(Scene(cores=4, seconds=40), policy=None)
    assert finding(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_a_core_that_was_set_aside_is_worth_knowing_at_most(tmp_path: Path) -> None:
    scene = hog(Scene(cores=8, seconds=120), since=0, until=120)
    scene.core(5, 80, 90, user=900).stack(5, 80, 90, 0.9, "job", 7, COMPUTING)
    told = finding(judged_recording(scene.write(tmp_path), scene.window))
    assert told is not None and told.severity == "info"


def test_a_real_time_thread_that_works_a_little_is_healthy(tmp_path: Path) -> None:
    scene = hog(healthy(), share=0.3)
    assert finding(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_without_stacks_the_line_is_told(tmp_path: Path) -> None:
    scene = hog(Scene(cores=4, seconds=40).without("samples", "processes"))
    scene.event(24, "rt-throttling", LINE, "warning")
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    told = finding(found)
    assert told is not None
    assert (told.culprit.cpu, told.culprit.pid, told.severity) == (2, None, "warning")
    assert told.confidence < 0.6
