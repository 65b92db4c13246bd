"""exhume on the node itself, with the node's root as its own: the same answers, and it does not stop itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.machines.exhume_inside import command, exhume_inside, mounts
from tests.system.machines.made_up_units import crash_loops, install_package, made_up_name
from tests.system.machines.nspawn_machine import Machine

pytestmark = [pytest.mark.root, pytest.mark.needs("systemd-nspawn", "debootstrap", "nsenter", "setpriv", "dpkg-deb")]

LOOPS, OWN = made_up_name(), made_up_name()
APPLY = ("fix", "apply", "--yes", "--no-zombies", "--baseline", "0s")


@pytest.fixture(scope="module")
def machine(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with Machine(tree, mounts()) as made:
        install_package(made, "inner-agents", {LOOPS: crash_loops()}, tmp_path_factory.mktemp("package"))
        made.boot()
        made.wait_for_restarts(LOOPS, 6)
        yield made


def test_it_audits_and_fixes_the_node_that_it_runs_on(machine: Machine):
    said = exhume_inside(machine, "audit", "--json", LOOPS)
    assert said.code == 1, said.err
    (found,) = said.json()["services"]
    assert found["traits"][0] == "crash-loop" and found["provenance"]["package"] == "inner-agents"
    before = machine.digest()
    said = exhume_inside(machine, *APPLY, LOOPS)
    assert said.code == 0, (said.out, said.err)
    assert machine.state(LOOPS) == "inactive"
    said = exhume_inside(machine, "fix", "rollback")
    assert said.code == 0, (said.out, said.err)
    after = {path: entry for path, entry in machine.digest().items() if not path.startswith("var/lib/exhume-fix")}
    assert after == before
    machine.wait_for_restarts(LOOPS, 1)


def test_the_unit_in_which_it_runs_is_refused(machine: Machine):
    """Whatever its name is: somebody's session, or the very service that watches over the node."""
    words = ["systemd-run", "--quiet", "--pipe", "--wait", f"--unit={OWN}", *command(*APPLY, OWN)]
    done = machine.ask(*words, timeout=120)
    assert done.returncode == 2 and OWN in done.stderr, (done.stdout, done.stderr)
    assert "this very" in done.stderr
    assert not list(machine.disk.glob(f"etc/systemd/system/{OWN}.d"))


def test_nothing_is_done_without_root(machine: Machine):
    before = machine.digest()
    done = machine.ask("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *command(*APPLY, LOOPS))
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "root" in done.stderr and len(done.stderr.strip().splitlines()) <= 2
    assert machine.digest() == before and machine.state(LOOPS) in ("active", "activating", "deactivating")
