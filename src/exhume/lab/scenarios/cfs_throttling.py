"""Several busy processes in a cgroup whose CPU quota is far below what they need."""

from exhume.collect.host import Host
from exhume.lab.cpu_hierarchy import find_cpu_hierarchy
from exhume.lab.stage import Stage

SUMMARY = "busy processes in a cgroup with a small CPU quota are stopped in most of its periods"
PERIODS_US = (20_000, 50_000, 100_000)


def prepare(stage: Stage) -> None:
    """The cgroup with its quota, as a runtime makes it for a container."""
    hierarchy = find_cpu_hierarchy(Host())
    for directory in hierarchy.directories(_name(stage)):
        stage.leftovers.note("cgroup", path=str(directory))
        directory.mkdir()
    hierarchy.set_quota(_name(stage), stage.rng.uniform(0.15, 0.5), stage.rng.choice(PERIODS_US))


def play(stage: Stage) -> None:
    hierarchy = find_cpu_hierarchy(Host())
    for _ in range(stage.rng.randint(2, 4)):
        started = stage.start("compute", str(stage.seconds))
        hierarchy.join(_name(stage), started.pid)
    stage.wait()


def _name(stage: Stage) -> str:
    return f"exhume-lab-{stage.directory.name}"
