"""Failures of jobs next to an incident: those that it explains, and no others."""

from pathlib import Path

from tests.diagnose.judged import judged
from tests.diagnose.scenes import Scene, at

from exhume.diagnose.failures import AFTER_NS, explained_failures
from exhume.model.clock import NANOS
from exhume.model.finding import Finding, Severity
from exhume.present.diagnosis_view import diagnosis_json
from exhume.present.terminal.diagnosis import diagnosis_lines

WRITE = ["app:poll", "entry_SYSCALL_64_after_hwframe", "do_syscall_64", "syscall_exit_work", "__audit_syscall_exit"]
WRITE += ["audit_log_exit", "audit_log_task_info", "audit_log_format"]


def scene() -> Scene:
    """An audit storm on one core, from 20 to 30 s."""
    return Scene(cores=4).core(2, 20, 30, system=990).stack(2, 20, 30, 0.9, "scanner", 600, WRITE)


def failed(of: Scene, second: float, text: str, kind: str = "job-failed", source: str = "jobs") -> Scene:
    return of.event(second, kind, text, "error", source=source)


def test_failures_during_and_after_it_are_listed_with_its_cause(tmp_path: Path) -> None:
    one = failed(failed(failed(scene(), 10, "too-early"), 25, "during"), 36, "after", "actor-failed")
    found = judged(failed(one, 26, "rolled out", "deployment"), tmp_path)
    assert [(each.text, each.kind, each.cause) for each in found.failures] == [
        ("during", "job-failed", "audit-storm"),
        ("after", "actor-failed", "audit-storm"),
    ]
    assert found.failures[0].at == at(25)
    assert 0 < found.failures[0].after_s < found.failures[1].after_s
    (first, _) = diagnosis_json(found, None, millis=True)["failures"]
    assert first.keys() == {"at", "at_ms", "kind", "text", "cause", "after_s"}
    shown = "\n".join(line.plain for line in diagnosis_lines(found, None, 100))
    assert "failures that it explains" in shown and "during" in shown and "too-early" not in shown


def test_a_job_that_was_reported_for_several_nodes_is_listed_once(tmp_path: Path) -> None:
    of = scene()
    for second, member in ((25, "n1"), (25.001, "n2"), (25.001, "n3"), (28, "n1")):
        of.event(second, "job-failed", f"on {member}", "error", source="jobs", job="train-7", member=member)
    of.event(28.5, "job-failed", "another one", "error", source="jobs", job="train-8", member="n1")
    found = judged(of, tmp_path)
    assert [each.at for each in found.failures] == [at(25), at(28), at(28.5)]


def test_actors_of_a_job_that_die_together_are_failures_each(tmp_path: Path) -> None:
    of = scene()
    for actor in range(8):
        of.event(25, "actor-failed", f"actor a{actor}", "error", source="jobs", job="train-7", member="n1")
    assert [each.text for each in judged(of, tmp_path).failures] == [f"actor a{actor}" for actor in range(8)]


def test_a_healthy_node_explains_no_failure(tmp_path: Path) -> None:
    found = judged(failed(Scene(cores=4), 25, "of its own"), tmp_path)
    assert found.failures == []


def test_a_line_of_another_source_is_no_report(tmp_path: Path) -> None:
    assert judged(failed(scene(), 25, "forged", source="kernel-log"), tmp_path).failures == []


def test_the_time_after_it_has_an_end_and_info_explains_nothing(tmp_path: Path) -> None:
    recording = failed(scene(), 39, "late").write(tmp_path)

    def finding(ended: int, severity: Severity = Severity.WARNING) -> Finding:
        return Finding("user-hog", "", severity, 1.0, "", (), focus=(ended - NANOS, ended))

    assert len(explained_failures(recording, [finding(at(39) - AFTER_NS + NANOS)])) == 1
    assert explained_failures(recording, [finding(at(39) - AFTER_NS)]) == []
    assert explained_failures(recording, [finding(at(35), Severity.INFO)]) == []
