"""exhume record: record this node until it is stopped."""

from typing import Annotated

from exhume.cli.options import COLOR_AUTO, NO_DIR, Color, Dir, Utc, registered
from exhume.model.settings import setting


def record(
    *,
    directory: Dir = NO_DIR,
    length: Annotated[str, registered("for")] = setting("for").default,
    rate: Annotated[str, registered("rate")] = setting("rate").default,
    max_size: Annotated[str, registered("max-size")] = setting("max-size").default,
    max_age: Annotated[str, registered("max-age")] = setting("max-age").default,
    cpu_budget: Annotated[str, registered("cpu-budget")] = setting("cpu-budget").default,
    memory_budget: Annotated[str, registered("memory-budget")] = setting("memory-budget").default,
    color: Color = COLOR_AUTO,
    utc: Utc = False,
) -> None:
    """Record this node until it is stopped.

    Ctrl-C or SIGTERM seals what is there and tells what was recorded, lost and spent.
    """
    given = {
        "dir": directory,
        "for": length,
        "rate": rate,
        "max-size": max_size,
        "max-age": max_age,
        "cpu-budget": cpu_budget,
        "memory-budget": memory_budget,
        "color": color,
    }
    values = {name: setting(name).read(text) for name, text in given.items()}

    from exhume.cli.recording import record_node

    record_node(values | {"utc": utc})


def record_by_default() -> None:
    """What bare `exhume` does: record with the settings of the environment."""
    names = ("dir", "for", "rate", "max-size", "max-age", "cpu-budget", "memory-budget", "color", "utc")
    values = {name: setting(name).from_environment() for name in names}

    from exhume.cli.recording import record_node

    record_node(values)
