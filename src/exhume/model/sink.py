"""Where the recorder's rows go. collect writes to a sink; the store implements it; neither knows the other."""

from typing import Protocol

from exhume.model.clock import Tick
from exhume.model.tables import Columns


class RowSink(Protocol):
    """Takes the rows of a tick, then commits them together."""

    def append(self, table: str, columns: Columns) -> None:
        """Add rows to this tick. Columns that are left out are null."""
        ...

    def commit(self, tick: Tick) -> bool:
        """Make the tick's rows readable by others. True when a new segment begins with the next tick:
        stacks, frames and processes then have to be written again, so that every segment stands alone."""
        ...

    def written_bytes(self) -> int:
        """Bytes written since the recorder began."""
        ...

    def dropped_rows(self) -> int:
        """Rows that could not be written since the recorder began, because the disk was full."""
        ...

    def close(self) -> None:
        """Seal what is there."""
        ...
