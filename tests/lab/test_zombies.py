"""Zombies on the real kernel: as many as asked for, pinned by what was asked for, and freed again."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.lab.lab_traces import NOTHING, left_in_the_end
from tests.page_removals import Removals, traced_removals

from exhume.lab.hierarchies import find_memory_hierarchy
from exhume.lab.pins import PINS
from exhume.lab.stage import refuse_without_room
from exhume.lab.zombies import MOST_SWAPPED, ZombieLab, make_zombies
from exhume.model.errors import LabError, UsageError
from exhume.procfs.host import Host

pytestmark = pytest.mark.xdist_group("cgroups")

COUNT = 200
OTHERS = 50
NAME = "exhume-lab-test"
PAGE = os.sysconf("SC_PAGE_SIZE")


def dying(before: int | None = None, freed: int = 0) -> int:
    """All zombies of the machine, by the kernel's count and a walk; where so many were freed of those that were before,
    once they are gone, or that takes too long."""
    hierarchy = find_memory_hierarchy(Host())
    return hierarchy.settled(hierarchy.root, None if before is None else before - freed, before)


def residual_pages_in_the_end(lab: ZombieLab, expected: dict[str, int], removals: Removals) -> dict[str, int]:
    """Pages below the parent that are in no visible cgroup, by kind, with those that the kernel took meanwhile. It may
    count late, by two seconds and by what a busy machine needs for it."""
    deadline = time.monotonic() + 30
    while True:
        pages = residual_pages(lab)
        taken = min(removals.of(lab).by_kernel, expected.get("cache", 0) - pages.get("cache", 0))
        if taken > 0:
            pages["cache"] = pages.get("cache", 0) + taken
        if pages == expected or time.monotonic() > deadline:
            return pages
        time.sleep(0.1)


def residual_pages(lab: ZombieLab) -> dict[str, int]:
    fields = dict(line.split() for line in (lab.parent / "memory.stat").read_text().splitlines())
    names = ("cache", "shmem", "rss", "swap", "unevictable", "mapped_file", "dirty")
    pages = {name: (int(fields[f"total_{name}"]) - int(fields[name])) // PAGE for name in names}
    return {name: count for name, count in pages.items() if count}


EXPECTED_PAGES = {
    "tmpfs": {"cache": COUNT, "shmem": COUNT},
    "ext4": {"cache": COUNT},
    "shared": {"cache": COUNT},
    "metadata": {"cache": COUNT},
    "swap": {"swap": COUNT},
    "mlock": {"cache": COUNT, "unevictable": COUNT, "mapped_file": COUNT},
    "mapped": {"cache": COUNT, "mapped_file": COUNT},
}


@pytest.mark.root
@pytest.mark.needs("mkfs.ext4")
@pytest.mark.parametrize("pin", PINS)
def test_as_many_as_asked_for_pinned_as_asked_for_and_freed(pin: str, work: Path) -> None:
    reported: list[tuple[int, int]] = []
    with (
        traced_removals() as removals,
        make_zombies(COUNT, pin, work=work, parent=NAME, progress=lambda *p: reported.append(p)) as lab,
    ):
        assert lab.made == COUNT
        assert reported[-1] == (COUNT, COUNT)
        assert lab.parent.name == NAME
        assert not [entry for entry in lab.parent.iterdir() if entry.name.startswith("z")]
        assert all(path.exists() for path in lab.files)
        assert (lab.holder_pid is not None) == PINS[pin].held
        before = dying()
        assert before >= COUNT - removals.of(lab).by_kernel
        if find_memory_hierarchy(Host()).version == 1:
            assert residual_pages_in_the_end(lab, EXPECTED_PAGES[pin], removals) == EXPECTED_PAGES[pin]
        assert lab.free() == 0
        # The machine's own count agrees; cgroups of others come and go meanwhile.
        assert abs(dying(before, COUNT) - (before - COUNT)) < OTHERS
    assert left_in_the_end(work, NAME) == NOTHING


class Reclaimer:
    """Takes pages of the file that a lab's zombies share, once they are all made. `labs` are those it saw, by their
    cgroup's inode."""

    def __init__(self, work: Path, pages: int, labs: int) -> None:
        self._file, self._pages, self._labs_at_most = work / NAME / "ext4" / "shared", pages, labs
        self.labs: set[int] = set()

    def __call__(self, done: int, total: int) -> None:
        self.labs.add((find_memory_hierarchy(Host()).root / NAME).stat().st_ino)
        if done == total and len(self.labs) <= self._labs_at_most:
            before = dying()
            with self._file.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, self._pages * PAGE, os.POSIX_FADV_DONTNEED)
            # Gone before they are counted, however long the kernel takes to let go of them.
            assert dying(before, self._pages) <= before - self._pages


@pytest.mark.root
@pytest.mark.needs("mkfs.ext4")
def test_where_one_goes_before_all_are_made_they_are_made_again(work: Path) -> None:
    reclaimer = Reclaimer(work, pages=1, labs=1)
    with make_zombies(20, "shared", work=work, parent=NAME, progress=reclaimer) as lab:
        assert lab.made == 20
    assert len(reclaimer.labs) > 1
    assert left_in_the_end(work, NAME) == NOTHING


@pytest.mark.root
@pytest.mark.needs("mkfs.ext4")
def test_a_kernel_that_does_not_keep_them_is_reported_at_once(work: Path) -> None:
    reclaimer = Reclaimer(work, pages=10, labs=9)
    with pytest.raises(LabError, match=r"20 zombies were made, but \d+ are there"):
        make_zombies(20, "shared", work=work, parent=NAME, progress=reclaimer)
    assert len(reclaimer.labs) == 1
    assert left_in_the_end(work, NAME) == NOTHING


@pytest.mark.root
def test_deleting_the_files_frees_those_on_tmpfs(work: Path) -> None:
    with make_zombies(COUNT, "tmpfs", work=work, parent=NAME) as lab:
        assert len(lab.files) == COUNT
        for path in lab.files[:50]:
            path.unlink()
        assert lab.pinned(COUNT - 50) == COUNT - 50


@pytest.mark.root
def test_two_labs_of_a_process_have_names_of_their_own(work: Path) -> None:
    with make_zombies(20, "tmpfs", work=work) as first, make_zombies(30, "tmpfs", work=work) as second:
        assert first.parent != second.parent
        assert (first.made, second.made) == (20, 30)
        assert second.free() == 0
        assert first.pinned() == 20
    assert left_in_the_end(work, first.parent.name) == left_in_the_end(work, second.parent.name) == NOTHING


@pytest.mark.root
def test_a_cgroup_of_someone_else_is_never_used_nor_removed(work: Path) -> None:
    theirs = find_memory_hierarchy(Host()).root / NAME
    theirs.mkdir()
    try:
        with pytest.raises(LabError, match="exists already"):
            make_zombies(5, "tmpfs", work=work, parent=NAME)
        assert theirs.is_dir()
        assert not any(work.iterdir())
    finally:
        theirs.rmdir()


@pytest.mark.root
def test_what_cannot_be_made_leaves_nothing(work: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_zombies(20, "swap", work=work, parent=NAME, progress=interrupt)
    assert left_in_the_end(work, NAME) == NOTHING


@pytest.mark.root
def test_more_than_fit_are_refused(work: Path) -> None:
    with pytest.raises(LabError, match="MiB can be spared; ask for fewer"):
        make_zombies(1 << 40, "tmpfs", work=work)
    with pytest.raises(LabError, match="65,535"):
        make_zombies(MOST_SWAPPED + 1, "swap", work=work)
    assert not any(work.iterdir())


def test_room_is_counted_for_every_cpu_there_could_be(tmp_path: Path) -> None:
    host = Host(proc=tmp_path / "proc", sys=tmp_path / "sys")
    (host.sys / "devices/system/cpu").mkdir(parents=True)
    (host.sys / "devices/system/cpu/possible").write_text("0-95\n")
    host.proc.mkdir()
    (host.proc / "meminfo").write_text("MemTotal: 33554432 kB\nMemAvailable: 20971520 kB\n")
    # 210 KiB each: 16.8 GiB can be spared of 32.
    refuse_without_room(80_000, 0, tmp_path, host)
    with pytest.raises(LabError, match="90,000 zombies take 18,457 MiB of memory, and 17,203 MiB can be spared"):
        refuse_without_room(90_000, 0, tmp_path, host)
    with pytest.raises(LabError, match=f"{tmp_path} has no room for 1,073,741,824 MiB"):
        refuse_without_room(1, 1 << 50, tmp_path / "not" / "yet", host)


@pytest.mark.parametrize(
    ("pin", "parent", "complaint"),
    [("nfs", None, "no kind of pin"), ("tmpfs", "../other", "can't name"), ("tmpfs", "", "can't name")],
)
def test_names_that_mean_nothing_are_refused(pin: str, parent: str | None, complaint: str, work: Path) -> None:
    with pytest.raises(UsageError, match=complaint):
        make_zombies(5, pin, work=work, parent=parent)


@pytest.mark.root
@pytest.mark.needs("setpriv")
@pytest.mark.parametrize("scenario", ["zombies", "zombie-storm"])
def test_without_root_it_refuses_in_one_sentence(scenario: str) -> None:
    args = [
        "setpriv",
        "--reuid=65534",
        "--clear-groups",
        sys.executable,
        "-m",
        "exhume.cli.main",
        "lab",
        "run",
        scenario,
    ]
    done = subprocess.run(args, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith("needs root\n")
    assert done.stderr.count("\n") == 1
