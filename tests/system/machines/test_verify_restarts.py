"""A real crash loop of a real systemd: its restarts are measured, it is stopped, and that is proved."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.machines.machine_units import write_units
from tests.system.machines.nspawn_machine import Machine

from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.journal import unit_history
from exhume.control.systemd import SystemdControl
from exhume.model.clock import SystemClock
from exhume.model.remedy import Change, Effect, Measure, Step, Verified
from exhume.remedy.ledger import Entry, Fix, Mark
from exhume.remedy.verify.proof import Baseline, take_baseline, verify
from exhume.remedy.verify.restarts import NodeRestarts

pytestmark = [pytest.mark.root, pytest.mark.needs("systemd-nspawn", "debootstrap", "nsenter", "journalctl")]

LOOPS = Effect(Measure.RESTARTS, "stop", "loops.service")


# A path that is there starts it as often as it ends; systemd counts none of that as a restart.
DRIVER = """
[Path]
PathExists=/etc/machine-id
TriggerLimitIntervalSec=0
"""
DRIVEN = """
[Unit]
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh -c 'sleep 0.3; exit 6'
"""


@pytest.fixture(scope="module")
def machine(tree: Path) -> Iterator[Machine]:
    with Machine(tree) as made:
        write_units(made)
        made.write_unit("driven.path", DRIVER)
        made.write_unit("driven.service", DRIVEN)
        made.boot()
        yield made


@pytest.fixture
def node(machine: Machine) -> NodeRoot:
    return NodeRoot(machine.root)


@pytest.fixture
def restarts(node: NodeRoot) -> Iterator[NodeRestarts]:
    made = NodeRestarts(node)
    yield made
    made.close()


def looped_often(node: NodeRoot, restarts: NodeRestarts) -> Baseline:
    """How it was before, over as long as it took to see that it loops: a machine that is held up needs longer."""
    for seconds in (6.0, 20.0, 60.0):
        baseline = take_baseline(node.host, [LOOPS], seconds, restarts=restarts)
        if baseline.observed[0].amount >= 5:
            break
    return baseline


def watched_as_it_looped(machine: Machine, fix: Fix, restarts: NodeRestarts, pace: float) -> Verified:
    """The verdict on some seconds in which it looped at half its pace at the least: it is the
    machine's doing if it did not."""
    for _ in range(6):
        first, began = counted(machine), time.monotonic()
        (found,) = verify(fix, NodeRoot(machine.root).host, 4.0, restarts=restarts).verification.measures
        if counted(machine) - first >= pace * (time.monotonic() - began) / 2:
            break
    return found


def answered(machine: Machine, restarts: NodeRestarts, subject: str) -> int:
    """How often it was started again. An answer that takes longer than a look may wait for it is none."""
    reported: list[int | None] = []
    machine.wait_until("systemd answers", lambda: reported.append(restarts.count(subject)) or reported[-1] is not None)
    assert reported[-1] is not None
    return reported[-1]


def counted(machine: Machine) -> int:
    return int(machine.show(LOOPS.subject, "NRestarts")["NRestarts"])


def test_a_crash_loop_that_is_stopped_is_proved(machine: Machine, node: NodeRoot, restarts: NodeRestarts):
    machine.wait_for_restarts(LOOPS.subject, 1)
    baseline = looped_often(node, restarts)
    before = baseline.observed[0]
    assert before.amount >= 5
    began = SystemClock().wall_ns()
    step = Step("stop", "Stop it", "it fails", action="stop", effects=(LOOPS,))
    goes_on = Fix(
        "1", "node", "", "/", "", LOOPS.subject, "It is stopped.", began, (Entry(step, Mark.DONE),),
        baseline=baseline.to_dict(), applied_at=began, finished_at=began,
    )  # fmt: skip
    still = watched_as_it_looped(machine, goes_on, restarts, before.amount / before.seconds)
    assert still.change is not Change.IMPROVED, still
    with SystemdControl(node) as control:
        assert control.stop(LOOPS.subject) == "done"
    # The less often it came, the longer it has to stay away.
    for seconds in (8.0, 25.0, 75.0):
        (measure,) = verify(goes_on, node.host, seconds, restarts=restarts).verification.measures
        if measure.change is not Change.UNPROVEN:
            break
    assert (measure.change, measure.as_expected) == (Change.IMPROVED, True), measure


def test_starts_that_systemd_does_not_count_are_counted_and_end_when_it_is_stopped(
    machine: Machine, node: NodeRoot, restarts: NodeRestarts
):
    first = answered(machine, restarts, "driven.service")
    machine.run("systemctl", "start", "driven.path")
    machine.wait_until("it was seen to start", lambda: (restarts.count("driven.service") or 0) >= first + 3)
    assert machine.show("driven.service", "NRestarts") == {"NRestarts": "0"}
    machine.run("systemctl", "stop", "driven.path", "driven.service")
    ended = answered(machine, restarts, "driven.service")
    time.sleep(1.0)
    # One that systemd forgot meanwhile counts for none.
    assert answered(machine, restarts, "driven.service") in (ended, 0)
    machine.write_journal()
    reported = unit_history(node, ["driven.service"], 1.0)["driven.service"]
    assert len(reported.restarted_at) >= 3 and reported.restarts_per_hour == 0


def test_missing_units_are_not_started_and_unreachable_ones_reported(restarts: NodeRestarts, tmp_path: Path):
    assert restarts.count("nobody.service") == 0
    assert restarts.count("docker:nobody") is None
    assert "docker" in restarts.why_not("docker:nobody")
    assert restarts.count("cri:nobody") is None
    gone = NodeRestarts(NodeRoot(tmp_path))
    assert gone.count(LOOPS.subject) is None
    assert "no D-Bus" in gone.why_not(LOOPS.subject)
