"""Evidence of the usual kinds, quoted from a case's rows."""

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.rows import Rows
from exhume.diagnose.evidence.samples import Names, plain_name
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Evidence
from exhume.store.read.events import EventView

# A driver reports seconds after its queue stalled, and a starved log is written late.
LOG_SLACK_NS = 15 * NANOS


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
    samples = case.samples
    mask = samples.holding(Names.of(functions)) & samples.within(second)
    if load.cpu is not None:
        mask &= samples.cpu == load.cpu
    match: tuple[tuple[str, str], ...] = ()
    if pid is not None:
        mask &= samples.pid == pid
        match = (("pid", str(pid)),)
    value = float(samples.weight[mask].sum()) / 1e6
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


def quote_event(event: EventView) -> Evidence:
    """The line of an event."""
    match = (("kind", event.kind),)
    return Evidence("events", "text", "first", event.text, event.wall, event.wall + 1, match=match)


def quote_core(state: str, share: float, cpu: int | None, at: int) -> Evidence:
    """A core's share of one second in a state, at the row of that wall time."""
    return Evidence("cpu", state, "max", round(share * 1000), at, at + 1, cpu, unit="permille")


def log_lines(
    case: Case, kinds: tuple[str, ...], *, before_s: int = 2, after_ns: int = LOG_SLACK_NS
) -> list[EventView]:
    """The events of these kinds in the focus and shortly around it."""
    near = Window(case.focus.since - before_s * NANOS, case.focus.until + after_ns)
    return [event for event in case.recording.events(near) if event.kind in kinds]
