"""What a recording is: its span, size, losses and cost."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from exhume.model.clock import Window
from exhume.model.facts import MissingSource, RecordingFacts
from exhume.store.read.index import Skipped


@dataclass(frozen=True, slots=True)
class SelfCost:
    """The recorder's own cost: CPU in percent of one core, memory in KiB, and all the bytes that it wrote."""

    seconds: float
    cpu_percent_mean: float
    cpu_percent_max: float
    rss_kb_max: int
    written_bytes: int


@dataclass(frozen=True, slots=True)
class RecordingInfo:
    """`samples` are the stored ones; `losses` counts what was not recorded, by source and kind."""

    directory: Path
    facts: RecordingFacts
    span: Window | None
    recorded_seconds: float
    segments: int
    bytes: int
    samples: int
    rate_hz: int
    event_source: str
    losses: dict[str, int]
    cost: SelfCost
    sources_missing: list[MissingSource]
    skipped: list[Skipped]


def self_cost(rows: pa.Table) -> SelfCost:
    """The cost in rows of the self table."""
    if rows.num_rows == 0:
        return SelfCost(0.0, 0.0, 0.0, 0, 0)
    span_us = np.maximum(1, rows.column("span_ms").to_numpy().astype(np.int64)) * 1000
    used_us = rows.column("user_us").to_numpy().astype(np.int64) + rows.column("system_us").to_numpy()
    return SelfCost(
        seconds=float(span_us.sum()) / 1e6,
        cpu_percent_mean=100 * float(used_us.sum()) / float(span_us.sum()),
        cpu_percent_max=100 * float((used_us / span_us).max()),
        rss_kb_max=int(rows.column("rss_kb").to_numpy().max()),
        written_bytes=int(rows.column("written_bytes").to_numpy().sum()),
    )
