"""Counters of the node as rates: in the focus, and before it."""

from dataclasses import dataclass

from exhume.diagnose import messages
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.quotes import quote_column
from exhume.model.finding import Evidence


@dataclass(frozen=True, slots=True)
class Rate:
    """Counts a second: the mean of the focus, and the mean before (None without a baseline)."""

    now: float
    before: float | None
    evidence: Evidence

    @property
    def rise(self) -> float:
        """How much more than before; all of it where there is no before."""
        return self.now - (self.before or 0.0)

    def __str__(self) -> str:
        return messages.render("shared.rate", {"now": self.now, "before": self.before})

    def is_far_above(self, factor: float) -> bool:
        """Whether it is so many times what it was before (always, without a before)."""
        return self.before is None or self.now >= factor * self.before


def node_rate(case: Case, column: str, unit: str = "") -> Rate | None:
    """The rate of a column of differences of the node table; None where it was not recorded."""
    rows = case.now("node")
    evidence = quote_column(rows, column, "sum", unit)
    now = rows.per_second(column) if len(rows) else None
    if evidence is None or now is None:
        return None
    earlier = case.before("node")
    before = earlier.per_second(column) if len(earlier) else None
    return Rate(now, before, evidence)


def rise_of(case: Case, column: str) -> float:
    """How much a counter rose over what it was before, a second; 0 where it wasn't recorded."""
    rate = node_rate(case, column)
    return 0.0 if rate is None else rate.rise
