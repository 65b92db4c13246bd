"""Evidence of the usual kinds, quoted from a case's rows."""

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.rows import Rows
from exhume.diagnose.evidence.samples import Names, plain_name
from exhume.model.clock import NANOS
from exhume.model.finding import Evidence
from exhume.model.window import Window


def quote_load(case: Case, load: Load, functions: tuple[str, ...]) -> Evidence:
    """The share of one core that stacks with these functions took in the worst second."""
    return Evidence(
        "samples", "weight_us", "share", round(load.peak, 3), load.at, load.at + NANOS, load.cpu, functions=functions
    )


def quote_column(rows: Rows, column: str, how: str, unit: str = "", cpu: int | None = None) -> Evidence | None:
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


def quote_share(case: Case, load: Load, functions: tuple[str, ...], pid: int | None = None) -> Evidence:
    """The part of a load's worst second on its core that went to these functions, of one process or of all."""
    second = Window(load.at, load.at + NANOS)
    sampled = case.samples
    mask = sampled.holding(Names.of(functions)) & sampled.within(second)
    if load.cpu is not None:
        mask &= sampled.cpu == load.cpu
    match: tuple[tuple[str, str], ...] = ()
    if pid is not None:
        mask &= sampled.pid == pid
        match = (("pid", str(pid)),)
    value = float(sampled.weight[mask].sum()) / 1e6
    return Evidence(
        "samples",
        "weight_us",
        "share",
        round(min(1.0, value), 3),
        second.since,
        second.until,
        load.cpu,
        match,
        functions,
    )


def present_functions(case: Case, names: Names) -> tuple[str, ...]:
    """Those of the named functions that stacks of this case hold: what evidence can name."""
    return tuple(sorted({plain_name(each) for each in case.samples.functions if each in names}))


def told_load(load: Load, what: str) -> str:
    """How much of what core something took, now and before, in words."""
    text = f"{what} took {load.peak:.0%} of core {load.cpu} in a second, {load.cores:.2f} cores over all"
    return text if load.before is None else f"{text} (before: {load.before:.2f})"
