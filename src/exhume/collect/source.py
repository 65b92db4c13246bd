"""What the recorder's loop asks of a source of rows."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from exhume.model.clock import Tick
from exhume.model.errors import Missing
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
    def missing(self) -> Sequence[Missing]: ...
