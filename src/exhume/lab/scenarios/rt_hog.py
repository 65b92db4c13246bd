"""A thread with a real-time policy computes without a pause, on a core where ordinary work was done before."""

import os

from exhume.lab.stage import Stage
from exhume.model.errors import LabError

SUMMARY = "a real-time thread keeps its core, and ordinary threads there stand still"


def prepare(stage: Stage) -> None:
    """Ordinary work on that core, that goes on all the while."""
    share = stage.rng.uniform(0.3, 0.6)
    stage.start("short_work", str(stage.seconds + 600), f"{share:.2f}", name=f"{stage.name}-peer", core=stage.core)


def play(stage: Stage) -> None:
    hog = stage.start("compute", str(stage.seconds), core=stage.core)
    policy = stage.rng.choice((os.SCHED_FIFO, os.SCHED_RR))
    try:
        os.sched_setscheduler(hog.pid, policy, os.sched_param(stage.rng.randint(1, 60)))
    except PermissionError:
        raise LabError(
            "real-time threads are not allowed here; run as root, in a cgroup with cpu.rt_runtime_us where it has one"
        ) from None
    stage.wait()
