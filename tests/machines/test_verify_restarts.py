"""A real crash loop of a real systemd: its restarts are measured, it is stopped, and that is proved."""

import time
from pathlib import Path

import pytest
from machine_units import write_units
from nspawn_machine import Machine

from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.control import SystemdControl
from exhume.collect.systemd.journal import unit_history
from exhume.model.clock import SystemClock
from exhume.model.remedy import Change, Effect, Measure
from exhume.remedy.verify.baseline import take_baseline
from exhume.remedy.verify.restarts import NodeRestarts
from exhume.remedy.verify.watch import Claim, verify

pytestmark = [pytest.mark.root, pytest.mark.needs("systemd-nspawn", "debootstrap", "nsenter", "journalctl")]

LOOPS = Effect(Measure.RESTARTS, "stop", "loops.service")


def test_a_crash_loop_that_is_stopped_is_proved(tree: Path):
    with Machine(tree) as machine:
        write_units(machine)
        machine.boot()
        machine.wait_for_restarts("loops.service", 1)
        node = NodeRoot(machine.root)
        restarts = NodeRestarts(node)
        try:
            baseline = take_baseline(node.host, [LOOPS], 6.0, restarts=restarts)
            assert baseline.observed[0].amount >= 5
            began = SystemClock().wall_ns()
            goes_on = Claim("1", "node", "loops.service", (LOOPS,), began, began, baseline=baseline)
            (still,) = verify(goes_on, node.host, 4.0, restarts=restarts).verification.measures
            assert still.change is not Change.IMPROVED
            with SystemdControl(node) as control:
                assert control.stop("loops.service") == "done"
            proof = verify(goes_on, node.host, 8.0, restarts=restarts)
        finally:
            restarts.close()
    (measure,) = proof.verification.measures
    assert (measure.change, measure.as_expected) == (Change.IMPROVED, True), measure


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


def test_starts_that_systemd_does_not_count_are_counted_and_end_when_it_is_stopped(tree: Path):
    with Machine(tree) as machine:
        machine.write_unit("driven.path", DRIVER, wanted_by="multi-user.target")
        machine.write_unit("driven.service", DRIVEN)
        machine.boot()
        node = NodeRoot(machine.root)
        restarts = NodeRestarts(node)
        try:
            first = restarts.count("driven.service")
            assert first is not None
            machine.wait_until("it was seen to start", lambda: (restarts.count("driven.service") or 0) >= first + 3)
            assert machine.show("driven.service", "NRestarts") == {"NRestarts": "0"}
            machine.run("systemctl", "stop", "driven.path", "driven.service")
            ended = restarts.count("driven.service")
            time.sleep(1.0)
            # One that systemd forgot meanwhile counts for none.
            assert restarts.count("driven.service") in (ended, 0)
        finally:
            restarts.close()
        told = unit_history(node, ["driven.service"], 1.0)["driven.service"]
    assert len(told.restarted_at) >= 3 and told.restarts_per_hour == 0


def test_what_is_not_there_is_not_started_again_and_what_can_t_be_asked_is_told(tree: Path, tmp_path: Path):
    with Machine(tree) as machine:
        machine.boot()
        restarts = NodeRestarts(NodeRoot(machine.root))
        try:
            assert restarts.count("nobody.service") == 0
            assert restarts.count("docker:nobody") is None
            assert "docker" in restarts.why_not("docker:nobody")
            assert restarts.count("cri:nobody") is None
        finally:
            restarts.close()
    gone = NodeRestarts(NodeRoot(tmp_path))
    assert gone.count("loops.service") is None
    assert "no D-Bus" in gone.why_not("loops.service")
