"""A storm over zombies: one core, in the kernel, for as long as was said."""

import contextlib
import os
import time
from pathlib import Path

import pytest
from tests.lab.lab_program import spent
from tests.on_time import on_time

from exhume.lab.hierarchies import find_memory_hierarchy
from exhume.lab.leftovers import Leftovers, Process
from exhume.lab.zombies import make_zombies, raise_storm, way_to_spin
from exhume.model.errors import LabError, UsageError
from exhume.procfs.cpulist import online_cpus
from exhume.procfs.host import Host

pytestmark = pytest.mark.alone
COUNT = 1500
# Where others have the core, it is tried again.
TRIES = 5
NAME = "exhume-lab-storm"


def processes_of(lab: Path) -> list[Process]:
    """Those in its journal that live: the holder of its file first."""
    return [each for each in Leftovers.read(lab).changes if isinstance(each, Process) and each.alive]


@pytest.mark.root
@pytest.mark.needs("mkfs.ext4")
def test_one_core_spins_in_the_kernel_for_so_long(work: Path) -> None:
    make_zombies(COUNT, "mlock", work=work, parent=NAME).keep()
    core = online_cpus(Host())[-1]
    seen: set[tuple[int, ...]] = set()

    def look(done: int, total: int) -> None:
        for spinner in processes_of(work / NAME)[1:]:
            with contextlib.suppress(OSError):
                # Once it spins, which is more than the start of a program takes.
                if sum(spent(spinner.pid)[1:]) > 0.15:
                    seen.add(tuple(os.sched_getaffinity(spinner.pid)))

    for _ in range(TRIES):
        began = time.monotonic()
        # It has the core when it wants it, whatever else there is to do.
        with on_time():
            storm = raise_storm(core, 1.2, work=work, progress=look)
        took = time.monotonic() - began
        assert (storm.zombies, storm.left) == (COUNT, COUNT)
        # What it was not at work it waited for the core all the same.
        if seen and storm.elapsed_s - storm.system_s - storm.user_s < 0.5:
            break
    assert took < 30
    assert seen == {(core,)}
    assert storm.passes >= 1
    assert 1.1 < storm.elapsed_s < 3
    assert storm.system_s > 0.2
    assert storm.system_s > 5 * storm.user_s
    # Only the holder is left of its processes.
    assert len(processes_of(work / NAME)) == 1


@pytest.mark.root
@pytest.mark.needs("mkfs.ext4")
def test_zombies_that_reclaim_would_free_are_refused(work: Path) -> None:
    make_zombies(20, "ext4", work=work, parent=NAME).keep()
    with pytest.raises(LabError, match="free zombies pinned by ext4"):
        raise_storm(None, 1, work=work)


@pytest.mark.root
def test_nothing_to_spin_over(work: Path) -> None:
    with pytest.raises(LabError, match="make some: exhume lab run zombies"):
        raise_storm(None, 1, work=work)
    with pytest.raises(UsageError, match="no core 8000"):
        raise_storm(8000, 1, work=work)
    with pytest.raises(UsageError, match="up to 3600 seconds"):
        raise_storm(None, 1e9, work=work)


@pytest.mark.root
def test_the_way_is_found_by_timing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hierarchy = find_memory_hierarchy(Host())
    reading, reclaiming = tmp_path / "memory.numa_stat", tmp_path / hierarchy.reclaim_file
    reading.write_text("total=0\n")
    with pytest.raises(LabError, match="nothing to spin with"):
        way_to_spin(hierarchy, tmp_path)
    reclaiming.write_text("")
    assert way_to_spin(hierarchy, tmp_path) == (reclaiming, hierarchy.reclaim_input)
    content = Path.read_bytes

    def walk(path: Path) -> bytes:
        until = time.thread_time() + 0.004
        while time.thread_time() < until:
            pass
        return content(path)

    # Waiting is no walking.
    monkeypatch.setattr(Path, "read_bytes", lambda path: (time.sleep(0.004), content(path))[1])
    assert way_to_spin(hierarchy, tmp_path) == (reclaiming, hierarchy.reclaim_input)
    monkeypatch.setattr(Path, "read_bytes", walk)
    assert way_to_spin(hierarchy, tmp_path) == (reading, "")
