"""A busy program matters where somebody loses by it; on a busy healthy node it is worth knowing at most."""

from pathlib import Path

import pytest
from tests.diagnose.judged import judged_recording
from tests.diagnose.nodes import COMPUTING, healthy
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding


def finding(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "user-hog"), None)


def hog(scene: Scene, cpu: int, since: int = 20, until: int = 30, share: float = 0.97) -> Scene:
    return scene.core(cpu, since, until, user=1000, system=0).stack(cpu, since, until, share, "solver", 4242, COMPUTING)


def test_who_had_the_core_before_gets_little_now(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=40).core(1, 0, 40, user=450).stack(1, 0, 20, 0.45, "peer", 50, COMPUTING)
    hog(scene, 1, share=0.92).stack(1, 20, 30, 0.07, "peer", 50, COMPUTING)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = found.findings[0]
    assert (top.cause, top.severity, top.culprit.cpu, top.culprit.pid) == ("user-hog", "warning", 1, 4242)
    assert any("peer" in link.text for link in top.chain)
    assert top.confidence >= 0.7
    assert found.verdict == "degraded"


def test_one_that_has_to_share_its_core_while_others_idle(tmp_path: Path) -> None:
    """Without a calm time before: the trouble fills the whole recording."""
    scene = Scene(cores=96, seconds=30)
    hog(scene, 41, 0, 30, share=0.5).stack(41, 0, 30, 0.49, "pinned", 51, COMPUTING)
    told = finding(judged_recording(scene.write(tmp_path), scene.window))
    assert told is not None
    assert (told.severity, told.culprit.cpu) == ("warning", 41)


@pytest.mark.slow
def test_the_one_core_with_two_of_96_that_all_compute(tmp_path: Path) -> None:
    scene = Scene(cores=96, seconds=30)
    for cpu in range(95):
        share = 0.49 if cpu == 41 else 0.98
        scene.core(cpu, 0, 30, user=990).stack(cpu, 0, 30, share, "solver", 100 + cpu, COMPUTING)
    scene.stack(41, 0, 30, 0.49, "pinned", 51, COMPUTING)
    told = finding(judged_recording(scene.write(tmp_path), scene.window))
    assert told is not None
    assert (told.culprit.cpu, told.severity) == (41, "warning")


def test_threads_that_wait_for_this_core_and_no_other(tmp_path: Path) -> None:
    scene = hog(healthy(cores=16), 3).core(3, 20, 30, wait_ns=2_500_000_000)
    told = finding(judged_recording(scene.write(tmp_path), scene.window))
    assert told is not None
    assert (told.severity, told.culprit.cpu, told.culprit.comm) == ("warning", 3, "solver")


@pytest.mark.parametrize("busy_from", [0, 20])
def test_a_busy_healthy_node_has_nothing_above_info(tmp_path: Path, busy_from: int) -> None:
    scene = healthy(cores=8, busy_from=busy_from)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert {each.severity for each in found.findings} <= {"info"}
    assert found.verdict == "healthy"


def test_a_program_that_nobody_suffers_from_is_worth_knowing(tmp_path: Path) -> None:
    scene = hog(Scene(cores=4, seconds=40), 2)
    found = judged_recording(scene.write(tmp_path), scene.window)
    told = finding(found)
    assert told is not None and told.severity == "info"
    assert found.verdict == "healthy"


def test_one_that_was_always_there_comes_after_what_is_new(tmp_path: Path) -> None:
    scene = hog(Scene(cores=4, seconds=100), 2, 0, 100)
    scene.core(0, 60, 70, user=1000).stack(0, 60, 70, 0.95, "newcomer", 88, COMPUTING)
    told = finding(judged_recording(scene.write(tmp_path), scene.window))
    assert told is not None and told.culprit.comm == "newcomer"


def test_one_that_ended_was_not_held_back(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=40).core(1, 0, 20, user=450).stack(1, 0, 20, 0.45, "before", 50, COMPUTING)
    told = finding(judged_recording(hog(scene, 1).write(tmp_path), scene.window))
    assert told is not None and told.severity == "info"


def test_one_that_went_to_another_core_was_not_held_back(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=40).core(1, 0, 20, user=450).stack(1, 0, 20, 0.45, "peer", 50, COMPUTING)
    hog(scene, 1, share=0.9).stack(1, 20, 30, 0.05, "peer", 50, COMPUTING)
    scene.stack(3, 20, 30, 0.4, "peer", 50, COMPUTING).core(3, 20, 30, user=400)
    told = finding(judged_recording(scene.write(tmp_path), scene.window))
    assert told is not None and told.severity == "info"


def test_without_stacks_only_the_core_is_told(tmp_path: Path) -> None:
    scene = hog(Scene(cores=4, seconds=40).without("samples"), 2).core(2, 20, 30, wait_ns=1_500_000_000)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    told = finding(found)
    assert told is not None
    assert (told.culprit.cpu, told.culprit.pid, told.severity) == (2, None, "warning")
    assert told.confidence < 0.7
