"""`exhume audit` of a real systemd: units that crash-loop, fail, are kept from starting, and work."""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.system.machines.exhume_outside import PROGRAM, SOURCE, Exhume, Program
from tests.system.machines.made_up_units import (
    Strange,
    configure,
    crash_loops,
    fails_once,
    install_package,
    made_up_name,
    works,
)
from tests.system.machines.nspawn_machine import PACKAGED_UNITS, Machine

from exhume.cli import exit_codes

pytestmark = [pytest.mark.root, pytest.mark.needs("systemd-nspawn", "debootstrap", "nsenter", "setpriv", "dpkg-deb")]

# One that the catalogue has.
KNOWN = "datadog-agent.service"


@dataclass(frozen=True)
class Node:
    """A machine with one of each, under names that nobody knows."""

    machine: Machine
    exhume: Exhume
    loops: str
    fails: str
    unmet: str
    bootstrap: str
    agent: str
    further: str
    base: str
    upon: str
    later: str
    strange: Strange = field(default_factory=Strange.named)


@pytest.fixture(scope="module")
def node(tree: Path, program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    scratch = tmp_path_factory.mktemp("node")
    with Machine(tree) as machine:
        made = Node(machine, Exhume(program, machine, scratch / "work"), *(made_up_name() for _ in range(9)))
        units = {
            made.loops: crash_loops(says="no cluster to join", code=5),
            KNOWN: crash_loops(says="no API key", code=255),
            made.fails: fails_once(3, says="disk is on fire"),
            made.unmet: works("ConditionPathExists=/etc/never/made"),
            made.bootstrap: fails_once(7, says="no metadata"),
            made.agent: works(f"Requires={made.bootstrap}\nAfter={made.bootstrap}"),
            made.further: works(f"BindsTo={made.agent}\nAfter={made.agent}"),
            made.base: works(),
            made.upon: works(f"Requires={made.base}\nAfter={made.base}"),
        }
        install_package(machine, "made-up-agents", units, scratch)
        install_package(machine, "strange-agents", made.strange.units(), scratch, enable=False)
        for name in made.strange.started:
            machine.enable(name, "multi-user.target", below=PACKAGED_UNITS)
        made.strange.put(machine)
        machine.boot()
        made.strange.call(machine)
        # Well after the second in which the machine was given its id: what is made in that one is still of the image.
        machine.wait_for_restarts(made.loops, 6)
        machine.wait_for_restarts(KNOWN, 6)
        configure(machine, {made.later: works()})
        yield made


@pytest.fixture(scope="module")
def audit(node: Node) -> dict[str, Any]:
    said = node.exhume.audit("--all", "--json")
    assert said.code == 1, said.err
    return said.json()


def row(audit: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [each for each in audit["services"] if each["id"] == name]
    return found


def test_a_unit_that_crash_loops(node: Node, audit: dict[str, Any]):
    found = row(audit, node.loops)
    assert found["traits"][0] == "crash-loop"
    assert found["restarts"] >= 6
    assert found["last_exit"]["code"] == 5
    # All but the one that may run right now.
    assert found["history"]["failures"] >= found["history"]["starts"] - 1 > 4
    assert found["history"]["success_rate"] < 0.2
    assert found["history"]["restarts_per_hour"] > 60
    # "always a few seconds old", unless the machine held one of its runs up.
    assert re.search(r"the last \d+ runs lasted \d+\.\d+ s to ", found["history"]["age_pattern"])
    assert any("no cluster to join" in line for line in found["log"])
    assert found["provenance"]["origin"] == "image"
    assert found["provenance"]["package"] == "made-up-agents"
    # Nobody knows what it is for, and it was given seconds so far.
    assert found["need"]["needed"] == "unknown" and "went well" in found["need"]["why"]
    assert found["wants"]["wanted_by"] == ["multi-user.target"]


def test_a_known_agent_that_lacks_what_it_needs(node: Node, audit: dict[str, Any]):
    found = row(audit, KNOWN)
    assert found["traits"][0] == "crash-loop" and found["agent"]["id"] == "datadog"
    assert found["need"]["needed"] == "no" and "API key" in found["need"]["why"]
    # The same agent with what it needs is another story.
    node.machine.write("/etc/datadog-agent/datadog.yaml", "api_key: 0123456789abcdef\n")
    given = row(node.exhume.audit("--json", KNOWN).json(), KNOWN)
    node.machine.run("rm", "-r", "/etc/datadog-agent")
    assert given["traits"][0] == "crash-loop" and given["need"]["needed"] != "no"
    assert not given["agent"]["lacks"]


def test_a_unit_that_failed(node: Node, audit: dict[str, Any]):
    found = row(audit, node.fails)
    assert found["traits"][0] == "failed"
    assert (found["state"], found["result"], found["last_exit"]["code"]) == ("failed", "exit-code", 3)
    assert any("disk is on fire" in line for line in found["log"])


def test_a_unit_whose_condition_does_not_hold(node: Node, audit: dict[str, Any]):
    found = row(audit, node.unmet)
    assert "condition-failed" in found["traits"]
    assert not {"failed", "crash-loop", "dependency-failed"} & set(found["traits"])
    assert any("/etc/never/made" in sentence for sentence in found["explained"])


@pytest.mark.parametrize("unit", ["agent", "further"])
def test_a_unit_whose_bootstrap_failed_was_not_started_and_that_is_why(node: Node, audit: dict[str, Any], unit: str):
    found = row(audit, getattr(node, unit))
    assert found["traits"][0] == "dependency-failed"
    assert node.bootstrap in found["wants"]["failed"]
    assert any(node.bootstrap in sentence for sentence in found["explained"])
    assert row(audit, node.bootstrap)["traits"][0] == "failed"


def test_units_that_work(node: Node, audit: dict[str, Any]):
    base = row(audit, node.base)
    assert not {"failed", "crash-loop", "flapping", "dependency-failed"} & set(base["traits"])
    assert base["need"]["needed"] == "yes" and node.upon in base["need"]["why"]
    assert row(audit, node.later)["provenance"]["origin"] == "configured"
    assert row(audit, node.upon)["provenance"]["origin"] == "image"


def test_what_the_init_system_itself_stands_on_is_needed(audit: dict[str, Any]):
    for name in ("dbus.service", "systemd-journald.service"):
        assert row(audit, name)["need"]["needed"] == "yes", name


def test_only_those_in_trouble_are_in_trouble(node: Node, audit: dict[str, Any]):
    troubles = {"failed", "crash-loop", "flapping", "dependency-failed"}
    in_trouble = {each["id"] for each in audit["services"] if troubles & set(each["traits"])}
    expected = {node.loops, node.fails, node.bootstrap, node.agent, node.further, KNOWN}
    assert in_trouble == expected | node.strange.troubled
    assert [each["id"] for each in audit["services"]] == sorted(each["id"] for each in audit["services"])


def test_each_service_that_is_down_has_its_reason(node: Node, audit: dict[str, Any]):
    for name, words in node.strange.reasons().items():
        found = row(audit, name)
        reported = "; ".join(found["explained"])
        assert all(each in reported for each in words), (name, words, reported)
        # What may be needed is to be mended: the first command shows more of why.
        looked_at = node.strange.served if name == node.strange.socket else name
        assert found["look"] == f"journalctl -e -u {looked_at}"
    assert row(audit, node.strange.instance("one"))["explained"] == []
    assert row(audit, node.agent)["look"] == f"journalctl -e -u {node.bootstrap}"
    assert row(audit, node.strange.limit)["start_limit"] and not row(audit, node.fails)["start_limit"]
    assert row(audit, node.strange.environment)["absent"] == ["EnvironmentFile=/etc/strange/env"]


def test_the_text_names_the_next_step(node: Node):
    said = node.exhume.audit()
    assert said.code == 1
    for name in (node.loops, node.fails, node.bootstrap, node.agent):
        assert name in said.out
    # What keeps others from starting comes before what only failed itself.
    assert said.out.index(node.bootstrap) < said.out.index(node.fails)
    assert node.later not in said.out
    assert said.out.index(node.loops) < said.out.index(node.fails)
    assert "exhume fix plan" in said.out + said.err


def test_a_plan_for_everything_is_about_what_is_not_needed_and_nothing_else(node: Node):
    said = node.exhume.fix("plan", "--json")
    assert said.code == 0, said.err
    assert {target for step in said.json()["steps"] for target in step["targets"]} == {KNOWN}


def test_a_node_with_only_its_bus_mounted_is_audited(node: Node):
    """As a container that has the host's bus at its usual place, and nothing else of it."""
    words = [sys.executable, "-c", PROGRAM, "audit", "--all", "--json"]
    done = node.machine.beside(*words, environment={"PYTHONPATH": str(SOURCE)})
    assert done.returncode == 1, done.stderr
    audit = json.loads(done.stdout)
    reported = {each["id"]: each for each in audit["services"] if each["manager"] == "systemd"}
    assert reported[node.loops]["traits"][0] == "crash-loop"
    assert reported[node.agent]["traits"][0] == "dependency-failed"
    assert node.bootstrap in reported[node.agent]["wants"]["failed"]
    assert reported[node.fails]["traits"][0] == "failed"
    assert any("journal" in sentence for sentence in audit["blind_spots"])


def test_a_machine_without_a_bus_says_so(program: Program, tmp_path: Path):
    said = program.run("audit", "--json", "--root", str(tmp_path))
    assert said.code == exit_codes.NO_DATA
    assert "D-Bus" in said.err
    assert "Traceback" not in said.err
