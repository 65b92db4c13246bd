"""A diagnosis of a scene or a recording, checked: all evidence is found again in the recording, and no text decides."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from tests.diagnose.evidence_check import untrue
from tests.diagnose.scenes import Scene
from tests.parts import quick

from exhume.diagnose.engine import diagnose
from exhume.model.clock import Window
from exhume.model.finding import Diagnosis
from exhume.store.read.cached import CachedRecording
from exhume.store.read.recording import Recording


def judged(scene: Scene, directory: Path) -> Diagnosis:
    """The diagnosis of a scene."""
    return judged_recording(scene.write(directory), scene.window)


def judged_recording(
    recording: Recording, window: Window, at: int | None = None, *, without_texts: bool | None = None
) -> Diagnosis:
    """The diagnosis of a window: true to its recording, and the same with every text replaced by its code; by default
    quick runs leave the latter out."""
    cached = CachedRecording(recording)
    found = diagnose(cached, window, at=at)
    assert not untrue(recording, found)
    if without_texts or (without_texts is None and not quick()):
        with texts_by_code():
            assert decisions(diagnose(cached, window, at=at)) == decisions(found)
    return found


@contextmanager
def texts_by_code() -> Iterator[None]:
    """Replace every rendered text by its code."""
    with patch("exhume.diagnose.messages.fill", lambda code, template, values: code):
        yield


def decisions(diagnosis: Diagnosis) -> object:
    """All that a diagnosis decides, without its texts."""
    return (
        diagnosis.verdict,
        diagnosis.focus,
        diagnosis.baseline,
        [
            (
                finding.cause,
                finding.severity,
                finding.confidence,
                finding.culprit,
                finding.entities,
                [(link.role, link.at, link.code, link.evidence, link.entities) for link in finding.chain],
                [doubt.code for doubt in finding.doubts],
                [(each.id, each.action, each.target, each.fix_target, each.command) for each in finding.remedies],
            )
            for finding in diagnosis.findings
        ],
        [(each.cause, each.code) for each in diagnosis.ruled_out],
        # Spots that are the same in all but their text are one without it.
        list(dict.fromkeys(spot.code for spot in diagnosis.blind_spots)),
        [(link.code, link.at, link.evidence) for link in diagnosis.symptoms],
        accounted(diagnosis),
    )


def accounted(diagnosis: Diagnosis) -> object:
    """The tables of the times, without their texts."""
    found = diagnosis.accounting
    tables = () if found is None else (found.cpu, found.waiting, found.lost)
    ways = [(table.by_state, table.by_cause, table.by_owner) for table in tables]
    return [[[(row.kind, row.id, row.seconds, row.share) for row in way] for way in table] for table in ways]
