"""Evidence of the usual kinds, quoted from a case's rows."""

from exhume.diagnose.case import Case
from exhume.diagnose.load import Load
from exhume.diagnose.rows import Rows
from exhume.model.clock import NANOS
from exhume.model.finding import Evidence


def of_load(case: Case, load: Load, functions: tuple[str, ...]) -> Evidence:
    """The share of one core that stacks with these functions took in the worst second."""
    return Evidence(
        "samples", "weight_us", "share", round(load.peak, 3), load.at, load.at + NANOS, load.cpu, functions=functions
    )


def of_column(rows: Rows, column: str, how: str, unit: str = "", cpu: int | None = None) -> Evidence | None:
    """A column of these rows taken together; None where nothing was recorded."""
    take = {
        "max": rows.highest,
        "min": rows.lowest,
        "sum": rows.total,
        "last": rows.newest,
    }[how]
    value = take(column) if len(rows) else None
    if value is None:
        return None
    return Evidence(rows.name, column, how, value, int(rows.wall.min()), int(rows.wall.max()) + 1, cpu, unit=unit)
