"""The machines themselves: a real systemd that comes up, keeps its disk, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.system.machines.machine_leftovers import MARK, cgroup_hierarchies, remove_leftovers
from tests.system.machines.nspawn_machine import Machine, MachineError

from exhume.lab.mounts import make_ext4, mount_ext4, unmount

pytestmark = [pytest.mark.root, pytest.mark.needs("systemd-nspawn", "debootstrap", "nsenter", "setpriv", "mkfs.ext4")]

RESTARTS_EVERY_S = 0.1
LOOPS = f"""
[Unit]
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/false
Restart=always
RestartSec={RESTARTS_EVERY_S}s
"""
MAKE_AND_WAIT = """
import sys, time
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from tests.system.machines.nspawn_machine import Machine
machine = Machine(Path(sys.argv[1])).__enter__()
machine.boot()
print(machine.name, machine.leader, flush=True)
time.sleep(600)
"""


def test_a_machine_boots_its_units_and_keeps_its_disk_over_a_reboot(new_machine: Callable[[], Machine]):
    machine = new_machine()
    machine.write_unit("loops.service", LOOPS, wanted_by="multi-user.target")
    machine.boot()
    assert machine.run("cat", "/proc/1/comm") == "systemd\n"
    machine.wait_for_restarts("loops.service", 3)
    assert (machine.root / "run/dbus/system_bus_socket").is_socket()
    first = machine.run("cat", "/proc/sys/kernel/random/boot_id", "/etc/machine-id").split()
    machine.write("/var/lib/kept", "kept")
    began = time.monotonic()
    machine.reboot()
    second = machine.run("cat", "/proc/sys/kernel/random/boot_id", "/etc/machine-id").split()
    assert first[0] != second[0] and first[1] == second[1]
    assert machine.run("cat", "/var/lib/kept") == "kept"
    # No more than fit into the time since then, however long that was: systemd counts from zero.
    counted = int(machine.show("loops.service", "NRestarts")["NRestarts"])
    assert counted <= (time.monotonic() - began) / RESTARTS_EVERY_S
    assert int(machine.run("journalctl", "--list-boots", "--quiet").count("\n")) == 2


def test_a_machine_keeps_no_file_system_of_other_tests_in_use(new_machine: Callable[[], Machine], tmp_path: Path):
    image, place = tmp_path / "image", tmp_path / "a place"
    make_ext4(image, 8 << 20, 64)
    mount_ext4(image, place)
    try:
        new_machine()
    finally:
        assert unmount(place)
    deadline = time.monotonic() + 5.0
    while loops := subprocess.run(["losetup", "-j", image], capture_output=True, text=True, check=True).stdout:
        assert time.monotonic() < deadline, loops
        time.sleep(0.05)


def test_the_digest_sees_what_changed_and_only_that(new_machine: Callable[[], Machine]):
    machine = new_machine()
    machine.boot()
    before = machine.digest()
    machine.run("systemd-cat", "echo", "a line for the journal")
    assert machine.digest() == before
    machine.run("mkdir", "/etc/systemd/system/x.service.d")
    machine.run("rmdir", "/etc/systemd/system/x.service.d")
    machine.run("chmod", "600", "/etc/fstab")
    assert machine.digest().keys() - before.keys() == {"etc/fstab"}
    machine.run("chmod", "644", "/etc/fstab")
    assert machine.digest() == before
    machine.run("rm", "/etc/systemd/system/timers.target.wants/fstrim.timer")
    machine.write("/etc/new", "")
    assert machine.digest().keys() - before.keys() == {"etc/new", "etc/systemd/system/timers.target.wants/fstrim.timer"}


def test_machines_leave_nothing(tree: Path):
    with Machine(tree) as machine:
        machine.boot()
        leader, cgroups = machine.leader, [place / machine.name for place in cgroup_hierarchies()]
        assert all(cgroup.is_dir() for cgroup in cgroups) and cgroups
        with pytest.raises(MachineError, match="did not happen within"):
            machine.wait_until("a wonder", lambda: False, 0.1)
    assert not Path(f"/proc/{leader}").exists()
    assert not any(cgroup.exists() for cgroup in cgroups)
    assert machine.name not in Path("/proc/self/mounts").read_text()


def test_a_killed_test_run_takes_its_machines_with_it(tree: Path):
    here = Path(__file__).resolve()
    words = [sys.executable, "-c", MAKE_AND_WAIT, os.fspath(tree), os.fspath(here.parent), os.fspath(here.parents[3])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        name, leader = run.stdout.readline().split()
        assert name.startswith(MARK) and Path(f"/proc/{leader}").exists()
        run.send_signal(signal.SIGKILL)
    with Machine(tree) as waiting:
        waiting.wait_until("the machine died with its maker", lambda: not Path(f"/proc/{leader}").exists())
        # systemd-nspawn, which was in them too, may take a moment longer.
        waiting.wait_until("its cgroups can be removed", lambda: remove_leftovers() or not there(name))


def there(name: str) -> list[Path]:
    return [place / name for place in cgroup_hierarchies() if (place / name).exists()]
