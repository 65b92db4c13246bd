"""Memory scenarios: page faults, compaction, reclaim at a limit, OOM kills; thousands of live and dying cgroups."""

import os
from pathlib import Path

from exhume.lab.hierarchies import find_memory_hierarchy
from exhume.lab.leftovers import OwnCgroup
from exhume.lab.pins import PINS, PinFiles
from exhume.lab.stage import Scenario, Stage, refuse_without_room
from exhume.lab.zombies import way_to_spin
from exhume.model.errors import LabError
from exhume.procfs.host import Host


def memory_cgroup(stage: Stage, limit: int | None = None) -> Path:
    """Create a memory cgroup for the scenario: with a limit in bytes, or without one as a parent for others."""
    if os.geteuid() != 0:
        raise LabError("making memory cgroups needs root")
    hierarchy = find_memory_hierarchy(Host())
    cgroup = hierarchy.root / f"{stage.name}-{stage.rng.getrandbits(20):05x}"
    stage.leftovers.add(OwnCgroup(os.fspath(cgroup)))
    cgroup.mkdir()
    stage.cgroup = cgroup
    if limit is None:
        hierarchy.prepare(cgroup)
    else:
        (cgroup / ("memory.limit_in_bytes" if hierarchy.version == 1 else "memory.max")).write_text(str(limit))
    return cgroup


@Scenario(
    "a program maps, touches and gives back the same memory over and over on one core", on_core=True, memory=256 << 20
)
def page_fault_storm(stage: Stage) -> None:
    stage.run("memory.page_faults", stage.rng.choice((32, 64, 128, 256)), core=stage.core)


@Scenario(
    "the kernel is made to compact memory that is full of holes, over and over on one core",
    on_core=True,
    memory=256 << 20,
)
def compaction_thp(stage: Stage) -> None:
    stage.run("memory.compact", 256, core=stage.core)


RECLAIM_LIMIT = 32 << 20
FILE = 2 << 30


@Scenario("a program at the memory limit of its cgroup frees a page for each one that it needs", on_core=True)
def memory_reclaim(stage: Stage) -> None:
    join = memory_cgroup(stage, RECLAIM_LIMIT) / find_memory_hierarchy(Host()).join_file
    file = stage.directory / "data"
    with file.open("xb") as made:
        # A sparse file: reading it takes memory, but no disk.
        made.truncate(FILE)
    stage.run("memory.map_pages", join, file, core=stage.core)


OOM_LIMIT = 48 << 20
MOST_KILLS = 40


@Scenario(
    "a program needs more than the memory limit of its cgroup: killed, started again, killed again", memory=64 << 20
)
def oom_thrash(stage: Stage) -> None:
    join = memory_cgroup(stage, OOM_LIMIT) / find_memory_hierarchy(Host()).join_file
    pause = f"{stage.rng.uniform(0.2, 0.8):.2f}"
    stage.run("memory.exceed_limit", join, 2 * OOM_LIMIT, pause, MOST_KILLS, core=stage.core)


FEWEST_ZOMBIES, MOST_ZOMBIES = 3_000, 8_000


def prepare_zombie_memcgs(stage: Stage) -> None:
    """Each zombie is kept by a page of a tmpfs. They go when the stage is cleared."""
    cgroup = memory_cgroup(stage)
    count = stage.rng.randint(FEWEST_ZOMBIES, MOST_ZOMBIES)
    refuse_without_room(count, 0, stage.directory)
    files = PinFiles(stage.directory, PINS["tmpfs"], count)
    files.set_up(stage.leftovers)
    hierarchy = find_memory_hierarchy(Host())
    files.make_zombies(stage.leftovers, hierarchy, cgroup, lambda done, total: stage.progress(done / total))


@Scenario(
    "one core walks thousands of removed memory cgroups in the kernel, again and again",
    prepare_zombie_memcgs,
    on_core=True,
    memory=400 << 20,
)
def zombie_memcgs(stage: Stage) -> None:
    stage.run("files.use_file", *way_to_spin(find_memory_hierarchy(Host()), stage.cgroup), core=stage.core)


FEWEST_LIVE, MOST_LIVE = 7_000, 10_000
IN_ONE = 100


def prepare_cgroup_excess(stage: Stage) -> None:
    count = stage.rng.randint(FEWEST_LIVE, MOST_LIVE)
    refuse_without_room(count, 0, stage.directory)
    parent = memory_cgroup(stage)
    for number in range(count // IN_ONE):
        group = parent / f"g{number:03d}"
        group.mkdir()
        if (group / "cgroup.subtree_control").exists():
            (group / "cgroup.subtree_control").write_text("+memory")
        for child in range(IN_ONE - 1):
            (group / f"c{child:03d}").mkdir()
        stage.progress((number + 1) * IN_ONE / count)


@Scenario(
    "an agent reads through thousands of live cgroups, again and again",
    prepare_cgroup_excess,
    on_core=True,
    memory=400 << 20,
)
def cgroup_excess(stage: Stage) -> None:
    stage.run("files.walk_cgroups", stage.cgroup, core=stage.core)


@Scenario(
    "an agent with many threads looks through thousands of live cgroups, with a third of a core in all",
    prepare_cgroup_excess,
    cause="cgroup-excess",
    memory=400 << 20,
)
def cgroup_agent(stage: Stage) -> None:
    share = stage.rng.uniform(0.35, 0.5)
    stage.run("files.watch_cgroups", stage.cgroup, stage.rng.randint(16, 48), f"{share:.2f}")
