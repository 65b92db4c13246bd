"""A crash loop under a real systemd with cgroup v2, on a machine so slow that systemd takes many seconds to answer: it
is audited, diagnosed, stopped, verified and rolled back."""

import json
import time
from collections.abc import Iterator

import pytest
from tests.system.machines.machine_tree import machine_tree
from tests.system.vm.vm_disks import PYTHON
from tests.system.vm.vm_kernel import KERNELS
from tests.system.vm.vm_machine import Machine

# The tests follow each other: each goes on where the one before left the unit.
pytestmark = [pytest.mark.vm, pytest.mark.root, pytest.mark.needs("debootstrap"), pytest.mark.timeout(2400)]
UNIT = "telemetry-agent.service"
DROP_IN = f"/etc/systemd/system/{UNIT}.d/90-exhume.conf"
# Waits of a machine that may get a tenth of a core.
SLOW_S = 900.0
RESTARTS = 6
PROGRAM = """#!/bin/sh
# Each run makes a memory cgroup that one page of a file keeps after the end.
top=/sys/fs/cgroup/telemetry
mkdir -p $top /var/lib/telemetry
echo +memory >$top/cgroup.subtree_control
mkdir $top/run-$$
sh -c "echo \\$\\$ >$top/run-$$/cgroup.procs; echo page >/var/lib/telemetry/run-$$"
rmdir $top/run-$$
echo "no collector to report to" >&2
exit 1
"""
SERVICE = """[Unit]
Description=Reports to a collector
StartLimitIntervalSec=0
[Service]
ExecStart=/usr/local/bin/telemetry-agent
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with Machine(KERNELS["6.1-v2"], systemd_tree=machine_tree()) as booted:
        for path, text in (("/usr/local/bin/telemetry-agent", PROGRAM), (f"/etc/systemd/system/{UNIT}", SERVICE)):
            booted.run(
                str(PYTHON), "-c", "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])", path, text
            )
        booted.shell("chmod 755 /usr/local/bin/telemetry-agent; systemctl daemon-reload", SLOW_S)
        booted.shell(f"systemctl enable --now {UNIT}", SLOW_S)
        wait_for_restarts(booted, RESTARTS)
        yield booted


def restarts(machine: Machine) -> int:
    return int(machine.shell(f"systemctl show --property NRestarts --value {UNIT}", SLOW_S))


def wait_for_restarts(machine: Machine, more: int) -> None:
    least = restarts(machine) + more
    deadline = time.monotonic() + SLOW_S
    while restarts(machine) < least:
        assert time.monotonic() < deadline, machine.run("systemctl", "status", UNIT).out
        time.sleep(1)


def state(machine: Machine) -> str:
    return machine.shell(f"systemctl show --property ActiveState --value {UNIT}", SLOW_S).strip()


def test_it_is_named_by_the_audit(machine: Machine) -> None:
    audit = machine.exhume_json("audit", codes=(1,), seconds=SLOW_S)
    assert audit["managers"] == ["systemd"]
    # All that may be missing on so slow a machine is what is not even loaded.
    assert not [spot for spot in audit["blind_spots"] if spot.startswith("units were not looked at")]
    (service,) = [each for each in audit["services"] if each["key"] == UNIT]
    assert service["troubled"] and service["restarts"] >= RESTARTS
    assert (service["restart_policy"], service["last_exit"]["code"]) == ("always", 1)


def test_it_is_named_by_the_diagnosis(machine: Machine) -> None:
    machine.exhume("record", "--dir", "/var/recording", "--for", "60s", seconds=SLOW_S)
    report = machine.exhume_json("diagnose", "--dir", "/var/recording", codes=(0, 1), seconds=SLOW_S)
    assert UNIT in json.dumps(report["findings"]), report


def test_the_plan_holds_it_back_and_changes_nothing(machine: Machine) -> None:
    plan = machine.exhume_json("fix", "plan", UNIT, "--no-zombies", seconds=SLOW_S)
    assert plan["target"] == UNIT and plan["refusals"] == []
    assert DROP_IN in json.dumps(plan["steps"])
    wait_for_restarts(machine, 1)


def test_it_is_stopped_verified_and_rolled_back(machine: Machine) -> None:
    fix = machine.exhume_json("fix", "apply", UNIT, "--yes", "--no-zombies", seconds=SLOW_S)
    assert fix["state"] == "applied"
    assert state(machine) == "inactive"
    before = restarts(machine)
    verdict = verified(machine)
    (measure,) = [each for each in verdict["measures"] if each["measure"] == "restarts"]
    assert (measure["subject"], measure["change"]) == (UNIT, "improved"), verdict
    assert measure["before"]["value"] > 0 and measure["after"]["value"] == 0
    # What is measured of an emulated processor may stay unproven, but is not worse.
    assert verdict["verdict"] in ("proved", "unproven"), verdict
    assert (state(machine), restarts(machine)) == ("inactive", before)
    rolled_back = machine.exhume_json("fix", "rollback", seconds=SLOW_S)
    assert rolled_back["state"] == "rolled-back"
    machine.shell(f"test ! -e {DROP_IN}")
    wait_for_restarts(machine, 2)


def verified(machine: Machine) -> dict:
    """What `fix verify` finds, with more time where it asks for it."""
    for length in ("60s", "240s", "600s"):
        verdict = machine.exhume_json("fix", "verify", "--for", length, codes=(0, 1), seconds=SLOW_S + 300)
        if verdict["verdict"] != "unproven":
            break
    return verdict
