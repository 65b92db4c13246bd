"""Two machines of one image: on one a bootstrap failed, so that its agent never started; on the other it crash-loops.
What their audits say differs in just that."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.system.machines.exhume_outside import Exhume, Program
from tests.system.machines.made_up_units import crash_loops, install_package, made_up_name, works
from tests.system.machines.nspawn_machine import Machine

pytestmark = [pytest.mark.root, pytest.mark.needs("systemd-nspawn", "debootstrap", "nsenter", "setpriv", "dpkg-deb")]

BOOTSTRAP, AGENT, OTHER = (made_up_name() for _ in range(3))
# What differs between any two looks: clocks, process numbers, counters.
MOVES = {"pid", "started", "age_seconds", "restarts", "at", "costs", "history", "cgroup", "created", "log"}
MINUTE = re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b")


def bootstrap() -> str:
    return """[Unit]
Description=Joins the cluster
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'test ! -e /etc/no-metadata || { echo "metadata: no answer" >&2; exit 22; }'
"""


@pytest.fixture(scope="module")
def audits(
    tree: Path, program: Program, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Of the machine where the bootstrap failed, and of the one where it did not."""
    with ExitStack() as stack:
        reported = []
        for number in range(2):
            machine = stack.enter_context(Machine(tree))
            units = {
                BOOTSTRAP: bootstrap(),
                AGENT: crash_loops(unit=f"Requires={BOOTSTRAP}\nAfter={BOOTSTRAP}"),
                OTHER: works(),
            }
            install_package(machine, "two-of-a-kind", units, tmp_path_factory.mktemp("package"))
            if number == 0:
                machine.write("/etc/no-metadata", "")
            machine.boot()
            if number == 1:
                machine.wait_for_restarts(AGENT, 6)
            said = Exhume(program, machine, tmp_path_factory.mktemp("work")).audit("--all", "--json")
            assert said.code == 1, said.err
            reported.append(said.json())
        yield reported[0], reported[1]


def still(value: Any) -> Any:
    """Without what moves by itself; in sentences too, which name the minute of the first boot."""
    if isinstance(value, dict):
        return {key: still(each) for key, each in value.items() if key not in MOVES}
    if isinstance(value, str):
        return MINUTE.sub("then", value)
    return [still(each) for each in value] if isinstance(value, list) else value


def shape(value: Any) -> Any:
    """Which fields there are."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in value.items()}
    return None


def by_id(audit: dict[str, Any]) -> dict[str, Any]:
    return {each["id"]: each for each in audit["services"]}


def test_just_the_bootstrap_and_its_agent_differ(audits: tuple[dict[str, Any], dict[str, Any]]):
    one, other = (by_id(audit) for audit in audits)
    assert one.keys() == other.keys()
    assert {name for name in one if still(one[name]) != still(other[name])} == {BOOTSTRAP, AGENT}


def test_why_the_one_did_not_start_and_that_the_other_loops(audits: tuple[dict[str, Any], dict[str, Any]]):
    never, loops = (by_id(audit)[AGENT] for audit in audits)
    assert never["traits"][0] == "dependency-failed" and loops["traits"][0] == "crash-loop"
    assert never["wants"]["failed"] == [BOOTSTRAP] and loops["wants"]["failed"] == []
    (why,) = [sentence for sentence in never["explained"] if BOOTSTRAP in sentence]
    assert "22" in why or any("22" in sentence for sentence in never["explained"])
    assert not any(BOOTSTRAP in sentence for sentence in loops["explained"])
    failed, done = (by_id(audit)[BOOTSTRAP] for audit in audits)
    assert failed["traits"][0] == "failed" and failed["last_exit"]["code"] == 22
    assert done["state"] == "active" and "failed" not in done["traits"]


def test_both_have_the_same_fields_in_the_same_order(audits: tuple[dict[str, Any], dict[str, Any]]):
    one, other = audits
    assert list(one) == list(other)
    fields = {tuple(each) for audit in audits for each in audit["services"]}
    assert len(fields) == 1
