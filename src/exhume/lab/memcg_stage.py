"""Memory cgroups on a stage: one of the scenario's own, with a limit or with zombies below it."""

import json
import mmap
import os
from pathlib import Path

from exhume.lab.hierarchies import MemoryHierarchy, find_memory_hierarchy
from exhume.lab.mounts import mount_tmpfs
from exhume.lab.processes import maker_of_zombies
from exhume.lab.programs.zombie_maker import Order
from exhume.lab.stage import Stage, refuse_without_room
from exhume.model.errors import LabError
from exhume.procfs.host import Host

_MIB = 1 << 20
_NOTE = "cgroup"


def memory_cgroup(stage: Stage, limit: int | None = None, *, parent_of_others: bool = False) -> Path:
    """A memory cgroup of the scenario's own, with a limit in bytes where one is given."""
    if os.geteuid() != 0:
        raise LabError("making memory cgroups needs root")
    hierarchy = find_memory_hierarchy(Host())
    cgroup = hierarchy.root / f"{stage.name}-{stage.rng.getrandbits(20):05x}"
    stage.leftovers.note("cgroup", path=os.fspath(cgroup))
    cgroup.mkdir()
    remember_cgroup(stage, cgroup)
    if parent_of_others:
        hierarchy.prepare(cgroup)
    if limit is not None:
        name = "memory.limit_in_bytes" if hierarchy.version == 1 else "memory.max"
        (cgroup / name).write_text(str(limit))
    return cgroup


def remember_cgroup(stage: Stage, cgroup: Path) -> None:
    """For `own_cgroup`, when the scenario is played."""
    (stage.directory / _NOTE).write_text(os.fspath(cgroup))


def own_cgroup(stage: Stage) -> Path:
    """The cgroup that was made while the stage was prepared."""
    return Path((stage.directory / _NOTE).read_text())


def join_file(cgroup: Path) -> Path:
    """The file that takes a process into a memory cgroup."""
    return cgroup / find_memory_hierarchy(Host()).join_file


def leave_zombies(stage: Stage, cgroup: Path, count: int) -> None:
    """So many zombies below a cgroup, each kept by a page of a tmpfs. They go when the stage is cleared."""
    refuse_without_room(count, 0, stage.directory)
    files = stage.directory / "pages"
    stage.leftovers.note("mount", path=os.fspath(files))
    mount_tmpfs(files, 2 * count * mmap.PAGESIZE + 16 * _MIB, 2 * count + 1024)
    maker = maker_of_zombies()
    stage.leftovers.note("process", pid=maker.process.pid, started=maker.process.started)
    try:
        maker.send(json.dumps(_order(find_memory_hierarchy(Host()), cgroup, files, count)))
        for line in maker.lines():
            stage.progress(int(line) / count)
        complaint = maker.complaint()
    finally:
        maker.stop()
    if complaint:
        raise LabError(f"cannot make zombies: {complaint}")


def _order(hierarchy: MemoryHierarchy, cgroup: Path, files: Path, count: int) -> Order:
    return Order(
        parent=os.fspath(cgroup),
        home=os.fspath(hierarchy.home_below(cgroup)),
        join=hierarchy.join_file,
        reclaim=hierarchy.reclaim_file,
        reclaim_input=hierarchy.reclaim_input,
        pin="tmpfs",
        files=os.fspath(files),
        first=0,
        count=count,
    )
