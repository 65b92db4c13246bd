"""A diagnosis in the terminal: what a remedy costs, where its command is run, and whose trouble it is."""

from datetime import UTC

from exhume.model.finding import Action, Diagnosis, Finding, Link, Place, Remedy, Role, Scope, Severity, Verdict
from exhume.present.diagnosis_view import verdict_text
from exhume.present.terminal.diagnosis import diagnosis_lines

REMEDIES = (
    Remedy("see", "read its log", Action.RUN, template="journalctl -n 9", read_only=True),
    Remedy("stop", "stop it", Action.RUN, template="kubectl delete pod x", reversible=False, place=Place.CLUSTER),
)


def diagnosed(scope: Scope, verdict: Verdict) -> Diagnosis:
    finding = Finding("a", "A", Severity.WARNING, 0.9, "it is slow", (), remedies=REMEDIES, scope=scope)
    symptom = Link(Role.SYMPTOM, 0, "ksoftirqd waited")
    return Diagnosis("node-7", (0, 10), (0, 10), verdict, [finding], symptoms=[symptom])


def lines(diagnosis: Diagnosis) -> list[str]:
    return [line.plain.strip(" │") for line in diagnosis_lines(diagnosis, UTC, 100)]


def test_a_command_that_only_reads_is_not_said_to_be_undone() -> None:
    shown = lines(diagnosed(Scope.NODE, Verdict.DEGRADED))
    at = shown.index("$ journalctl -n 9")
    assert shown[at + 1] == "changes nothing"
    assert shown[shown.index("$ kubectl delete pod x") + 1] == "low risk, cannot be undone"


def test_commands_for_another_node_say_so() -> None:
    found = diagnosed(Scope.NODE, Verdict.DEGRADED)
    assert "on node-7 $ journalctl -n 9" in lines(found.seen_from("laptop"))
    # A cluster is reached from anywhere.
    assert "$ kubectl delete pod x" in lines(found.seen_from("laptop"))
    assert lines(found.seen_from("node-7")) == lines(found)


def test_the_verdict_on_the_node_is_not_that_on_a_workload() -> None:
    assert verdict_text(diagnosed(Scope.NODE, Verdict.DEGRADED)) == "it is slow"
    well = diagnosed(Scope.WORKLOAD, Verdict.HEALTHY)
    assert verdict_text(well) == "nothing starved or slowed this node; it is slow"
    # What the node feels is not hung on the workload.
    slowed = diagnosed(Scope.WORKLOAD, Verdict.DEGRADED)
    assert verdict_text(slowed).startswith("work was slowed, and no known cause accounts for it; ")
    assert any("ksoftirqd waited" in line for line in lines(slowed))
    assert not any("ksoftirqd waited" in line for line in lines(diagnosed(Scope.NODE, Verdict.DEGRADED)))
