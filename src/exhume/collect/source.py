"""What the recorder's loop asks of a source of rows."""

import time
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from exhume.model.clock import NANOS, Tick
from exhume.model.facts import MissingSource
from exhume.model.tables import Columns

# Table name -> the rows that a source adds to it in one tick.
TickRows = Mapping[str, Columns]

NOTHING: TickRows = {}


class Source(Protocol):
    """One origin of rows, read once a tick.

    The constructor takes the `Host` first and raises `SourceUnavailable` where the source can't work at all. The
    first `read` may only set the counters that later ones are measured against.
    """

    @property
    def name(self) -> str: ...

    def read(self, tick: Tick) -> TickRows: ...

    def close(self) -> None: ...


@runtime_checkable
class PartialSource(Source, Protocol):
    """A source that works, but without some of its columns: it says which, and what would bring them back."""

    @property
    def missing(self) -> Sequence[MissingSource]: ...


class Pace:
    """When a slow read is due: every `every_s` seconds, or less often to stay below `share` of a core."""

    def __init__(self, every_s: float = 10.0, share: float = 0.001) -> None:
        self._every = int(every_s * NANOS)
        self._share = share
        self._due = 0
        self._began = 0

    def due(self, now: int) -> bool:
        """Whether to read at `now` (monotonic nanoseconds); the cost is taken from here until `done`."""
        if now < self._due:
            return False
        self._began = time.thread_time_ns()
        return True

    def done(self, now: int) -> None:
        cost = time.thread_time_ns() - self._began
        self._due = now + max(self._every, int(cost / self._share))
