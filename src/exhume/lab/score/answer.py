"""Diagnose one recording in a process of its own that gets nothing but the recording's directory.

    python -m exhume.lab.score.answer DIRECTORY

Prints as JSON what was found, and how long it took.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from exhume.diagnose.engine import diagnose
from exhume.model.errors import ExhumeError, RecordingError
from exhume.model.finding import Role, TimeKind
from exhume.store.read.recording import Recording


def answer(directory: Path) -> dict[str, Any]:
    """Return the findings of the whole recording, best first."""
    began = time.perf_counter()
    recording = Recording.open(directory)
    span = recording.span()
    if span is None:
        raise RecordingError("nothing was recorded")
    diagnosis = diagnose(recording, span)
    lost = () if diagnosis.accounting is None else diagnosis.accounting.lost.by_cause
    return {
        "seconds": round(time.perf_counter() - began, 3),
        "verdict": str(diagnosis.verdict),
        "focus": diagnosis.focus,
        "lost_s": sum(row.seconds for row in lost),
        "explained_s": sum(row.seconds for row in lost if row.kind is TimeKind.CAUSE),
        "findings": [
            {
                "cause": finding.cause,
                "severity": str(finding.severity),
                "confidence": finding.confidence,
                "cpu": finding.culprit.cpu,
                "comm": finding.culprit.comm,
                "summary": finding.summary,
                "lost_s": finding.lost_s,
                "named": list(
                    dict.fromkeys(
                        entity.name for link in finding.chain if link.role is Role.CULPRIT for entity in link.entities
                    )
                ),
                "cgroup": finding.culprit.cgroup,
            }
            for finding in diagnosis.findings
        ],
    }


if __name__ == "__main__":
    try:
        answered = answer(Path(sys.argv[1]))
    except ExhumeError as error:
        sys.exit(f"{error}")
    sys.stdout.write(json.dumps(answered) + "\n")
