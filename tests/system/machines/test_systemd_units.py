"""What is read off a real systemd from beside it: over the bus, at its own socket, and from the journal."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.system.machines.machine_units import write_units
from tests.system.machines.nspawn_machine import Machine

from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.bus import Bus, BusError
from exhume.collect.systemd.facts import BusUnits
from exhume.collect.systemd.journal import unit_history, unit_log
from exhume.collect.systemd.units import read_services
from exhume.collect.vitals import failed_units
from exhume.control.systemd import BusOrders, SystemdControl
from exhume.model.audit import Service

pytestmark = [pytest.mark.root, pytest.mark.needs("systemd-nspawn", "debootstrap", "nsenter", "journalctl")]


@pytest.fixture(scope="module")
def machine(tree: Path) -> Iterator[Machine]:
    with Machine(tree) as machine:
        write_units(machine)
        machine.boot()
        machine.wait_for_restarts("loops.service", 4)
        machine.wait_for_restarts("loops-before.service", 2)
        machine.wait_for_failure("killed.service")
        yield machine


@pytest.fixture(scope="module")
def node(machine: Machine) -> NodeRoot:
    return NodeRoot(machine.root)


@pytest.fixture(scope="module")
def services(node: NodeRoot) -> dict[str, Service]:
    seen = read_services(node)
    assert seen.blind_spots == []
    assert [each.id for each in seen.services] == sorted(each.id for each in seen.services)
    return {each.id: each for each in seen.services}


def test_a_crash_loop_has_its_history(services: dict[str, Service]):
    loops = services["loops.service"]
    assert loops.restarts is not None and loops.restarts >= 4
    assert (loops.restart_policy, loops.enabled, loops.fragment) == (
        "always",
        "enabled",
        "/etc/systemd/system/loops.service",
    )
    assert loops.last_exit is not None and loops.last_exit.code == 5
    assert set(loops.log) == {"no permission to join"}
    assert loops.wants.wanted_by == ("multi-user.target",)
    past = loops.history
    assert past is not None
    assert past.starts >= 4
    assert past.starts - past.failures in (0, 1)
    assert {each.code for each in past.exits} == {5}
    assert past.age_pattern.startswith(("never a second old: the last ", "always a few seconds old: the last "))
    assert past.restarts_per_hour is not None and past.restarts_per_hour > 100
    assert past.success_rate is not None and past.success_rate < 0.3


def test_the_first_cause_of_one_that_was_never_started_is_named(services: dict[str, Service]):
    waits, between, bootstrap = (services[f"{name}.service"] for name in ("waits", "between", "bootstrap"))
    assert (bootstrap.state, bootstrap.result, bootstrap.wants.failed) == ("failed", "exit-code", ())
    assert bootstrap.last_exit is not None and bootstrap.last_exit.code == 22
    assert bootstrap.log == ("fetch failed",)
    assert between.wants.failed == ("bootstrap.service",)
    assert (waits.state, waits.started, waits.result) == ("inactive", None, "dependency")
    assert waits.wants.failed == ("between.service", "bootstrap.service")
    assert waits.history is not None and waits.history.starts == 0
    assert any("Dependency failed" in line for line in waits.log)


def test_a_requirement_that_does_not_exist_is_named(services: dict[str, Service]):
    assert services["orphan.service"].wants.failed == ("never-written.service",)


def test_conditions_have_their_results(services: dict[str, Service]):
    condition = services["condition.service"]
    assert {each.name for each in condition.conditions} == {"ConditionPathExists"}
    assert {each.parameter: each.held for each in condition.conditions} == {"/nowhere/at/all": False, "/etc": True}
    assert (condition.state, condition.result) == ("inactive", "success")
    assert condition.history is not None and condition.history.starts == 0


def test_one_that_works_has_nothing_to_be_said_of(services: dict[str, Service]):
    works = services["works.service"]
    assert (works.state, works.detail, works.result, works.restarts, works.log) == (
        "active",
        "running",
        "success",
        0,
        (),
    )
    assert works.age_s is not None and 0 < works.age_s < 600
    assert works.command == "/bin/sleep infinity"
    assert works.cgroup is not None and works.cgroup.endswith("/system.slice/works.service")
    assert works.history is not None and works.history.success_rate == 1.0


def test_every_start_command_and_directory_is_read(services: dict[str, Service]):
    works, before = services["works.service"], services["loops-before.service"]
    assert (works.starts, works.directory) == (("/bin/sleep infinity",), None)
    assert (before.starts, before.directory) == (("/bin/sh -c 'exit 3'", "/bin/sleep infinity"), "/var/lib")


def test_a_signal_is_no_exit_code(services: dict[str, Service]):
    killed = services["killed.service"]
    assert killed.last_exit is not None
    assert (killed.last_exit.code, killed.last_exit.signal) == (None, 11)
    assert killed.history is not None and killed.history.exits[0].signal == 11


def test_a_failure_before_the_main_process_is_reported(services: dict[str, Service]):
    before = services["loops-before.service"]
    assert before.restarts is not None and before.restarts >= 1
    assert before.last_exit is not None and before.last_exit.code == 3


def test_what_is_enabled_but_not_loaded_and_odd_names_are_seen(services: dict[str, Service]):
    assert services["asleep.service"].state == "inactive"
    assert services["-rf.service"].state == "active"
    assert services["odd\\x20name\\x22.service"].state == "active"


def test_failed_units_are_listed(node: NodeRoot):
    failed = failed_units(node)
    assert {"bootstrap.service", "killed.service"} <= set(failed)
    assert not {"works.service", "waits.service", "condition.service"} & set(failed)


def test_units_only_referred_to_are_not_listed(services: dict[str, Service]):
    assert "never-written.service" not in services


_AT_THE_PRIVATE_SOCKET = """
import json, sys
from pathlib import Path
from exhume.collect.systemd.bus import Bus
from exhume.collect.systemd.facts import BusUnits
from exhume.control.systemd import BusOrders
socket = Path(sys.argv[1])
with BusUnits(Bus(socket)) as units:
    listed, enabled, facts = units.listed(), units.enabled_services(), units.facts(sys.argv[2:])
orders = BusOrders(Bus(socket))
jobs = [("stop", "-rf"), ("start", "-rf"), ("start", "waits"), ("start", "bootstrap"), ("stop", "no-such")]
results = [orders.job(verb, f"{name}.service", 60) for verb, name in jobs]
orders.reload()
commands = {name: unit.command for name, unit in facts.items()}
print(json.dumps({"listed": len(listed), "enabled": enabled, "commands": commands, "results": results}))
"""


def test_without_a_bus_systemd_s_own_socket_gives_the_same(machine: Machine, services: dict[str, Service]):
    """It wants to know the process that asks, so that one has to be in the machine's process namespace."""
    names = [name for name in services if name.endswith(".service")]
    inside = ["nsenter", f"--target={machine.leader}", "--pid", "--", sys.executable, "-c", _AT_THE_PRIVATE_SOCKET]
    socket = os.fspath(machine.root / "run/systemd/private")
    done = subprocess.run([*inside, socket, *names], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    with BusUnits(Bus(NodeRoot(machine.root).bus)) as units:
        assert sorted(found["enabled"]) == sorted(units.enabled_services())
    assert found["listed"] > len(names)
    assert found["commands"] == {name: services[name].command for name in names}
    assert found["results"] == ["done", "done", "dependency", "failed", "done"]


def test_orders_are_waited_for_with_their_results(machine: Machine, node: NodeRoot):
    orders = BusOrders(Bus(node.bus))
    assert orders.job("stop", "-rf.service", 60) == "done"
    assert machine.state("-rf.service") == "inactive"
    assert orders.job("start", "-rf.service", 60) == "done"
    assert machine.state("-rf.service") == "active"
    assert orders.job("start", "waits.service", 60) == "dependency"
    assert orders.job("start", "bootstrap.service", 60) == "failed"
    assert orders.job("stop", "no-such.service", 60) == "done"
    orders.reload()
    orders.close()


def test_a_job_is_waited_for_up_to_its_timeout(machine: Machine, node: NodeRoot):
    with SystemdControl(node) as control:
        assert control.start("stubborn.service") == "done"
        with pytest.raises(BusError, match="did not stop within 1 s"):
            control.stop("stubborn.service", timeout=1)
        # systemd goes on with it, until it is killed in the end.
        machine.later("systemctl kill --signal=KILL stubborn.service", after_s=1)
        assert control.stop("stubborn.service", timeout=60) == "done"
        assert control.unit_state("stubborn.service")["active"] == "failed"
        control.reset_failed("stubborn.service")
        assert control.unit_state("stubborn.service")["active"] == "inactive"


@pytest.mark.parametrize(
    "name", ["a b.service", "$(reboot).service", "ü.service", "x\0y.service", "\udcff.service", "x" * 300]
)
def test_what_can_t_be_a_unit_is_refused_in_a_sentence(node: NodeRoot, name: str):
    with SystemdControl(node) as control:
        with pytest.raises(BusError):
            control.start(name)
        # The connection is still good.
        assert control.unit_state("works.service")["active"] == "active"


def test_a_fingerprint_changes_with_the_unit_and_with_nothing_else(machine: Machine, node: NodeRoot):
    with SystemdControl(node) as control:
        first = control.unit_fingerprint("loops.service")
        machine.wait_for_restarts("loops.service", int(machine.show("loops.service", "NRestarts")["NRestarts"]) + 2)
        assert control.unit_fingerprint("loops.service") == first
        drop_in = machine.write("etc/systemd/system/loops.service.d/own.conf", "[Service]\nNice=1\n")
        control.daemon_reload()
        second = control.unit_fingerprint("loops.service")
        changed = {key for key in first if first[key] != second[key]}
        assert changed == {"drop_ins"}
        drop_in.write_text("[Service]\nNice=2\n")
        assert control.unit_fingerprint("loops.service")["drop_ins"] != second["drop_ins"]
        drop_in.unlink()
        drop_in.parent.rmdir()
        control.daemon_reload()
        assert control.unit_fingerprint("loops.service") == first


def test_the_condition_that_failed_is_named_after_a_reload_too(machine: Machine, node: NodeRoot):
    """systemd itself forgets which one it was."""
    machine.reload()
    (condition,) = (each for each in read_services(node).services if each.id == "condition.service")
    assert {each.parameter: each.held for each in condition.conditions} == {"/nowhere/at/all": False, "/etc": True}


def test_why_one_was_not_started_is_known_after_the_failure_was_forgotten(machine: Machine, node: NodeRoot):
    machine.run("systemctl", "reset-failed")
    reported = {each.id: each for each in read_services(node).services}
    assert reported["bootstrap.service"].state == "inactive"
    assert reported["waits.service"].wants.failed == ("between.service", "bootstrap.service")


def test_what_others_write_into_the_journal_is_not_believed(machine: Machine, node: NodeRoot):
    """Anybody may log systemd's own numbers of messages, with any unit's name."""
    forged = "MESSAGE_ID=d9b373ed55a64feb8242e02dbe79a49c\nUNIT=works.service\nMESSAGE=it failed\n"
    machine.write("var/forged", forged)
    machine.run("sh", "-c", "logger --journald < /var/forged && journalctl --sync")
    assert machine.run("journalctl", "--quiet", "--output=cat", "UNIT=works.service", "MESSAGE=it failed").strip()
    assert unit_history(node, ["works.service"], 1)["works.service"].failures == 0


def test_logs_of_odd_names_and_lines(machine: Machine, node: NodeRoot):
    odd = "odd\\x20name\\x22.service"
    assert unit_log(node, odd)
    assert unit_log(node, "$(touch /tmp/x)\n--version") == ()


def test_only_the_bus_is_there(machine: Machine, services: dict[str, Service], tmp_path: Path):
    """A container with nothing but the bus mounted still sees the units; that it has no journal is said."""
    mounted = tmp_path / "run/dbus/system_bus_socket"
    mounted.parent.mkdir(parents=True)
    mounted.symlink_to(os.path.relpath(machine.root / "run/dbus/system_bus_socket", tmp_path / "run/dbus"))
    assert stat.S_ISSOCK(mounted.stat().st_mode)
    # As a bind mount would: no link that leads out of the root.
    root = replace(NodeRoot(tmp_path))
    seen = read_services(_OnlyBus(root.path, machine.root / "run/dbus/system_bus_socket"))
    reported = {each.id: each for each in seen.services}
    assert reported.keys() == services.keys()
    assert reported["works.service"].history is None
    assert any("the past of units is not known" in each for each in seen.blind_spots)
    kept = [field.name for field in fields(Service) if field.name in ("fragment", "command", "enabled", "wants")]
    for name in ("works.service", "condition.service", "-rf.service"):
        assert all(getattr(reported[name], field) == getattr(services[name], field) for field in kept)


class _OnlyBus(NodeRoot):
    """A root with the bus of a machine in it."""

    def __init__(self, path: Path, bus: Path) -> None:
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "_bus", bus)

    @property
    def bus(self) -> Path:
        return self._bus
