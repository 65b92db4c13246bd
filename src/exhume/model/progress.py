"""Summaries of a tick and of a whole recording, and the sink that the recorder writes rows to.

`collect` writes to a sink and `store` implements it; neither depends on the other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from exhume.model.clock import Tick
from exhume.model.tables import Columns


@dataclass(frozen=True, slots=True)
class TickSummary:
    """One tick, as shown by the status. `cpu` is the tick's rows of that table; `lost` counts samples, `own_cpu` is the
    recorder's share of one core over the tick, and the texts describe what happened in it."""

    tick: Tick
    cpu: Columns | None
    samples: int
    lost: int
    rate_hz: int
    own_cpu: float
    rss_bytes: int
    written_bytes: int
    incidents: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    loss_counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordingSummary:
    """A finished recording. `losses` counts by kind; times are wall nanoseconds."""

    since: int
    until: int
    samples: int
    losses: Mapping[str, int]
    incidents: int
    cpu_seconds: float
    peak_rss_bytes: int
    written_bytes: int
    rate_hz: int

    @property
    def own_cpu(self) -> float:
        """The recorder's cost as a share of one core."""
        return self.cpu_seconds / max((self.until - self.since) / 1e9, 1e-9)


class RowSink(Protocol):
    """Takes the rows of a tick, then commits them together."""

    def append(self, table: str, columns: Columns) -> None:
        """Add rows to this tick. Columns that are left out are null."""

    def commit(self, tick: Tick) -> bool:
        """Make the tick's rows readable by others. True if a new segment begins with the next tick: stacks, frames and
        processes then have to be written again, so that every segment is self-contained."""

    def written_bytes(self) -> int:
        """Bytes written since the recorder began."""

    def dropped_rows(self) -> int:
        """Rows that could not be written since the recorder began, because the disk was full."""

    def close(self) -> None:
        """Seal the current segment."""
