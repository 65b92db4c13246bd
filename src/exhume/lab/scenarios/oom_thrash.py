"""A program that needs more memory than its cgroup may have: it is killed, started again, and killed again."""

from exhume.lab.memcg_stage import join_file, memory_cgroup
from exhume.lab.stage import Stage

SUMMARY = "a program needs more than the memory limit of its cgroup: killed, started again, killed again"
LIMIT = 48 << 20
MOST_KILLS = 40


def play(stage: Stage) -> None:
    cgroup = memory_cgroup(stage, LIMIT)
    pause = stage.rng.uniform(0.2, 0.8)
    words = (str(stage.seconds), str(join_file(cgroup)), str(2 * LIMIT), f"{pause:.2f}", str(MOST_KILLS))
    stage.start("outgrow", *words, core=stage.core)
    stage.wait()
