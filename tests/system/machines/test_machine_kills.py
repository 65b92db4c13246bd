"""kill -9 in the middle of a fix, right before each change that it makes to a disk: rolling back and applying again
both end well."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.machines.exhume_outside import KILLED, PROGRAM, SOURCE, Exhume, Program
from tests.system.machines.made_up_units import crash_loops, install_package, made_up_name, works
from tests.system.machines.nspawn_machine import Entry, Machine

pytestmark = [pytest.mark.root, pytest.mark.needs("systemd-nspawn", "debootstrap", "nsenter", "setpriv", "dpkg-deb")]

LOOPS, STUBBORN = made_up_name(), made_up_name()
APPLY = ("apply", "--yes", "--no-zombies", "--baseline", "0s")
# One of them ends when this is there.
ALLOWED = "/run/may-end"
# More changes than a fix makes.
MOST = 200


@pytest.fixture(scope="module")
def machine(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with Machine(tree) as made:
        waits = f"ExecStop=/bin/sh -c 'while [ ! -e {ALLOWED} ]; do sleep 0.1; done'"
        units = {LOOPS: crash_loops(lasts_s=1), STUBBORN: works(service=waits)}
        install_package(made, "killed-agents", units, tmp_path_factory.mktemp("package"))
        made.boot()
        yield made


class Scene:
    """A unit that loops, a plan for it, and what has to be true when that is applied, and when it is gone."""

    def __init__(self, machine: Machine, exhume: Exhume) -> None:
        self.machine, self.exhume = machine, exhume
        self.before: dict[str, Entry] = machine.digest()
        assert exhume.fix("plan", LOOPS).code == 0
        self._planned = exhume.work.rename(exhume.work.with_name("planned"))

    def begin(self) -> None:
        """As if just planned, with nothing applied yet."""
        shutil.rmtree(self.exhume.work, ignore_errors=True)
        shutil.copytree(self._planned, self.exhume.work)

    def is_applied(self) -> None:
        assert (self.machine.disk / f"etc/systemd/system/{LOOPS}.d/90-exhume.conf").is_file()
        # What systemd knows, not only the disk.
        self.machine.start(LOOPS)
        assert self.machine.state(LOOPS) == "inactive"

    def is_as_before(self) -> None:
        assert self.machine.digest() == self.before
        now = self.machine.show(LOOPS, "ActiveState", "DropInPaths", "NeedDaemonReload")
        assert now.pop("ActiveState") in ("activating", "active", "deactivating")
        assert now == {"DropInPaths": "", "NeedDaemonReload": "no"}

    def apply(self) -> None:
        said = self.exhume.fix(*APPLY)
        # Killed when all was done and written down: there is nothing left to apply.
        assert said.code == 0 or (said.code == 2 and "applied already" in said.err), said.err
        self.is_applied()

    def roll_back(self) -> None:
        said = self.exhume.fix("rollback")
        # Killed before anything was written down: there is nothing to roll back.
        assert said.code == 0 or (said.code == 2 and "no fix to roll back" in said.err), said.err
        self.is_as_before()


@pytest.fixture
def scene(program: Program, machine: Machine, tmp_path: Path) -> Scene:
    return Scene(machine, Exhume(program, machine, tmp_path / "work"))


# Every other change each: together that is all of them. tests/remedy/test_fix_crashes.py kills before each change, too,
# on a pretended systemd.
every_other = pytest.mark.parametrize("first", [1, pytest.param(2, marks=pytest.mark.long)])


@every_other
def test_killed_before_each_change_of_apply_it_can_be_rolled_back(scene: Scene, first: int):
    for change in range(first, MOST, 2):
        scene.begin()
        said = scene.exhume.fix(*APPLY, kill_before=change)
        if said.code != KILLED:
            break
        scene.roll_back()
    assert said.code == 0, said.err
    scene.is_applied()
    scene.roll_back()
    assert change > 10


@every_other
def test_killed_before_each_change_it_can_be_applied_again_and_rolled_back_again(scene: Scene, first: int):
    """What was applied again is then rolled back, and that is killed before its change of the same number."""
    last_killed = 0
    for change in range(first, MOST, 2):
        scene.begin()
        if scene.exhume.fix(*APPLY, kill_before=change).code != KILLED:
            break
        scene.apply()
        if scene.exhume.fix("rollback", kill_before=change).code == KILLED:
            last_killed = change
            scene.roll_back()
        scene.is_as_before()
    scene.roll_back()
    assert change > 10
    assert 5 < last_killed < change - 2, "a rollback has fewer changes, so that each of them had its turn"


def test_killed_while_a_unit_takes_its_time_to_stop(program: Program, machine: Machine, tmp_path: Path):
    exhume = Exhume(program, machine, tmp_path / "work")
    before = machine.digest()
    words = ["fix", "apply", STUBBORN, "--yes", "--no-zombies", "--baseline", "0s", "--root", str(machine.root)]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words, "--work-dir", str(exhume.work)],
        env={"PYTHONPATH": str(SOURCE)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as run:
        machine.wait_until("it is being stopped", lambda: machine.state(STUBBORN) == "deactivating")
        run.send_signal(signal.SIGKILL)
    assert run.returncode == KILLED
    # It is on its way down, and goes on with that for a while.
    assert machine.state(STUBBORN) == "deactivating"
    machine.later(f"touch {ALLOWED}", after_s=1)
    said = exhume.fix("rollback")
    assert said.code == 0, (said.out, said.err)
    assert machine.digest() == before
    machine.wait_until("it works again", lambda: machine.state(STUBBORN) == "active")
