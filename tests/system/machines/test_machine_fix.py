"""`exhume fix` on a real systemd: planned, applied, verified, rolled back, with the disk as it was afterwards."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.machines.exhume_outside import Exhume, Program
from tests.system.machines.made_up_units import (
    configure,
    crash_loops,
    hears_of_its_end,
    install_package,
    made_up_name,
    works,
)
from tests.system.machines.nspawn_machine import Machine

pytestmark = [pytest.mark.root, pytest.mark.needs("systemd-nspawn", "debootstrap", "nsenter", "setpriv", "dpkg-deb")]

LOOPS, BASE, UPON, TIMED = (made_up_name() for _ in range(4))
TIMER = TIMED.replace(".service", ".timer")
# What a shutdown and a boot write down by themselves.
BOOT_RECORDS = {"var/log/wtmp", "var/lib/systemd/random-seed", "var/lib/systemd/timers"}


@pytest.fixture(scope="module")
def machine(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with Machine(tree) as made:
        units = {LOOPS: crash_loops(), BASE: works(), UPON: works(f"Requires={BASE}\nAfter={BASE}")}
        install_package(made, "some-agents", units, tmp_path_factory.mktemp("package"))
        made.boot()
        made.wait_for_restarts(LOOPS, 6)
        yield made


@pytest.fixture
def exhume(program: Program, machine: Machine, tmp_path: Path) -> Iterator[Exhume]:
    made = Exhume(program, machine, tmp_path / "work")
    yield made
    # One failure is enough: the machine goes on to the next test.
    if list(machine.disk.glob("etc/systemd/system/*.d/90-exhume.conf")):
        made.fix("rollback")


def drop_in(machine: Machine, unit: str) -> Path:
    return machine.disk / f"etc/systemd/system/{unit}.d/90-exhume.conf"


def applied(exhume: Exhume, unit: str, *words: str) -> dict[str, Any]:
    said = exhume.fix("apply", unit, "--yes", "--no-zombies", "--json", *(words or ("--baseline", "0s")))
    assert said.code == 0, (said.out, said.err)
    return said.json()


def rolled_back(exhume: Exhume) -> None:
    said = exhume.fix("rollback")
    assert said.code == 0, (said.out, said.err)


def test_a_plan_shows_everything_and_changes_nothing(machine: Machine, exhume: Exhume):
    before = machine.digest()
    said = exhume.fix("plan", LOOPS, "--json")
    assert said.code == 0, said.err
    plan = said.json()
    text = json.dumps(plan)
    assert f"/etc/systemd/system/{LOOPS}.d/90-exhume.conf" in text and "ConditionPathExists=!" in text
    assert "systemctl" in text and "restarts" in text
    for step in plan["steps"]:
        assert step["risk"] and step["title"] and step["why"]
        assert step["undo"] or not step["reversible"]
    assert machine.digest() == before and machine.state(LOOPS) in ("activating", "active", "deactivating")
    spoken = exhume.fix("plan", LOOPS)
    assert "90-exhume.conf" in spoken.out and LOOPS in spoken.out


def test_from_a_crash_loop_to_the_proof_and_back(machine: Machine, exhume: Exhume, tmp_path: Path):
    before = machine.digest()
    applied(exhume, LOOPS, "--baseline", "2s")
    assert machine.state(LOOPS) == "inactive"
    assert f"ConditionPathExists=!/etc/systemd/system/{LOOPS}.d/90-exhume.conf" in drop_in(machine, LOOPS).read_text()
    # Neither a person nor whatever wants it can start it by chance.
    machine.start(LOOPS)
    assert machine.state(LOOPS) == "inactive"
    (reported,) = exhume.audit("--json", LOOPS).json()["services"]
    assert not reported["troubled"] and reported["provenance"]["origin"] == "image"
    assert "90-exhume.conf" in reported["explained"][0]
    page = tmp_path / "proof.html"
    # A machine that was held up had it loop less often: then it has to be away for longer to be sure of that.
    for length in ("8s", "25s", "75s"):
        said = exhume.fix("verify", "--for", length, "--json", "--html", str(page))
        proof = said.json()
        (restarts,) = [each for each in proof["measures"] if each["measure"] == "restarts"]
        if restarts["change"] != "not-enough-evidence":
            break
    assert restarts["change"] == "improved", restarts
    assert restarts["before"]["value"] > 0 and restarts["after"]["value"] == 0
    # The journal knows more of the time before than two seconds of looking.
    assert restarts["before"]["source"] == "journal" and restarts["before"]["seconds"] > 2
    # What is too short to rule harm out leaves what was promised as it is.
    assert (proof["verdict"], said.code) in (("proved", 0), ("worse", 1)), proof
    assert LOOPS in page.read_text()
    rolled_back(exhume)
    assert machine.digest() == before
    machine.wait_for_restarts(LOOPS, 1)
    # Once more does nothing.
    again = exhume.fix("rollback")
    assert again.code in (0, 2) and machine.digest() == before


def test_a_fix_lasts_over_a_reboot_and_can_be_rolled_back_then(machine: Machine, exhume: Exhume):
    applied(exhume, LOOPS)
    machine.reboot()
    assert machine.state(LOOPS) == "inactive"
    assert machine.state(BASE) == "active"
    rolled_back(exhume)
    assert not drop_in(machine, LOOPS).parent.exists()
    machine.wait_for_restarts(LOOPS, 2)
    machine.reboot()
    machine.wait_for_restarts(LOOPS, 2)


def test_a_reboot_in_between_changes_nothing_but_what_boots_write(machine: Machine, exhume: Exhume):
    before = machine.digest()
    applied(exhume, LOOPS)
    machine.cut_power()
    machine.boot()
    assert machine.state(LOOPS) == "inactive"
    rolled_back(exhume)
    after = machine.digest()
    differs = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert not {path for path in differs if not path.startswith(tuple(BOOT_RECORDS)) and "systemd-private" not in path}


def test_what_triggers_a_unit_is_held_back_with_it(machine: Machine, exhume: Exhume):
    timer = "[Timer]\nOnActiveSec=100ms\nOnUnitInactiveSec=300ms\nAccuracySec=10ms\n[Install]\nWantedBy=timers.target\n"
    machine.write_unit(TIMER, timer)
    configure(machine, {TIMED: "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'exit 4'\n"}, start=False)
    machine.start(TIMER)
    machine.wait_until("the timer starts it", lambda: machine.state(TIMED) == "failed")
    before = machine.digest()
    applied(exhume, TIMED)
    assert drop_in(machine, TIMER).exists() and drop_in(machine, TIMED).exists()
    assert machine.state(TIMER) == "inactive"
    rolled_back(exhume)
    assert machine.digest() == before
    machine.wait_until("the timer is back", lambda: machine.state(TIMER) == "active")
    # It would go on beside all that follows.
    machine.run("systemctl", "stop", TIMER)


def test_one_that_ends_badly_when_it_is_stopped_is_no_failed_unit(machine: Machine, exhume: Exhume):
    stubborn = made_up_name()
    configure(machine, {stubborn: hears_of_its_end("exit 5")})
    applied(exhume, stubborn)
    assert machine.state(stubborn) == "inactive"
    rolled_back(exhume)
    assert machine.state(stubborn) == "active"
    machine.run("systemctl", "stop", stubborn)
    # So it is without exhume.
    assert machine.state(stubborn) == "failed"


def test_a_unit_has_as_long_to_stop_as_it_says_and_no_longer(machine: Machine, exhume: Exhume):
    slow, endless = made_up_name(), made_up_name()
    allowed = f"/run/{endless}-may-end"
    dawdles = f"while [ ! -e {allowed} ]; do sleep 0.1; done; exit 0"
    deaf = hears_of_its_end("", "TimeoutStopSec=1s")
    configure(machine, {slow: deaf, endless: hears_of_its_end(dawdles, "TimeoutStopSec=infinity")})
    began = time.monotonic()
    applied(exhume, slow)
    # By systemd's usual time it would be a minute and a half.
    assert machine.state(slow) == "inactive" and time.monotonic() - began < 60
    rolled_back(exhume)
    # One that may take for ever is waited for as long as was said; then the step fails, and can be undone.
    words = ("--yes", "--no-zombies", "--baseline", "0s", "--stop-wait", "1s")
    said = exhume.fix("apply", endless, *words)
    assert said.code == 2 and "TimeoutStopSec= is infinity" in said.out, (said.out, said.err)
    (fix, _) = exhume.fix("list", "--json").json()["fixes"]
    assert (fix["state"], [step["mark"] for step in fix["steps"]]) == ("unfinished", ["begun", "planned"])
    assert machine.state(endless) == "deactivating" and not drop_in(machine, endless).exists()
    # A file of another fix that is broken is named, and in nobody's way.
    (exhume.work / "fixes/20260101-000000-abcd.json").write_text("{")
    machine.later(f"touch {allowed}", after_s=1)
    back = exhume.fix("rollback")
    assert back.code == 0 and "20260101-000000-abcd" in back.err, (back.out, back.err)
    assert machine.state(endless) == "active"
    machine.run("systemctl", "kill", "--signal=KILL", endless)


def test_a_lower_cpu_weight_is_set_and_put_back(machine: Machine, exhume: Exhume):
    before = machine.digest()

    def weight() -> str:
        return machine.show(BASE, "CPUWeight")["CPUWeight"]

    own = weight()
    fix = applied(exhume, BASE, "--cpu-weight", "20", "--baseline", "0s")
    assert [step["id"] for step in fix["steps"]] == [f"cpu-weight:{BASE}"]
    assert (weight(), machine.state(BASE), machine.state(UPON)) == ("20", "active", "active")
    # The containers of cgroup v1 hosts have no cpu controller of their own.
    cgroups = machine.root / "sys/fs/cgroup"
    weighed = [file for name in ("cpu.weight", "cpu.shares") for file in cgroups.glob(f"**/{BASE}/{name}")]
    assert bool(fix["steps"][0]["why"]) == (not weighed)
    again = exhume.fix("plan", BASE, "--cpu-weight", "20", "--json")
    assert (again.code, again.json()["steps"]) == (3, [])
    rolled_back(exhume)
    assert (weight(), machine.state(BASE)) == (own, "active")
    assert machine.digest() == before
    # What a person sets meanwhile is theirs.
    applied(exhume, BASE, "--cpu-weight", "20", "--baseline", "0s")
    machine.run("systemctl", "set-property", "--runtime", BASE, "CPUWeight=33")
    said = exhume.fix("rollback", "--json")
    assert said.json()["steps"][0]["mark"] == "kept"
    assert weight() == "33"
    machine.run("systemctl", "set-property", "--runtime", BASE, "CPUWeight=")


def test_a_required_unit_is_refused_without_force(machine: Machine, exhume: Exhume):
    before = machine.digest()
    said = exhume.fix("apply", BASE, "--yes", "--no-zombies", "--baseline", "0s")
    assert said.code == 2 and UPON in said.err, (said.out, said.err)
    assert machine.digest() == before and machine.state(BASE) == "active"
    applied(exhume, BASE, "--baseline", "0s", "--force-required")
    assert machine.state(BASE) == "inactive" and machine.state(UPON) == "inactive"
    rolled_back(exhume)
    assert machine.digest() == before
    assert machine.state(BASE) == "active" and machine.state(UPON) == "active"


@pytest.mark.parametrize(
    "unit", ["dbus.service", "systemd-journald.service", "init.scope", "multi-user.target", "-.slice"]
)
def test_what_the_machine_stands_on_is_refused(machine: Machine, exhume: Exhume, unit: str):
    before = machine.digest()
    for force in ((), ("--force-required",)):
        said = exhume.fix("apply", unit, "--yes", "--no-zombies", "--baseline", "0s", *force)
        assert said.code == 2 and len(said.err.strip().splitlines()) <= 2, (said.out, said.err)
    assert machine.digest() == before
    assert machine.state(unit) == "active"


@pytest.mark.parametrize(
    "unit", ["sshd.service", "ssh.service", "kubelet.service", "containerd.service", "docker.service"]
)
def test_what_a_node_is_reached_and_run_by_is_refused(machine: Machine, exhume: Exhume, unit: str):
    configure(machine, {unit: works()})
    said = exhume.fix("apply", unit, "--yes", "--no-zombies", "--baseline", "0s")
    assert said.code == 2 and unit in said.err, (said.out, said.err)
    assert machine.state(unit) == "active" and not drop_in(machine, unit).exists()


def test_a_plan_older_than_the_state_it_was_made_from_is_refused(machine: Machine, exhume: Exhume):
    assert exhume.fix("plan", LOOPS).code == 0
    machine.write(f"/etc/systemd/system/{LOOPS}.d/50-somebody.conf", "[Unit]\nDescription=Now it is mine\n")
    machine.reload()
    said = exhume.fix("apply", "--yes", "--no-zombies", "--baseline", "0s")
    assert said.code == 2 and "50-somebody.conf" in said.err, (said.out, said.err)
    assert not drop_in(machine, LOOPS).exists()
    # A new plan keeps the other's file where it is.
    before = machine.digest()
    applied(exhume, LOOPS)
    rolled_back(exhume)
    assert machine.digest() == before
    machine.run("rm", "-r", f"/etc/systemd/system/{LOOPS}.d")
    machine.reload()


def test_a_plan_of_another_boot_is_refused(machine: Machine, exhume: Exhume):
    assert exhume.fix("plan", LOOPS).code == 0
    machine.reboot()
    said = exhume.fix("apply", "--yes", "--no-zombies", "--baseline", "0s")
    assert said.code == 2 and "boot" in said.err, (said.out, said.err)
    assert not drop_in(machine, LOOPS).exists()


def test_a_changed_drop_in_is_kept(machine: Machine, exhume: Exhume):
    applied(exhume, LOOPS)
    ours = drop_in(machine, LOOPS)
    ours.write_text(ours.read_text() + "# keep this\n")
    said = exhume.fix("rollback")
    assert said.code == 2 and "90-exhume.conf was changed since" in said.err, (said.out, said.err)
    assert "# keep this" in ours.read_text()
    ours.unlink()
    ours.parent.rmdir()
    machine.reload()
    assert exhume.fix("rollback").code == 0
    machine.wait_for_restarts(LOOPS, 1)


def test_without_a_terminal_nothing_is_done(machine: Machine, exhume: Exhume):
    before = machine.digest()
    said = exhume.fix("apply", LOOPS, "--no-zombies")
    assert said.code == 2 and "--yes" in said.err
    assert machine.digest() == before
