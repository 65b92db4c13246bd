"""Killed at any moment, the lab can be cleaned: nothing of it stays on the machine."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.lab.lab_traces import NOTHING, left_by

from exhume.control.journal import FILE
from exhume.lab.hierarchies import find_memory_hierarchy
from exhume.lab.leftovers import Leftovers, Process, clean
from exhume.lab.zombies import make_zombies
from exhume.procfs.host import Host

pytestmark = pytest.mark.xdist_group("cgroups")

NAME = "exhume-lab-kill"
# Cgroups of others that come and go on the machine meanwhile.
OTHERS = 50
PROGRAM = [sys.executable, "-m", "exhume.cli.main", "lab"]


def exhume_lab(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *args], capture_output=True, text=True, timeout=60, check=False)


def run_zombies(work: Path, pin: str, count: int) -> list[str]:
    return [*PROGRAM, "run", "zombies", "--count", str(count), "--pin", pin, "--work", str(work), "--parent", NAME]


def zombies_now() -> int:
    """All zombies of the machine, while no other lab is at work."""
    hierarchy = find_memory_hierarchy(Host())
    with hierarchy.alone():
        return hierarchy.settled(hierarchy.root)


def await_zombies(expected: int) -> None:
    """They become so many, give or take those of others. The kernel may begin to let go of them a second or more after
    nothing keeps them, later on a busy machine."""
    deadline = time.monotonic() + 60
    while abs((now := zombies_now()) - expected) >= OTHERS:
        assert time.monotonic() < deadline, f"{now} zombies instead of {expected}"


def zombies_below(parent: Path) -> int:
    hierarchy = find_memory_hierarchy(Host())
    if not parent.exists():
        return 0
    pages = hierarchy.residual_pages(parent)
    return hierarchy.dying(parent) if pages is None else pages


# Moments to kill it at: its directory is there, something is mounted, zombies are being made.
MOMENTS = {
    "claimed": lambda work: any(work.iterdir()),
    "mounted": lambda work: left_by(work, NAME).mounts,
    "making": lambda work: zombies_below(find_memory_hierarchy(Host()).root / NAME) > 200,
}


@pytest.mark.root
@pytest.mark.needs("mkfs.ext4")
@pytest.mark.parametrize("pin", ["tmpfs", "metadata", "swap", "mlock"])
def test_killed_while_it_makes_them(pin: str, work: Path) -> None:
    before = zombies_now()
    for has_come in MOMENTS.values():
        with subprocess.Popen(run_zombies(work, pin, 5_000), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            # Another lab on the machine is waited for.
            deadline = time.monotonic() + 150
            while not has_come(work) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        assert left_by(work, NAME) != NOTHING
        done = exhume_lab("clean", "--work", str(work))
        assert (done.returncode, done.stderr) == (0, "")
        assert left_by(work, NAME) == NOTHING
    await_zombies(before)


@pytest.mark.root
@pytest.mark.needs("mkfs.ext4")
def test_what_a_finished_run_leaves_is_cleaned(work: Path) -> None:
    before = zombies_now()
    made = subprocess.run(run_zombies(work, "mlock", 150), capture_output=True, text=True, check=True)
    assert made.stdout.startswith("150 zombies below ")
    holder = int(re.match(r"process (\d+) holds ", made.stderr)[1])
    await_zombies(before + 150)
    assert Process.of(holder) is not None
    again = subprocess.run(run_zombies(work, "mlock", 150), capture_output=True, text=True, check=False)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert exhume_lab("clean", "--work", str(work)).stdout.startswith("removed ")
    assert Process.of(holder) is None
    await_zombies(before)
    assert left_by(work, NAME) == NOTHING
    assert exhume_lab("clean", "--work", str(work)).stdout == "nothing to remove\n"


@pytest.mark.root
def test_a_lab_in_use_stays(work: Path) -> None:
    with make_zombies(20, "tmpfs", work=work, parent=NAME) as lab:
        done = exhume_lab("clean", "--work", str(work))
        assert done.returncode == 2
        assert str(lab.directory) in done.stderr
        assert lab.pinned() == 20


@pytest.mark.root
def test_a_process_that_got_the_number_of_a_dead_one_is_spared(work: Path) -> None:
    make_zombies(5, "tmpfs", work=work, parent=NAME).keep()
    with subprocess.Popen(["sleep", "60"]) as other:
        Leftovers.read(work / NAME).add(Process(other.pid, Process.of(other.pid).started - 1))
        assert list(clean(work).removed) == [work / NAME]
        assert other.poll() is None
        other.kill()


@pytest.mark.root
def test_after_a_reboot_only_files_are_removed(work: Path) -> None:
    lab = make_zombies(5, "tmpfs", work=work, parent=NAME)
    lab.free()
    lab.keep()
    journal = lab.directory / FILE
    first, rest = journal.read_text().split("\n", 1)
    journal.write_text(json.dumps(json.loads(first) | {"boot_id": "another"}) + f"\n{rest}")
    assert list(clean(work).removed) == [lab.directory]
    assert not any(work.iterdir())
    # A cgroup of this name is someone else's by now.
    lab.parent.rmdir()


@pytest.mark.root
def test_files_of_others_stay(work: Path) -> None:
    (work / "theirs").mkdir()
    (work / "theirs/notes").write_text("mine")
    make_zombies(5, "tmpfs", work=work, parent=NAME).close()
    assert clean(work).removed == {}
    assert (work / "theirs/notes").read_text() == "mine"


@pytest.mark.root
def test_a_mount_in_use_is_reported(work: Path) -> None:
    before = zombies_now()
    lab = make_zombies(200, "tmpfs", work=work, parent=NAME)
    lab.keep()
    fd = os.open(lab.files[0], os.O_RDONLY)
    try:
        cleaned = clean(work)
        assert cleaned.used == [lab.directory / "tmpfs"]
        assert left_by(work, NAME) == NOTHING
    finally:
        os.close(fd)
    await_zombies(before)
