"""The interface between the recorder's loop and a source of rows, and what sources share: pacing of slow reads,
/proc/stat."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from exhume.model.clock import NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.facts import MissingSource
from exhume.model.tables import Columns, Events, Losses, to_columns
from exhume.procfs.host import Host, ProcFile

# Table name -> the rows that a source adds to it in one tick.
TickRows = Mapping[str, Columns]

NOTHING: TickRows = {}


def table_rows(table: str, names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> TickRows:
    """The rows of one table as columns."""
    return {table: dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))} if rows else NOTHING


def event_rows(events: Sequence[Events]) -> TickRows:
    """The rows of the events table as columns."""
    return {"events": to_columns("events", events)} if events else NOTHING


class Source(Protocol):
    """One origin of rows, read once a tick.

    The constructor takes the `Host` first and raises `SourceUnavailable` when the source cannot work at all. The first
    `read` may only set the base for later counter values.
    """

    @property
    def name(self) -> str: ...

    def read(self, tick: Tick) -> TickRows: ...

    def close(self) -> None: ...


@runtime_checkable
class PartialSource(Source, Protocol):
    """A source that works, but without some of its columns: it reports which, and how to enable them."""

    @property
    def missing(self) -> Sequence[MissingSource]: ...


@runtime_checkable
class LossySource(Source, Protocol):
    """A source that may lose data: after each read it reports what it lost."""

    def take_losses(self) -> list[Losses]: ...


class Pace:
    """Decides when a slow read is due: every `every_s` seconds, or less often to stay below `share` of a core."""

    def __init__(self, every_s: float = 10.0, share: float = 0.001) -> None:
        self._every = int(every_s * NANOS)
        self._share = share
        self._due = 0
        self._began = 0

    def due(self, now: int) -> bool:
        """Whether to read at `now` (monotonic nanoseconds); CPU time is measured from here until `done`."""
        if now < self._due:
            return False
        self._began = time.thread_time_ns()
        return True

    def done(self, now: int) -> None:
        cost = time.thread_time_ns() - self._began
        self._due = now + max(self._every, int(cost / self._share))


class StatFile:
    """/proc/stat, read once a tick however many sources need it: on a large machine the kernel needs long to sum up
    every interrupt for it (fs/proc/stat.c, show_stat)."""

    def __init__(self, host: Host) -> None:
        self._file = ProcFile(host.proc / "stat", single=True)
        self._tick = -1
        self._content = b""

    def require(self, source: str) -> None:
        """Raise SourceUnavailable, for the source that needs it, when there is no /proc/stat."""
        try:
            self._file.read()
        except OSError as error:
            raise SourceUnavailable(
                source, f"{self._file.path} can't be read ({error.strerror})", "mount procfs at /proc"
            ) from error

    def read(self, tick: Tick) -> bytes:
        if self._tick != tick.end:
            self._content = self._file.read()
            self._tick = tick.end
        return self._content

    def close(self) -> None:
        self._file.close()
