"""Common kinds of evidence, quoted from a case's rows, and node counters as rates."""

from dataclasses import dataclass

from exhume.diagnose import messages
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.rows import Rows
from exhume.diagnose.evidence.samples import Names, plain_name
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Evidence
from exhume.store.read.events import EventView

# A driver reports a stalled queue seconds later, and the log of a starved node is written late.
LOG_SLACK_NS = 15 * NANOS


def quote_column(  # noqa: PLR0917
    rows: Rows, column: str, how: str, unit: str = "", cpu: int | None = None, match: tuple[tuple[str, str], ...] = ()
) -> Evidence | None:
    """Evidence that aggregates a column of these rows; None if nothing was recorded."""
    take = {"max": rows.highest, "min": rows.lowest, "sum": rows.total, "last": rows.newest, "mean": rows.mean}
    value = take[how](column) if how != "count" else len(rows) or None
    if value is None:
        return None
    return Evidence(
        rows.name, column, how, round(value, 3) if how == "mean" else value, *rows.span, cpu, match, (), unit
    )


def quote_share(case: Case, load: Load, functions: tuple[str, ...], pid: int | None = None) -> Evidence:
    """Evidence of the share of a load's worst second on its core that went to these functions, for one process or
    all."""
    samples = case.samples
    mask = samples.holding(Names.of(functions)) & samples.within(Window(*load.second))
    if load.cpu is not None:
        mask &= samples.cpu == load.cpu
    if pid is not None:
        mask &= samples.pid == pid
    match = () if pid is None else (("pid", str(pid)),)
    value = round(min(1.0, samples.time(mask) / 1e6), 3)
    return Evidence("samples", "weight_us", "share", value, *load.second, load.cpu, match, functions)


def quote_named_share(load: Load, comm: str, functions: tuple[str, ...]) -> Evidence:
    """Evidence of the share of its core that the processes with this name took in the load's worst second."""
    share = round(load.peak, 3)
    return Evidence("samples", "weight_us", "share", share, *load.second, load.cpu, (("comm", comm),), functions)


def present_functions(case: Case, names: Names) -> tuple[str, ...]:
    """The named functions that occur in stacks of this case, so that evidence can name them."""
    return tuple(sorted({plain_name(each) for each in case.samples.functions if each in names}))


def quote_event(event: EventView) -> Evidence:
    match = (("kind", event.kind),)
    return Evidence("events", "text", "first", event.text, event.wall, event.wall + 1, match=match)


def quote_core(state: str, share: float, cpu: int | None, at: int) -> Evidence:
    """Evidence of a core's share of one second in a state, from the row at that wall time."""
    return Evidence("cpu", state, "max", round(share * 1000), at, at + 1, cpu, unit="permille")


def log_lines(case: Case, kinds: tuple[str, ...], *, after_ns: int = LOG_SLACK_NS) -> list[EventView]:
    """The events of these kinds in the focus and shortly before and after it."""
    near = Window(case.focus.since - 2 * NANOS, case.focus.until + after_ns)
    return [event for event in case.recording.events(near) if event.kind in kinds]


@dataclass(frozen=True, slots=True)
class Rate:
    """A count per second: the mean over the focus, and the mean over the baseline (None without a baseline)."""

    now: float
    before: float | None
    evidence: Evidence

    @property
    def rise(self) -> float:
        """The increase over the baseline; the whole rate without a baseline."""
        return self.now - (self.before or 0.0)

    def __str__(self) -> str:
        return messages.render("shared.rate", {"now": self.now, "before": self.before})

    def is_far_above(self, factor: float) -> bool:
        """Whether the rate is this many times the baseline (always true without a baseline)."""
        return self.before is None or self.now >= factor * self.before


def node_rate(case: Case, column: str, unit: str = "") -> Rate | None:
    """The rate of a delta column of the node table; None if it was not recorded."""
    rows = case.now("node")
    evidence, now = quote_column(rows, column, "sum", unit), rows.per_second(column)
    if evidence is None or now is None:
        return None
    return Rate(now, case.before("node").per_second(column), evidence)


def rise_of(case: Case, column: str) -> float:
    """The increase of a counter's rate over the baseline, per second; 0 if it was not recorded."""
    rate = node_rate(case, column)
    return 0.0 if rate is None else rate.rise
