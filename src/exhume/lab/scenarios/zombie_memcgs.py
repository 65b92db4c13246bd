"""Thousands of removed memory cgroups that the kernel keeps, and a program on one core that makes it walk them."""

from exhume.collect.host import Host
from exhume.lab.memcg_stage import leave_zombies, memory_cgroup, own_cgroup
from exhume.lab.memory_hierarchy import find_memory_hierarchy
from exhume.lab.stage import Stage
from exhume.lab.storm import way_to_spin

SUMMARY = "one core walks thousands of removed memory cgroups in the kernel, again and again"
FEWEST, MOST = 3_000, 8_000


def prepare(stage: Stage) -> None:
    cgroup = memory_cgroup(stage, parent_of_others=True)
    leave_zombies(stage, cgroup, stage.rng.randint(FEWEST, MOST))


def play(stage: Stage) -> None:
    file, words = way_to_spin(find_memory_hierarchy(Host()), own_cgroup(stage))
    stage.start("use_file", str(stage.seconds), str(file), words, core=stage.core)
    stage.wait()
