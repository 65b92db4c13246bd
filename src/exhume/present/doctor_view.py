"""The view of a checkup: node counters and a few seconds of sampling, its verdict, and `exhume doctor --json`."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from exhume.model.facts import MissingSource
from exhume.model.finding import CHECKUP_VERSION, Check, Diagnosis, Level, Severity, Verdict
from exhume.model.text import count
from exhume.present.diagnosis_view import diagnosis_json, verdict_text
from exhume.present.serializer import to_json

_OF_SEVERITY = {Severity.CRITICAL: Level.BAD, Severity.WARNING: Level.LOOK, Severity.INFO: Level.WELL}
_OF_VERDICT = {Verdict.STARVED: Level.BAD, Verdict.DEGRADED: Level.LOOK}


@dataclass(frozen=True, slots=True)
class Checkup:
    """What a doctor found. `looked_s` is how long it sampled; `missing` are the unavailable sources."""

    node: str
    looked_s: float
    checks: Sequence[Check]
    diagnosis: Diagnosis
    missing: Sequence[MissingSource] = ()

    @property
    def level(self) -> Level:
        """The most severe level; a check that could not run doesn't make a node unhealthy."""
        levels: list[Level] = [check.level for check in self.checks if check.level is not Level.UNSEEN]
        levels += [_OF_SEVERITY[finding.severity] for finding in self.diagnosis.findings]
        levels.append(_OF_VERDICT.get(self.diagnosis.verdict, Level.WELL))
        return max(levels, key=lambda level: level.rank)

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        if self.diagnosis.verdict in _OF_VERDICT or any(f.severity != Severity.INFO for f in self.diagnosis.findings):
            return verdict_text(self.diagnosis)
        worst = [check for check in self.checks if check.level is self.level]
        if self.level is Level.WELL:
            unseen = sum(check.level is Level.UNSEEN for check in self.checks)
            well = len(self.checks) - unseen
            return f"{count(well, 'check')} and {self.looked_s:.0f} s of sampling found nothing wrong"
        return f"{worst[0].title}: {worst[0].value}" + (f", and {len(worst) - 1} more" if len(worst) > 1 else "")


def checkup_json(checkup: Checkup, zone: tzinfo | None) -> dict[str, Any]:
    """The documented shape of `exhume doctor --json`."""
    return {
        "version": CHECKUP_VERSION,
        "node": checkup.node,
        "verdict": str(checkup.level),
        "sentence": checkup.sentence,
        "looked_seconds": checkup.looked_s,
        "checks": to_json(checkup.checks, zone),
        "missing": to_json(checkup.missing, zone),
        "diagnosis": diagnosis_json(checkup.diagnosis, zone),
    }
