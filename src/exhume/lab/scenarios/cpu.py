"""CPU scenarios: a healthy machine, quotas, real-time and greedy threads, more work than cores, fork storms, crash
loops, lock contention."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

from exhume.lab.hierarchies import cpu_cgroups, cpuset_cgroup, find_memory_hierarchy, put_first, set_cores, set_quota
from exhume.lab.leftovers import OwnCgroup
from exhume.lab.stage import PEER, Scenario, Stage, program_argv
from exhume.model.errors import LabError
from exhume.model.isolation import SCRIPT_FLAGS
from exhume.procfs.host import Host

_PAUSE_S = (0.5, 2.0)
# For programs that must run until the stage is cleared, however long the preparation takes.
_MORE_S = 600
_OVERCOMMIT = "cpu-overcommit"


@Scenario("a busy, healthy machine: nothing to find", healthy=True)
def quiet(stage: Stage) -> None:
    kinds = [BATCH, *(BACKGROUNDS[kind] for kind in sorted(BACKGROUNDS) if kind != "nothing")]
    stage.rng.shuffle(kinds)
    began = time.monotonic()
    for work in kinds[: stage.rng.randint(2, 5)]:
        left = stage.seconds - (time.monotonic() - began)
        work.start(stage, max(1.0, stage.rng.uniform(0.5, 1.0) * left))
        stage.wait(min(left, stage.rng.uniform(*_PAUSE_S)))
    stage.wait(max(0.0, stage.seconds - (time.monotonic() - began)))


PERIODS_US = (20_000, 50_000, 100_000)


def prepare_quota(stage: Stage) -> None:
    """Create the cgroup with its quota, as a runtime does for a container. Even if others want every core, it is
    stopped by its quota, like a pod whose request equals its limit, and not by waiting for its turn."""
    cgroups = _quota_cgroups(stage)
    for cgroup in cgroups:
        stage.leftovers.add(OwnCgroup(str(cgroup)))
        cgroup.mkdir()
    set_quota(cgroups[0], stage.rng.uniform(0.15, 0.5), stage.rng.choice(PERIODS_US))
    put_first(cgroups[0])


@Scenario("busy processes in a cgroup with a small CPU quota are stopped in most of its periods", prepare_quota)
def cfs_throttling(stage: Stage) -> None:
    for _ in range(stage.rng.randint(2, 4)):
        started = stage.start("cpu.compute", stage.seconds)
        for cgroup in _quota_cgroups(stage):
            (cgroup / "cgroup.procs").write_text(str(started.pid))
    stage.wait()


def _quota_cgroups(stage: Stage) -> list[Path]:
    return cpu_cgroups(Host(), f"exhume-lab-{stage.directory.name}")


def prepare_rt_hog(stage: Stage) -> None:
    """Start ordinary work on that core, which continues during the trouble."""
    share = f"{stage.rng.uniform(0.3, 0.6):.2f}"
    stage.start("cpu.short_work", stage.seconds + _MORE_S, share, name=f"{stage.name}{PEER}", core=stage.core)


@Scenario("a real-time thread keeps its core, and ordinary threads there stand still", prepare_rt_hog, on_core=True)
def rt_hog(stage: Stage) -> None:
    hog = stage.start("cpu.compute", stage.seconds, core=stage.core)
    policy = stage.rng.choice((os.SCHED_FIFO, os.SCHED_RR))
    try:
        os.sched_setscheduler(hog.pid, policy, os.sched_param(stage.rng.randint(1, 60)))
    except PermissionError:
        raise LabError(
            "real-time threads are not allowed here; run as root, in a cgroup with cpu.rt_runtime_us where it has one"
        ) from None
    stage.wait()


LOCKS = 6000
MOST_CORES = 4


def prepare_spinlock_contention(stage: Stage) -> None:
    path = stage.directory / "records"
    path.write_bytes(b"x")
    stage.start("files.hold_locks", stage.seconds + _MORE_S, path, LOCKS, name=f"{stage.name}-owner")


@Scenario("processes on several cores spin for one lock of the kernel", prepare_spinlock_contention)
def spinlock_contention(stage: Stage) -> None:
    cores = stage.rng.sample(stage.cores, min(MOST_CORES, len(stage.cores)))
    # Two per core, with a higher priority than other work: one core must hold the lock while another wants it.
    for core in cores * 2:
        stage.start("files.query_locks", stage.seconds, stage.directory / "records", core=core, nice=-10)
    stage.wait()


def prepare_user_hog(stage: Stage) -> None:
    """Start the others: work that must stay on that core, and had enough of it."""
    for number in range(stage.rng.randint(1, 2)):
        share, name = f"{stage.rng.uniform(0.35, 0.45):.2f}", f"{stage.name}{PEER}{number}"
        stage.start("cpu.short_work", stage.seconds + _MORE_S, share, name=name, core=stage.core)


@Scenario("a program computes without a pause on a core that others need", prepare_user_hog, on_core=True)
def user_hog(stage: Stage) -> None:
    # With a raised priority, as an operator may give a program: it takes more than its fair share.
    stage.run("cpu.compute", core=stage.core, nice=stage.rng.choice((-10, -15, -20)))


# Runnable threads per core: at three, three times as many as can run.
OVERCOMMITTED = (3.0, 6.0)


def _wanted(stage: Stage) -> int:
    return round(stage.rng.uniform(*OVERCOMMITTED) * len(stage.cores))


def prepare_neighbours(stage: Stage) -> None:
    """Start services that use a part of the machine and continue during the trouble."""
    for number in range(stage.rng.randint(1, 2)):
        share, name = f"{stage.rng.uniform(0.15, 0.35):.2f}", f"{stage.name}{PEER}{number}"
        stage.start("cpu.short_work", stage.seconds + _MORE_S, share, name=name)


@Scenario("one program with many threads takes the cores that others need", prepare_neighbours, cause=_OVERCOMMIT)
def overcommit_noisy(stage: Stage) -> None:
    stage.run("cpu.compress_threads", _wanted(stage))


@Scenario("many programs alike want several times the cores that there are", cause=_OVERCOMMIT)
def overcommit_equal(stage: Stage) -> None:
    names = [f"{stage.name}-{number}" for number in range(stage.rng.randint(1, 4))]
    for _ in range(_wanted(stage)):
        stage.start("cpu.compute", stage.seconds, name=stage.rng.choice(names))
    stage.wait()


@Scenario("niced work fills the cores, and other work waits for nothing", prepare_neighbours, healthy=True)
def overcommit_background(stage: Stage) -> None:
    for _ in range(_wanted(stage)):
        stage.start("cpu.compute", stage.seconds, nice=stage.rng.choice((15, 19)))
    stage.wait()


@Scenario("threads are bound to one core and wait for each other", cause=_OVERCOMMIT, on_core=True)
def overcommit_stacked(stage: Stage) -> None:
    for _ in range(stage.rng.randint(4, 8)):
        stage.start("cpu.compute", stage.seconds, core=stage.core)
    stage.wait()


@Scenario("a build runs more short jobs at a time than there are cores", prepare_neighbours, cause=_OVERCOMMIT)
def overcommit_builds(stage: Stage) -> None:
    stage.run("processes.build", _wanted(stage), f"{stage.rng.uniform(0.05, 0.4):.2f}")


def prepare_cpuset(stage: Stage) -> None:
    """Create the cpuset with its cores, as an operator or kubelet does."""
    cgroup = _cpuset(stage)
    stage.leftovers.add(OwnCgroup(str(cgroup.parent)))
    for each in (cgroup.parent, cgroup):
        each.mkdir()
        set_cores(each, stage.cores)
    # At most half of the machine: the rest stays idle.
    others = [core for core in stage.cores if core != stage.core]
    size = stage.rng.randint(1, max(1, len(stage.cores) // 2))
    set_cores(cgroup, [stage.core, *stage.rng.sample(others, size - 1)])


@Scenario("the work of a cpuset waits for its few cores, while others idle", prepare_cpuset)
def cpuset_squeeze(stage: Stage) -> None:
    for _ in range(_wanted(stage)):
        started = stage.start("cpu.compute", stage.seconds)
        (_cpuset(stage) / "cgroup.procs").write_text(str(started.pid))
    stage.wait()


def _cpuset(stage: Stage) -> Path:
    return cpuset_cgroup(Host(), f"exhume-lab-{stage.directory.name}") / stage.name


@Scenario("a program starts processes that end at once, as fast as a core allows", on_core=True)
def fork_storm(stage: Stage) -> None:
    # With or without an exec: the storm of a shell script, or of a server that forks for each request.
    program = stage.rng.choice(("fork", shutil.which("true") or "fork"))
    stage.run("processes.fork_loop", program, core=stage.core)


@Scenario("a service fails while it starts and is started again, and again", seconds=15.0)
def crash_loop(stage: Stage) -> None:
    rng = stage.rng
    argv = (stage.python_named(stage.name), *SCRIPT_FLAGS, *program_argv("processes.failing_service"))
    service = (*argv, f"{rng.uniform(0.05, 0.3):.3f}", f"{rng.uniform(0.0, 0.5):.3f}")
    place = _place(stage)
    pause = f"{rng.uniform(0.1, 0.8):.3f}"
    stage.start("processes.supervise", stage.seconds, pause, *place, *service, name=f"{stage.name}-s", core=stage.core)
    stage.wait()


def _place(stage: Stage) -> tuple[str, str]:
    """Where the service runs, at random: with its supervisor, in a cgroup with its name, or in one with a new id each
    time."""
    kind = stage.rng.choice(("none", "unit", "container"))
    if kind == "none":
        return "-", ""
    try:
        root = find_memory_hierarchy(Host()).root
    except LabError:
        return "-", ""
    parent = root / f"{stage.name}-{stage.rng.getrandbits(24):06x}"
    stage.leftovers.add(OwnCgroup(str(parent)))
    parent.mkdir()
    return str(parent), f"{stage.name}.service" if kind == "unit" else ""


class Work(NamedTuple):
    """A program, the stem of its processes' names, and a function that draws its argument."""

    program: str
    stem: str
    draw: Callable[[Random], object]

    def start(self, stage: Stage, seconds: float) -> None:
        if not self.program:
            return
        spool = (stage.directory / "spool",) if self.program == "files.file_churn" else ()
        argument = self.draw(stage.rng)
        name = f"{self.stem}-{stage.rng.getrandbits(12):03x}"
        stage.start(self.program, seconds, *spool, argument, name=name)


# Each is light: with any of them, a machine is mostly idle, and no process waits.
BACKGROUNDS = {
    "nothing": Work("", "", lambda rng: None),
    "compression": Work("cpu.compress", "pack", lambda rng: f"{rng.uniform(0.1, 0.4):.2f}"),
    "forks": Work("processes.spawn", "checks", lambda rng: rng.randint(20, 120)),
    "files": Work("files.file_churn", "spool", lambda rng: rng.randint(1 << 10, 8 << 10)),
    "loopback": Work("network.loopback", "mesh", lambda rng: rng.randint(200, 2_000)),
    "buffers": Work("memory.buffers", "cache", lambda rng: rng.randint(2, 24)),
    "sleepers": Work("cpu.sleepers", "pool", lambda rng: rng.randint(5, 40)),
}
# A job that takes most of one core, on a machine that has others.
BATCH = Work("cpu.compress", "batch", lambda rng: f"{rng.uniform(0.7, 0.95):.2f}")
