"""The content of a notification: the marks of one incident and its diagnosis, as values."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any, Protocol

from exhume.collect.sources.kmsg_signatures import STARVATION_KINDS
from exhume.model.finding import LOGGED_SYMPTOM, Severity, Verdict
from exhume.model.times import format_moment

REPORT_VERSION = 1
# The cause of an incident that no finding explains.
UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark of the recorder: `time` is monotonic, `wall` the wall time of the same moment (nanoseconds)."""

    time: int
    wall: int
    trigger: str
    text: str
    cpu: int | None = None
    device: str | None = None
    value: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "at": format_moment(self.wall, UTC, digits=3),
            "trigger": self.trigger,
            "text": self.text,
            "cpu": self.cpu,
            "device": self.device,
            "value": self.value,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """An incident: its marks, and the JSON of `exhume diagnose --json` about them (empty if there is none; `problem`
    says why). `repeats` counts the episodes of the same cause since its last report."""

    node: str
    marks: tuple[Mark, ...]
    diagnosis: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    repeats: int = 0

    @property
    def findings(self) -> Sequence[Mapping[str, Any]]:
        """The findings above severity info, best first."""
        return [each for each in self.diagnosis.get("findings", ()) if each["severity"] != Severity.INFO]

    @property
    def cause(self) -> str:
        findings = self.findings
        return str(findings[0]["cause"]) if findings else UNEXPLAINED

    @property
    def is_final(self) -> bool:
        """Whether the rows of the next seconds can't explain it: a finding already does, or the kernel logged what was
        over by then (its watchdogs report the past), and no row around the line shows a symptom."""
        if self.findings:
            return True
        if not self.diagnosis or any(mark.trigger not in STARVATION_KINDS for mark in self.marks):
            return False
        return all(each["code"] == LOGGED_SYMPTOM for each in self.diagnosis["symptoms"])

    @property
    def severity(self) -> str:
        """The severity of the best finding; without one, the verdict decides."""
        findings = self.findings
        if findings:
            return str(findings[0]["severity"])
        return str(Severity.CRITICAL if self.verdict == Verdict.STARVED else Severity.WARNING)

    @property
    def verdict(self) -> str:
        return str(self.diagnosis.get("verdict", Verdict.UNKNOWN))

    @property
    def confidence(self) -> float:
        findings = self.findings
        return float(findings[0]["confidence"]) if findings else 0.0

    @property
    def summary(self) -> str:
        """The incident in a sentence: the summary of the best finding, else the text of the first mark."""
        findings = self.findings
        return str(findings[0]["summary"]) if findings else self.marks[0].text

    @property
    def at(self) -> str:
        return format_moment(self.marks[0].wall, UTC, digits=3)

    def to_json(self) -> dict[str, Any]:
        """The documented JSON form of a notification."""
        return {
            "version": REPORT_VERSION,
            "node": self.node,
            "at": self.at,
            "cause": self.cause,
            "severity": self.severity,
            "verdict": self.verdict,
            "confidence": self.confidence,
            "summary": self.summary,
            "repeats": self.repeats,
            "marks": [mark.to_json() for mark in self.marks],
            "problem": self.problem,
            "diagnosis": dict(self.diagnosis) or None,
        }

    def encoded(self) -> bytes:
        return json.dumps(self.to_json(), separators=(",", ":")).encode("utf-8", "replace")


class Sink(Protocol):
    """A destination of reports. `deliver` must not block; `limited` sinks only get what the rate limits admit."""

    @property
    def limited(self) -> bool: ...

    def start(self) -> None: ...

    def deliver(self, report: Report) -> None: ...

    def close(self, grace_s: float) -> None: ...
