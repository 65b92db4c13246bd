"""Recordings of real scenarios, kept small: the engine finds in them what the lab made, and says what it can't see."""

import platform
import re
from pathlib import Path

import pytest
from tests.diagnose.evidence_check import untrue
from tests.diagnose.incidents.recordings import (
    HERE,
    SCENARIOS,
    STACKS,
    both,
    diagnosed,
    diagnosis_of,
    expected,
    finding_of,
    grave,
    without,
)
from tests.parts import sampled

from exhume.lab.scenarios import SCENARIOS as PLAYED
from exhume.model.finding import Role, Severity
from exhume.model.tables import TABLES
from exhume.store.read.recording import Recording

TROUBLES = [name for name in SCENARIOS if expected(name)["expected"] != "nothing"]
MOST_BYTES = 150_000
OF_A_MACHINE = re.compile(r"/(tmp|work|home|root|opt|mnt|var/lib|var/tmp)/|site-packages|\.venv|exhume-lab-test")


def test_every_scenario_is_kept():
    """But heavy healthy work, which is played by the score: recordings of it are as large as the work."""
    assert set(SCENARIOS) == {name for name, scenario in PLAYED.items() if not scenario.heavy}


@pytest.mark.parametrize("scenario", sampled(SCENARIOS))
def test_a_kept_recording_is_small_and_anonymous(scenario: str):
    assert sum(file.stat().st_size for file in (HERE / scenario).rglob("*") if file.is_file()) < MOST_BYTES
    recording = Recording.open(HERE / scenario)
    assert recording.facts.node == "node-1"
    reported = [str(value) for table in TABLES for row in recording.read(table).to_pylist() for value in row.values()]
    assert not [text for text in reported if OF_A_MACHINE.search(text) or platform.node() in text.split()]


@pytest.mark.parametrize("scenario", TROUBLES)
def test_what_the_lab_made_is_found(scenario: str):
    wanted = expected(scenario)
    best = diagnosed(scenario).findings[0]
    assert best.cause == wanted["expected"]
    assert str(best.severity) == wanted["top"]["severity"]
    assert best.culprit.cpu == wanted["top"]["cpu"]
    assert best.culprit.comm == wanted["top"]["comm"]
    assert best.confidence >= 0.5
    if PLAYED[scenario].on_core:
        assert best.culprit.cpu == wanted["core"]
    assert best.chain
    assert all(link.evidence or link.role in (Role.ROOT_CAUSE, Role.CULPRIT) for link in best.chain)


def test_a_healthy_machine_is_left_in_peace():
    assert grave(diagnosed("quiet")) == []


@pytest.mark.parametrize("scenario", sampled(SCENARIOS))
def test_what_is_quoted_is_recorded(scenario: str):
    assert untrue(Recording.open(HERE / scenario), diagnosed(scenario)) == []


@pytest.mark.parametrize("scenario", sampled(TROUBLES))
def test_without_stacks_it_is_less_sure_and_says_so(scenario: str, tmp_path: Path):
    whole = diagnosed(scenario).findings[0]
    blind = diagnosis_of(without(scenario, STACKS, tmp_path))
    assert "blind-spot.stacks" in [spot.code for spot in blind.blind_spots]
    found = finding_of(blind, whole.cause)
    if found is None:
        # Then it says why it can't tell.
        assert [ruled.code for ruled in blind.ruled_out if ruled.cause == whole.cause]
    elif any(evidence.table == "samples" for link in whole.chain for evidence in link.evidence):
        assert found.confidence < whole.confidence
        assert found.doubts
    assert not any(
        evidence.table == "samples" for each in blind.findings for link in each.chain for evidence in link.evidence
    )


@pytest.mark.parametrize("scenario", sampled(SCENARIOS, every=8))
@pytest.mark.parametrize(
    "tables", [("events",), ("cgroups", "cgroup_events"), ("node",), ("threads",), ("throttling",)]
)
def test_without_a_table_it_is_never_surer_and_never_alarms_more(
    scenario: str, tables: tuple[str, ...], tmp_path: Path
):
    whole = diagnosed(scenario)
    less = diagnosis_of(without(scenario, tables, tmp_path))
    for finding in less.findings:
        known = finding_of(whole, finding.cause)
        if known is not None:
            assert finding.confidence <= known.confidence + 0.01, finding.cause
    if expected(scenario)["expected"] == "nothing":
        assert grave(less) == []


PAIRS = [
    ("rt-hog", "memory-reclaim"),
    ("fork-storm", "softirq-storm"),
    ("negative-dentries", "oom-thrash"),
    ("crash-loop", "spinlock-contention"),
    ("writeback-storm", "iptables-churn"),
    ("page-fault-storm", "fork-storm"),
    ("page-fault-storm", "oom-thrash"),
    ("crash-loop", "oom-thrash"),
]


@pytest.mark.parametrize("pair", sampled(PAIRS), ids="+".join)
def test_two_causes_at_once_are_two_findings(pair: tuple[str, str], tmp_path: Path):
    causes = {expected(scenario)["expected"] for scenario in pair}
    found = diagnosis_of(both(*pair, tmp_path))
    assert causes <= {finding.cause for finding in found.findings}


def test_the_chain_is_complete():
    """The reset, the core, the function and its process, the zombies against what is visible, and who leaks them."""
    best = diagnosed("incident").findings[0]
    reported = " ".join([best.summary, *(link.text for link in best.chain)])
    assert best.severity is Severity.CRITICAL
    assert (best.culprit.comm, best.culprit.cpu) == ("kubelet", expected("incident")["core"])
    assert best.culprit.function in reported and "zombie" in reported and "visible" in reported
    assert "ecs-agent" in reported
    assert "Device reset completed" in reported or "paused for too long" in reported
    assert any("ecs-agent" in remedy.target or "ecs-agent" in remedy.command for remedy in best.remedies)
