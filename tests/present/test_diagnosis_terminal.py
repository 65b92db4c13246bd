"""A diagnosis in the terminal: what a remedy costs, where its command is run, and whose trouble it is."""

import io
from dataclasses import replace
from datetime import UTC

import pytest
from rich.console import Console

from exhume.model.finding import (
    Action,
    Check,
    Diagnosis,
    Finding,
    Level,
    Link,
    Place,
    Remedy,
    Role,
    RuledOut,
    Scope,
    Severity,
    Verdict,
)
from exhume.present.diagnosis_view import Checkup, verdict_text
from exhume.present.terminal.diagnosis import checkup_lines, diagnosis_lines, print_checkup, print_diagnosis

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


def test_what_was_ruled_out_is_one_line_until_it_is_asked_for() -> None:
    found = replace(
        diagnosed(Scope.NODE, Verdict.DEGRADED),
        ruled_out=[RuledOut("oom", "few", "nothing was killed"), RuledOut("steal", "none", "nothing was stolen")],
    )
    folded = lines(found)
    assert "ruled out  2 causes; --all lists why" in folded
    assert not any("nothing was killed" in line for line in folded)
    whole = [line.plain for line in diagnosis_lines(found, UTC, 100, unfold=True)]
    assert "  oom    nothing was killed" in whole
    assert not any("--all" in line for line in whole)


@pytest.mark.parametrize(("height", "times"), [(12, 2), (60, 1)])
def test_the_verdict_stays_on_the_screen(height: int, times: int) -> None:
    """Where the report is longer than the terminal is high, it ends with the verdict."""
    output = io.StringIO()
    terminal = Console(file=output, width=80, height=height, force_terminal=True, color_system=None, soft_wrap=True)
    print_diagnosis(terminal, diagnosed(Scope.NODE, Verdict.DEGRADED), UTC)
    shown = output.getvalue().splitlines()
    assert sum("DEGRADED" in line for line in shown) == times
    assert ("DEGRADED" in shown[-1]) is (times == 2)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_check_never_breaks_its_line(width: int) -> None:
    """The limit goes below where the line has no room for it; the value stays whole."""
    value, limit = "74% (5 min), 98% (1 min)", "under 60%, or under 2 threads for each core"
    checks = [
        Check("pressure-cpu", "waiting for the CPU", Level.LOOK, value, limit, "more work than cores"),
        Check("nic-timeouts", "network queue timeouts", Level.WELL, "none since boot"),
    ]
    checkup = Checkup("node-7", 6.0, checks, Diagnosis("node-7", (0, 10), (0, 10), Verdict.HEALTHY, []))
    shown = [line.plain for line in checkup_lines(checkup, UTC, width)]
    assert max(map(len, shown)) <= width
    first = next(line for line in shown if "● waiting for the CPU" in line)
    assert value in first
    assert first.endswith("look")
    assert limit.rsplit(maxsplit=1)[-1] in " ".join(shown)
    assert (limit in first) is (width == 120)


@pytest.mark.parametrize(("height", "times"), [(8, 2), (60, 1)])
def test_the_verdict_of_a_checkup_stays_on_the_screen(height: int, times: int) -> None:
    checks = [Check(f"check-{i}", f"check {i}", Level.LOOK, "3 of 4", "under 2") for i in range(12)]
    checkup = Checkup("node-7", 6.0, checks, Diagnosis("node-7", (0, 10), (0, 10), Verdict.HEALTHY, []))
    output = io.StringIO()
    terminal = Console(file=output, width=80, height=height, force_terminal=True, color_system=None, soft_wrap=True)
    print_checkup(terminal, checkup, UTC)
    shown = output.getvalue().splitlines()
    assert sum(line.startswith(f" {checkup.level.upper()} ") for line in shown) == times
    assert shown[-1].startswith(f" {checkup.level.upper()} ") is (times == 2)


def test_a_pipe_gets_the_verdict_once() -> None:
    output = io.StringIO()
    print_diagnosis(Console(file=output, width=80, height=5), diagnosed(Scope.NODE, Verdict.DEGRADED), UTC)
    assert output.getvalue().count("DEGRADED") == 1
