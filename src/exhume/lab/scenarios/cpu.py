"""CPU scenarios: a healthy machine, quotas, real-time and greedy threads, fork storms, crash loops, lock contention."""

import os
import shutil
import time

from exhume.lab.hierarchies import find_cpu_hierarchy, find_memory_hierarchy
from exhume.lab.scenarios.background import batch, buffers, compression, file_work, forks, loopback, sleepers
from exhume.lab.stage import Scenario, Stage, program_argv
from exhume.model.errors import LabError
from exhume.procfs.host import Host

_PAUSE_S = (0.5, 2.0)


def quiet(stage: Stage) -> None:
    kinds = [batch, buffers, compression, file_work, forks, loopback, sleepers]
    stage.rng.shuffle(kinds)
    began = time.monotonic()
    for start in kinds[: stage.rng.randint(2, 5)]:
        left = stage.seconds - (time.monotonic() - began)
        start(stage, max(1.0, stage.rng.uniform(0.5, 1.0) * left))
        stage.wait(min(left, stage.rng.uniform(*_PAUSE_S)))
    stage.wait(max(0.0, stage.seconds - (time.monotonic() - began)))


PERIODS_US = (20_000, 50_000, 100_000)


def prepare_cfs_throttling(stage: Stage) -> None:
    """The cgroup with its quota, as a runtime makes it for a container."""
    hierarchy = find_cpu_hierarchy(Host())
    for directory in hierarchy.directories(_name(stage)):
        stage.leftovers.note("cgroup", path=str(directory))
        directory.mkdir()
    hierarchy.set_quota(_name(stage), stage.rng.uniform(0.15, 0.5), stage.rng.choice(PERIODS_US))


def cfs_throttling(stage: Stage) -> None:
    hierarchy = find_cpu_hierarchy(Host())
    for _ in range(stage.rng.randint(2, 4)):
        started = stage.start("cpu.compute", str(stage.seconds))
        hierarchy.join(_name(stage), started.pid)
    stage.wait()


def _name(stage: Stage) -> str:
    return f"exhume-lab-{stage.directory.name}"


def prepare_rt_hog(stage: Stage) -> None:
    """Ordinary work on that core, that goes on all the while."""
    share = stage.rng.uniform(0.3, 0.6)
    stage.start("cpu.short_work", str(stage.seconds + 600), f"{share:.2f}", name=f"{stage.name}-peer", core=stage.core)


def rt_hog(stage: Stage) -> None:
    hog = stage.start("cpu.compute", str(stage.seconds), core=stage.core)
    policy = stage.rng.choice((os.SCHED_FIFO, os.SCHED_RR))
    try:
        os.sched_setscheduler(hog.pid, policy, os.sched_param(stage.rng.randint(1, 60)))
    except PermissionError:
        raise LabError(
            "real-time threads are not allowed here; run as root, in a cgroup with cpu.rt_runtime_us where it has one"
        ) from None
    stage.wait()


def prepare_user_hog(stage: Stage) -> None:
    """The others: work that has to stay on that core, and had room there."""
    for number in range(stage.rng.randint(1, 2)):
        share = stage.rng.uniform(0.35, 0.45)
        name = f"{stage.name}-peer{number}"
        stage.start("cpu.short_work", str(stage.seconds + 600), f"{share:.2f}", name=name, core=stage.core)


def user_hog(stage: Stage) -> None:
    # With a raised priority, as an operator may give a program: it takes more than its fair part.
    stage.start("cpu.compute", str(stage.seconds), core=stage.core, nice=stage.rng.choice((-10, -15, -20)))
    stage.wait()


def fork_storm(stage: Stage) -> None:
    # With an exec or without: a shell script's storm, or a server's that forks for each request.
    program = stage.rng.choice(("fork", shutil.which("true") or "fork"))
    stage.start("processes.fork_loop", str(stage.seconds), program, core=stage.core)
    stage.wait()


def crash_loop(stage: Stage) -> None:
    rng = stage.rng
    service = [
        stage.python_named(stage.name),
        "-I",
        "-S",
        *program_argv("processes.failing_service"),
        f"{rng.uniform(0.05, 0.3):.3f}",
        f"{rng.uniform(0.0, 0.5):.3f}",
    ]
    parent, name = _place(stage)
    stage.start(
        "processes.supervise",
        str(stage.seconds),
        f"{rng.uniform(0.1, 0.8):.3f}",
        parent,
        name,
        *map(str, service),
        name=f"{stage.name}-s",
        core=stage.core,
    )
    stage.wait()


def _place(stage: Stage) -> tuple[str, str]:
    """Where the service lives, random: with its supervisor, in a cgroup of its name, or in one with a new id each."""
    kind = stage.rng.choice(("none", "unit", "container"))
    if kind == "none":
        return "-", ""
    try:
        root = find_memory_hierarchy(Host()).root
    except LabError:
        return "-", ""
    parent = root / f"{stage.name}-{stage.rng.getrandbits(24):06x}"
    stage.leftovers.note("cgroup", path=str(parent))
    parent.mkdir()
    return str(parent), f"{stage.name}.service" if kind == "unit" else ""


LOCKS = 6000
MOST_CORES = 4


def prepare_spinlock_contention(stage: Stage) -> None:
    path = stage.directory / "records"
    path.write_bytes(b"x")
    stage.start("files.hold_locks", str(stage.seconds + 600), str(path), str(LOCKS), name=f"{stage.name}-owner")


def spinlock_contention(stage: Stage) -> None:
    path = stage.directory / "records"
    cores = stage.rng.sample(stage.cores, min(MOST_CORES, len(stage.cores)))
    # Two on each core, and ahead of others: a core has to be in the lock while another is.
    for core in cores * 2:
        stage.start("files.query_locks", str(stage.seconds), str(path), core=core, nice=-10)
    stage.wait()


SCENARIOS = (
    Scenario("quiet", "", "a busy, healthy machine: nothing to find", quiet),
    Scenario(
        "cfs-throttling",
        "cfs-throttling",
        "busy processes in a cgroup with a small CPU quota are stopped in most of its periods",
        cfs_throttling,
        prepare_cfs_throttling,
    ),
    Scenario(
        "rt-hog",
        "rt-hog",
        "a real-time thread keeps its core, and ordinary threads there stand still",
        rt_hog,
        prepare_rt_hog,
        on_core=True,
    ),
    Scenario(
        "spinlock-contention",
        "spinlock-contention",
        "processes on several cores spin for one lock of the kernel",
        spinlock_contention,
        prepare_spinlock_contention,
    ),
    Scenario(
        "user-hog",
        "user-hog",
        "a program computes without a pause on a core that others need",
        user_hog,
        prepare_user_hog,
        on_core=True,
    ),
    Scenario(
        "fork-storm",
        "fork-storm",
        "a program starts processes that end at once, as fast as a core allows",
        fork_storm,
        on_core=True,
    ),
    Scenario(
        "crash-loop",
        "crash-loop",
        "a service fails while it starts and is started again, and again",
        crash_loop,
        seconds=15.0,
    ),
)
