"""The list of what a run leaves: written before it is made, undone in reverse, readable after any death."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.lab.lab_program import until
from tests.lab.lab_traces import memory_root

from exhume.control.journal import FILE
from exhume.lab import leftovers as leftovers_module
from exhume.lab.leftovers import (
    Leftovers,
    LoopImage,
    NewPath,
    OwnCgroup,
    OwnMount,
    Process,
    ZombieCgroup,
    clean,
    left_here,
    left_in,
)
from exhume.lab.mounts import mount_points
from exhume.lab.programs.keeper import MARK, marked
from exhume.model.errors import LabError
from exhume.procfs.cgroup import CgroupCount


def begin(work: Path, name: str = "run-1") -> Leftovers:
    return Leftovers.begin(work / name)


@pytest.mark.root
def test_what_was_noted_is_read_again(tmp_path: Path) -> None:
    leftovers = begin(tmp_path)
    leftovers.add(NewPath(str(tmp_path / "not there")))
    leftovers.add(OwnMount(str(tmp_path / "not there")))
    assert Leftovers.read(leftovers.directory).changes == leftovers.changes
    assert left_in(tmp_path) == [leftovers.directory]
    assert [str(leftovers.directory) in line for line in left_here(tmp_path)] == [True]
    assert leftovers.undo() == []
    assert left_in(tmp_path) == []
    assert not leftovers.directory.exists()


def test_changes_are_undone_the_last_first(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    leftovers = begin(tmp_path)
    for path in (outer, outer / "inner"):
        leftovers.add(NewPath(str(path)))
        path.mkdir()
    assert leftovers.undo() == []
    assert not outer.exists()


def test_cgroups_of_zombies_are_removed_after_all_that_holds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone = []
    for kind in (ZombieCgroup, OwnMount, LoopImage):
        monkeypatch.setattr(kind, "undo", lambda self, used: undone.append(self.kind))
    leftovers = begin(tmp_path)
    # The number that were made is noted at the end.
    leftovers.add(ZombieCgroup("/cgroup", "ext4", 7))
    leftovers.add(LoopImage("/image"))
    leftovers.add(OwnMount("/mount"))
    leftovers.add(ZombieCgroup("/cgroup", "ext4", 7, 300))
    assert leftovers.undo() == []
    assert undone == ["mount", "loop", "zombies", "zombies"]


@pytest.mark.parametrize(("dying", "looks"), [([0], 1), ([3, 3, 1, 0], 4), ([5, 4] + [4] * 1000, 12)])
def test_removed_cgroups_are_waited_for_while_they_become_fewer(
    dying: list[int], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, clock = iter(dying), Clock()
    seen = []

    def count(path: Path) -> CgroupCount:
        seen.append(next(counts))
        return CgroupCount(1, seen[-1])

    monkeypatch.setattr(leftovers_module, "count_below", count)
    monkeypatch.setattr(leftovers_module, "time", clock)
    leftovers_module._wait_for_removed(Path("/cgroup"))
    assert len(seen) == looks


class Clock:
    """Each pause takes half a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 0.5


def test_what_others_put_in_a_new_directory_stays(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    leftovers = begin(tmp_path)
    leftovers.add(NewPath(str(shared)))
    shared.mkdir()
    (shared / "notes").write_text("theirs")
    assert leftovers.undo() == []
    assert (shared / "notes").read_text() == "theirs"


@pytest.mark.root
def test_a_line_that_was_being_written_is_no_damage(tmp_path: Path) -> None:
    leftovers = begin(tmp_path)
    leftovers.add(NewPath(str(tmp_path / "nowhere")))
    leftovers.release()
    path = leftovers.directory / FILE
    path.write_bytes(path.read_bytes() + b'{"kind": "mou')
    assert [each.kind for each in Leftovers.read(leftovers.directory).changes] == ["new-path"]
    assert list(clean(tmp_path).removed) == [leftovers.directory]


@pytest.mark.parametrize(
    "content", [b"\n", b"not json\n", b'{"boot_id": "x"}\n', b'{"version": 1, "boot_id": "x"}\n[]\n', b""]
)
def test_a_damaged_list_is_reported_and_the_others_are_cleaned(tmp_path: Path, content: bytes) -> None:
    damaged, whole = begin(tmp_path, "damaged"), begin(tmp_path, "whole")
    for each in (damaged, whole):
        each.release()
    (damaged.directory / FILE).write_bytes(content)
    cleaned = clean(tmp_path)
    assert list(cleaned.removed) == [whole.directory]
    assert [str(damaged.directory) in said and "is damaged" in said for said in cleaned.failed] == [True]
    assert damaged.directory.is_dir()


def test_a_list_of_another_version_is_left_alone(tmp_path: Path) -> None:
    leftovers = begin(tmp_path)
    leftovers.release()
    head = {"version": 2, "boot_id": leftovers.journal.boot_id}
    (leftovers.directory / FILE).write_text(json.dumps(head) + "\n")
    with pytest.raises(LabError, match="another version"):
        Leftovers.read(leftovers.directory)


def test_a_run_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    leftovers = begin(tmp_path)
    cleaned = clean(tmp_path)
    assert (cleaned.busy, cleaned.removed) == ([leftovers.directory], {})
    assert leftovers.undo() == []


def test_after_a_reboot_only_files_are_removed(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        leftovers = begin(tmp_path)
        leftovers.add(Process.of(other.pid))
        leftovers.journal.earlier_boot = True
        assert leftovers.undo() == []
        assert other.poll() is None
        other.kill()


def test_a_process_that_got_the_number_of_a_dead_one_is_spared(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        leftovers = begin(tmp_path)
        leftovers.add(Process(other.pid, Process.of(other.pid).started - 1))
        assert leftovers.undo() == []
        assert other.poll() is None
        other.kill()


def test_a_process_goes_with_its_group_and_with_those_that_left_it(tmp_path: Path) -> None:
    leftovers = begin(tmp_path)
    script = "sleep 600 & setsid sleep 600 & wait"
    environment = os.environ | {MARK: leftovers.directory.name}
    with subprocess.Popen(["sh", "-c", script], env=environment, start_new_session=True) as process:
        leftovers.add(Process.of(process.pid))
        assert until(lambda: len(marked(leftovers.directory.name)) == 3)
        assert leftovers.undo() == []
        assert process.wait(60) == -signal.SIGKILL
    assert marked(leftovers.directory.name) == []


@pytest.mark.root
def test_what_is_mounted_in_its_directory_keeps_its_files(tmp_path: Path) -> None:
    """A mount that was forgotten in the list is taken away before the directory is removed."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "notes").write_text("mine")
    leftovers = begin(tmp_path)
    at = leftovers.directory / "a b"
    at.mkdir()
    subprocess.run(["mount", "--bind", theirs, at], check=True)
    assert str(at) in mount_points()
    assert leftovers.undo() == []
    assert str(at) not in mount_points()
    assert (theirs / "notes").read_text() == "mine"


@pytest.mark.root
@pytest.mark.alone
def test_a_cgroup_goes_with_its_processes(tmp_path: Path) -> None:
    leftovers = begin(tmp_path)
    cgroup = memory_root() / "exhume-lab-leftovers"
    leftovers.add(OwnCgroup(str(cgroup)))
    (cgroup / "below").mkdir(parents=True)
    with subprocess.Popen(["sleep", "600"]) as process:
        (cgroup / "below" / "cgroup.procs").write_text(str(process.pid))
        assert leftovers.undo() == []
        assert process.wait(60) == -signal.SIGKILL
    assert not cgroup.exists()


def test_killed_while_it_claims_its_directory(tmp_path: Path) -> None:
    """Whatever the moment, the directory it leaves is known as the lab's."""
    program = (
        "import sys; from pathlib import Path; from exhume.lab import leftovers\n"
        "leftovers.os.fsync = lambda fd: leftovers.os.kill(leftovers.os.getpid(), 9)\n"
        "leftovers.Leftovers.begin(Path(sys.argv[1]) / 'run-1')"
    )
    killed = subprocess.run([sys.executable, "-c", program, tmp_path], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert any(tmp_path.iterdir())
    clean(tmp_path)
    assert not any(tmp_path.iterdir())
