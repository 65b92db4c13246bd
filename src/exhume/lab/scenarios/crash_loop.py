"""A service that fails while it starts, and a supervisor that starts it again."""

from exhume.collect.host import Host
from exhume.lab.memory_hierarchy import find_memory_hierarchy
from exhume.lab.stage import PROGRAMS, Stage
from exhume.model.errors import LabError

SUMMARY = "a service fails while it starts and is started again, and again"


def play(stage: Stage) -> None:
    rng = stage.rng
    service = [
        stage.python_named(stage.name),
        "-I",
        "-S",
        PROGRAMS / "failing_service.py",
        f"{rng.uniform(0.05, 0.3):.3f}",
        f"{rng.uniform(0.0, 0.5):.3f}",
    ]
    parent, name = _place(stage)
    stage.start(
        "supervise",
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
    """Where the service lives, by lot: with its supervisor, in a cgroup of its name, or in one with a new id each."""
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
