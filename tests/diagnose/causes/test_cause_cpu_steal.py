"""Stolen time is told by core, and by how much of it was felt."""

from pathlib import Path

import pytest
from tests.diagnose.judged import judged_recording
from tests.diagnose.nodes import healthy
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding


def finding(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "cpu-steal"), None)


@pytest.mark.slow
@pytest.mark.parametrize(("steal", "severity"), [(450, "critical"), (250, "warning"), (80, "info")])
def test_one_core_of_96(tmp_path: Path, steal: int, severity: str) -> None:
    scene = healthy(cores=96).core(11, 20, 30, user=500, system=0, steal=steal)
    # Something else makes the focus where so little would not.
    scene.core(12, 20, 30, user=0, system=800)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    told = finding(found)
    assert told is not None
    assert (told.culprit.cpu, told.severity) == (11, severity)
    assert told.confidence >= 0.85


def test_all_the_time_on_all_cores(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=90)
    for cpu in range(4):
        scene.core(cpu, 0, 90, user=500, steal=400 + cpu)
    told = finding(judged_recording(scene.write(tmp_path), scene.window))
    assert told is not None
    assert told.severity == "critical"
    assert "4 cores" in told.summary


def test_a_trifle_is_not_told(tmp_path: Path) -> None:
    scene = healthy().core(1, 20, 30, user=700, steal=20)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert finding(found) is None
    assert found.verdict == "healthy"


def test_it_needs_no_stacks(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=40).core(1, 20, 30, user=500, steal=450).without("samples")
    told = finding(judged_recording(scene.write(tmp_path), scene.window))
    assert told is not None and told.confidence >= 0.85
