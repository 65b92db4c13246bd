"""Thousands of cgroups that are alive, and an agent that reads through all of them without a pause."""

from exhume.lab.memcg_stage import memory_cgroup, own_cgroup
from exhume.lab.room import refuse_without_room
from exhume.lab.stage import Stage

SUMMARY = "an agent reads through thousands of live cgroups, again and again"
FEWEST, MOST = 7_000, 10_000
IN_ONE = 100


def prepare(stage: Stage) -> None:
    count = stage.rng.randint(FEWEST, MOST)
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


def play(stage: Stage) -> None:
    stage.start("walk_cgroups", str(stage.seconds), str(own_cgroup(stage)), core=stage.core)
    stage.wait()
