"""What was felt stands at the head of the findings that may have caused it, and of no others."""

from exhume.diagnose.engine import with_symptoms
from exhume.diagnose.symptoms import Symptom
from exhume.model.finding import Culprit, Finding, Severity


def finding(severity: Severity, cpu: int | None) -> Finding:
    return Finding("user-hog", "", severity, 0.9, "", (), Culprit(cpu=cpu))


FELT = [Symptom("log", Severity.CRITICAL, 1, "reset", cpu=3), Symptom("hot-core", Severity.CRITICAL, 2, "hot", cpu=5)]


def told(severity: Severity, cpu: int | None) -> list[str]:
    return [link.text for link in with_symptoms(finding(severity, cpu), FELT).chain]


def test_a_finding_has_the_symptoms_of_its_core() -> None:
    assert told(Severity.CRITICAL, 3) == ["reset"]
    assert told(Severity.WARNING, 5) == ["hot"]
    assert told(Severity.WARNING, None) == ["reset", "hot"]


def test_what_is_only_worth_knowing_caused_nothing() -> None:
    assert told(Severity.INFO, 3) == []
