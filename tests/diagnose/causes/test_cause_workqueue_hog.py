"""A work item that keeps a core is named by its function; a busy worker that many items share is not a hog."""

from pathlib import Path

import pytest
from tests.diagnose.judged import judged_recording
from tests.diagnose.nodes import healthy
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding

WORK = ["ret_from_fork_asm", "kthread", "worker_thread", "process_scheduled_works", "process_one_work"]
HOG = [*WORK, "zorp_scrub_work_fn", "zorp_scrub_one"]
LINE = "workqueue: zorp_scrub_work_fn hogged CPU for >10000us 16 times, consider switching to WQ_UNBOUND"


def finding(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "workqueue-hog"), None)


def hog(scene: Scene, cpu: int, share: float = 0.96) -> Scene:
    return scene.core(cpu, 20, 28, user=0, system=round(1000 * share)).stack(
        cpu, 20, 28, share, "kworker/1:2+zorp", 321, HOG
    )


@pytest.mark.slow
def test_a_work_item_on_one_core_of_96(tmp_path: Path) -> None:
    scene = hog(healthy(cores=96), 17)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = found.findings[0]
    assert (top.cause, top.culprit.cpu, top.culprit.function) == ("workqueue-hog", 17, "zorp_scrub_work_fn")
    assert top.severity == "warning"
    assert top.confidence >= 0.75


def test_with_the_kernels_own_line_it_is_grave(tmp_path: Path) -> None:
    scene = hog(Scene(cores=8, seconds=40), 5)
    scene.event(25, "workqueue-hog", LINE, "warning", comm="zorp_scrub_work_fn")
    top = judged_recording(scene.write(tmp_path), scene.window).findings[0]
    assert (top.cause, top.severity) == ("workqueue-hog", "critical")
    assert top.confidence >= 0.85


def test_the_line_alone_is_worth_knowing(tmp_path: Path) -> None:
    """The kernel writes it after a few hundredths of a second."""
    scene = Scene(cores=8, seconds=40).without("samples")
    scene.event(25, "workqueue-hog", LINE, "warning", comm="zorp_scrub_work_fn")
    told = finding(judged_recording(scene.write(tmp_path), scene.window))
    assert told is not None
    assert (told.severity, told.culprit.function) == ("info", "zorp_scrub_work_fn")
    assert told.confidence < 0.6


def test_a_worker_that_works_a_little_is_healthy(tmp_path: Path) -> None:
    assert (
        finding(
            judged_recording((scene := hog(Scene(cores=4, seconds=40), 1, share=0.2)).write(tmp_path), scene.window)
        )
        is None
    )
