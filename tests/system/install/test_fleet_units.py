"""The units of deploy/fleet: what systemd says of them, and a hub and a compaction under all of their restrictions in a
booted nspawn container, with a token that root adds while the hub runs."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.parts import need
from tests.system.fleet.certificates import authority, signed
from tests.system.fleet.recorded_nodes import OTHER_IMAGE, OTHER_ZONE, RecordedNode
from tests.system.install.program import PROGRAM, ROOT, boot_with_python, mounts_of
from tests.system.machines.machine_tree import machine_tree
from tests.system.machines.nspawn_machine import SYSTEM_UNITS, Machine

from exhume.model.clock import NANOS

UNITS = ROOT / "deploy/fleet"
HUB, COMPACT = "exhume-hub.service", "exhume-compact.service"
STATE = "/var/lib/exhume-hub"
MOST_EXPOSURE = 4.0
# Rows that are older than the hour and the ten minutes that a compaction leaves alone.
AGO_S = 2 * 3600

pytestmark = pytest.mark.xdist_group("services")


@pytest.mark.needs("systemd-analyze")
def test_systemd_knows_every_setting(tmp_path: Path):
    for path in UNITS.iterdir():
        # The program isn't installed here.
        text = path.read_text().replace("ExecStart=exhume ", "ExecStart=/bin/true ")
        (tmp_path / path.name).write_text(text)
    files = sorted(tmp_path.iterdir())
    done = subprocess.run(
        [need("systemd-analyze"), "verify", "--man=no", "--recursive-errors=no", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, [line for line in done.stderr.splitlines() if str(tmp_path) in line]) == (0, [])


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("unit", [HUB, COMPACT])
def test_the_exposure_is_low(unit: str):
    command = [need("systemd-analyze"), "security", "--offline=yes", "--no-pager", UNITS / unit]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (exposure,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert float(exposure) < MOST_EXPOSURE, done.stdout


@pytest.fixture
def machine(opt: Path, tmp_path: Path) -> Iterator[Machine]:
    """With the units and a certificate for its own name, but no token yet; and a recording of a node."""
    ca = authority(tmp_path, "ca")
    made_for = signed(ca, "hub", "localhost")
    rights = ["--capability=all", "--system-call-filter=fsopen fsconfig fsmount"]
    with Machine(machine_tree(), [*mounts_of(opt), *rights, f"--bind-ro={tmp_path}:/srv/node"]) as made:
        for path in UNITS.iterdir():
            made.write(f"{SYSTEM_UNITS}/{path.name}", path.read_text())
        for name, source in (("hub-cert.pem", made_for.file), ("hub-key.pem", made_for.key)):
            made.write(f"/etc/exhume/{name}", source.read_text(), 0o600)
        made.write("/etc/hosts", "127.0.0.1 localhost\n")
        (made.disk / "usr/local/bin/exhume").symlink_to(PROGRAM)
        node = RecordedNode("node-1", OTHER_IMAGE, OTHER_ZONE)
        node.write(tmp_path / "recording", ((int(time.time()) - AGO_S) // 3600 * 3600) * NANOS)
        boot_with_python(made)
        yield made


def files_of(machine: Machine) -> list[str]:
    listed = machine.run("find", f"{STATE}/lake/", "-name", "*.parquet", "-path", "*/summaries/*")
    return [Path(line).name for line in listed.splitlines()]


@pytest.mark.long
@pytest.mark.root
@pytest.mark.needs("systemd-nspawn", "debootstrap", "nsenter", "setpriv", "openssl")
def test_a_hub_as_a_service_takes_what_a_node_pushes_and_its_lake_is_compacted(machine: Machine):
    assert machine.start(HUB).returncode == 0
    assert machine.show(HUB, "ActiveState") == {"ActiveState": "active"}

    def push() -> "subprocess.CompletedProcess[str]":
        target = ("https://localhost:8460", "--push-ca-file", "/srv/node/ca.pem", "--push-token-file", "/root/token")
        which = ("--dir", "/srv/node/recording", "--spool", "/root/spool", "--since", "1d", "--final")
        return machine.ask(PROGRAM, "fleet", "push", *target, *which)

    machine.write("/root/token", "exf_of-no-node", 0o600)
    machine.wait_until("the hub answers", lambda: "401" in push().stderr)
    # As the header of the unit says, by root, while the hub runs.
    token = machine.run(PROGRAM, "fleet", "token", "add", "--state", STATE, "node-1")
    machine.write("/root/token", token, 0o600)
    machine.wait_until("the hub takes it", lambda: push().returncode == 0)
    machine.wait_until("it is folded", lambda: files_of(machine))
    assert machine.start(COMPACT).returncode == 0, machine.run("journalctl", "--no-pager", "--unit", COMPACT)
    assert [name.partition("-")[0] for name in files_of(machine)] == ["compact"]
    report = machine.ask(PROGRAM, "fleet", "compact", "--lake", f"{STATE}/lake", "--json")
    assert json.loads(report.stdout)["files"] == 0, "nothing was left to merge"
    # What comes later goes into the partition that the compaction wrote.
    machine.run("rm", "-r", "/root/spool")
    machine.wait_until("all of it is sent again", lambda: push().returncode == 0)
    machine.wait_until("it is folded", lambda: len(files_of(machine)) == 2)
    assert machine.start(COMPACT).returncode == 0
    assert len(files_of(machine)) == 1
