"""A scene, diagnosed; whatever is quoted has been found again in its recording."""

from pathlib import Path

from tests.diagnose.evidence_check import untrue
from tests.diagnose.scenes import Scene

from exhume.diagnose.engine import diagnose
from exhume.model.finding import Diagnosis


def judged(scene: Scene, directory: Path) -> Diagnosis:
    recording = scene.write(directory)
    found = diagnose(recording, scene.window)
    assert not untrue(recording, found)
    return found
