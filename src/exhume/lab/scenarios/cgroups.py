"""Cgroup scenarios: thousands of live cgroups, thousands of dying ones."""

from exhume.lab.hierarchies import find_memory_hierarchy
from exhume.lab.memcg_stage import leave_zombies, memory_cgroup, own_cgroup
from exhume.lab.stage import Scenario, Stage, refuse_without_room
from exhume.lab.storm import way_to_spin
from exhume.procfs.host import Host

FEWEST_LIVE, MOST_LIVE = 7_000, 10_000
IN_ONE = 100


def prepare_cgroup_excess(stage: Stage) -> None:
    count = stage.rng.randint(FEWEST_LIVE, MOST_LIVE)
    refuse_without_room(count, 0, stage.directory)
    parent = memory_cgroup(stage, parent_of_others=True)
    for number in range(count // IN_ONE):
        group = parent / f"g{number:03d}"
        group.mkdir()
        if (group / "cgroup.subtree_control").exists():
            (group / "cgroup.subtree_control").write_text("+memory")
        for child in range(IN_ONE - 1):
            (group / f"c{child:03d}").mkdir()
        stage.progress((number + 1) * IN_ONE / count)


def cgroup_excess(stage: Stage) -> None:
    stage.start("files.walk_cgroups", str(stage.seconds), str(own_cgroup(stage)), core=stage.core)
    stage.wait()


FEWEST_ZOMBIES, MOST_ZOMBIES = 3_000, 8_000


def prepare_zombie_memcgs(stage: Stage) -> None:
    cgroup = memory_cgroup(stage, parent_of_others=True)
    leave_zombies(stage, cgroup, stage.rng.randint(FEWEST_ZOMBIES, MOST_ZOMBIES))


def zombie_memcgs(stage: Stage) -> None:
    file, data = way_to_spin(find_memory_hierarchy(Host()), own_cgroup(stage))
    stage.start("files.use_file", str(stage.seconds), str(file), data, core=stage.core)
    stage.wait()


SCENARIOS = (
    Scenario(
        "zombie-memcgs",
        "zombie-memcgs",
        "one core walks thousands of removed memory cgroups in the kernel, again and again",
        zombie_memcgs,
        prepare_zombie_memcgs,
        on_core=True,
        memory=400 << 20,
    ),
    Scenario(
        "cgroup-excess",
        "cgroup-excess",
        "an agent reads through thousands of live cgroups, again and again",
        cgroup_excess,
        prepare_cgroup_excess,
        on_core=True,
        memory=400 << 20,
    ),
)
