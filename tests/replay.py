"""A live recording at will: the rows of a synthetic one, written again tick by tick as a recorder does."""

from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from exhume.model.clock import MILLIS, NANOS, Tick
from exhume.model.tables import TABLES
from exhume.store.format.schema import DIMENSIONS, time_column
from exhume.store.read.index import sealed_segments
from exhume.store.read.reader import Request, read_segment
from exhume.store.read.recording import Recording
from exhume.store.write.writer import SegmentWriter

# Minutes would take long to write, and end where the wall clock's do: a test decides when one ends.
LONG_SEGMENT_S = 86_400


class Replay:
    """Writes the seconds of one minute of a recording. The directory counts as being recorded until it is closed."""

    def __init__(self, source: Path, directory: Path, *, minute: int = 0, segment_s: int = LONG_SEGMENT_S) -> None:
        segment = sealed_segments(source)[minute]
        self.directory = directory
        self._offset = segment.name.offset
        self._start = segment.name.start_ms * MILLIS
        self._tables = {}
        for table in TABLES:
            rows = read_segment(segment, Request(table))
            if rows is not None and table != "anchors":
                self._tables[table] = rows.combine_chunks()
        self._second = 0
        self._fresh = True
        self.writer = SegmentWriter(
            directory, Recording.open(source).facts, max_bytes=None, max_age_s=None, segment_s=segment_s
        )

    def play(self, seconds: int = 1) -> Self:
        """Write the next seconds; after a minute it begins again, with later times."""
        for _ in range(seconds):
            turn, second = divmod(self._second, 60)
            begin, shift = self._start + second * NANOS, turn * 60 * NANOS
            for table, minute in self._tables.items():
                rows = minute if table in DIMENSIONS else _between(minute, table, begin)
                if rows.num_rows and (self._fresh or table not in DIMENSIONS):
                    self.writer.append(table, _shifted(rows, table, shift))
            tick = Tick(self._second, begin + shift, begin + shift + NANOS, begin + shift + NANOS + self._offset)
            self._fresh = self.writer.commit(tick)
            self._second += 1
        return self

    def close(self) -> None:
        self.writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _between(rows: pa.Table, table: str, begin: int) -> pa.Table:
    unit = MILLIS if time_column(table) == "time_ms" else 1
    times = rows.column(time_column(table)).to_numpy() * unit
    return rows.filter(pa.array((times >= begin) & (times < begin + NANOS)))


def _shifted(rows: pa.Table, table: str, shift: int) -> dict[str, pa.Array]:
    columns = {name: rows.column(name).combine_chunks() for name in rows.schema.names}
    clock = time_column(table)
    if clock is not None and shift:
        unit = MILLIS if clock == "time_ms" else 1
        columns[clock] = pa.array(columns[clock].to_numpy() + np.int64(shift // unit))
    return columns
