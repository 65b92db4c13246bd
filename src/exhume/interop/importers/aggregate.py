"""Import summed stacks instead of single samples: sums are spread evenly, so that every part of the time has its share.

Few such files record cores or processes: without them all time is put on core 0, and the recording says so.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from exhume.interop.importers.form import SampleBatch, StackBook, Unreadable
from exhume.interop.importers.spool import Intake
from exhume.model.clock import NANOS

# A sum becomes several samples, so that every part of the time shows it; this is the maximum for all sums together.
_MOST_ROWS = 200_000
_USUAL_WEIGHT_US = 10_000
_LONGEST_S = 7 * 86_400
NO_CORES = ("cores", "the file has no cores: all of its time is on core 0", "import perf.data or perf script")


class StackSum(NamedTuple):
    """A stack with its CPU time: indices into a StackBook and a list of names, and microseconds."""

    stack: int
    comm: int
    weight_us: float
    pid: int = -1
    tid: int = -1
    cpu: int | None = None


def put_sums(
    intake: Intake, book: StackBook, comms: "CommPlaces", sums: Sequence[StackSum], time: tuple[int, int]
) -> None:
    """Spread sums over a time given by its begin and length in nanoseconds; without a length, over as much time as the
    sums amount to. Raises Unreadable if they exceed the length of any recording."""
    since, nanos = time
    summary = intake.summary
    weights = np.array([each.weight_us for each in sums], np.float64)
    total = float(weights.sum())
    if not len(sums) or not total > 0 or not np.isfinite(total):
        raise Unreadable("no stack in it has any time")
    if nanos <= 0:
        nanos = int(total * 1000)
    if nanos > _LONGEST_S * NANOS:
        raise Unreadable(f"says that it is {nanos / NANOS / 86_400:,.0f} days long")
    unit = max(_USUAL_WEIGHT_US, total / _MOST_ROWS)
    counts = np.maximum(1, np.round(weights / unit)).astype(np.int64)
    rows = np.repeat(np.arange(len(sums)), counts)
    # The samples of each stack are spread evenly over the time, with an offset between stacks.
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    phase = (np.arange(len(sums)) * 0.618033988749895) % 1.0
    share = (place + phase[rows]) / counts[rows]
    moments = since + np.minimum(share * nanos, nanos - 1).astype(np.int64)
    order = np.argsort(moments, kind="stable")
    rows, moments = rows[order], moments[order]
    each = np.clip(np.round(weights / counts), 1, 2**32 - 1).astype(np.int64)[rows]
    columns = [
        np.array([getattr(one, name) for one in sums], np.int64)[rows] for name in ("pid", "tid", "comm", "stack")
    ]
    pid, tid, comm, stack = columns
    cpu = np.array([one.cpu or 0 for one in sums], np.int64)[rows]
    batch = SampleBatch(moments, cpu, pid, tid, comm, stack, each)
    if all(one.cpu is None for one in sums):
        summary.missing.append(NO_CORES)
    summary.missing += [("time", f"sums of {nanos / NANOS:.1f} s are spread evenly over it", "")]
    summary.origin.event = summary.origin.event or "cpu"
    summary.origin.rate_hz = summary.origin.rate_hz or max(1, round(1e6 / float(np.median(each))))
    summary.origin.cores = max(summary.origin.cores, 1)
    intake.spool.add_samples(batch, book, comms.names)
    intake.spool.finish(book, comms.names)


class CommPlaces:
    """Interns thread names."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._places: dict[str, int] = {}

    def of(self, name: str) -> int:
        place = self._places.setdefault(name, len(self.names))
        if place == len(self.names):
            self.names.append(name)
        return place
