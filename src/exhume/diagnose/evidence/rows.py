"""Rows of one table as numpy columns, for causes to compute with."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import Window

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Rows:
    """The rows of a table with their wall time. A missing number is NaN, a missing text is None."""

    def __init__(self, name: str, table: pa.Table) -> None:
        self.name = name
        self._table = table
        self._columns: dict[str, npt.NDArray[Any]] = {}

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def numbers(self, column: str) -> Floats:
        """A numeric column as floats; not suitable for ids (hashes) that a float can't represent."""
        if column not in self._columns:
            values = pc.cast(self._table.column(column), pa.float64(), safe=False).to_numpy()
            self._columns[column] = np.asarray(values, np.float64)
        return self._columns[column]

    def texts(self, column: str) -> npt.NDArray[np.object_]:
        if column not in self._columns:
            self._columns[column] = np.array(self._table.column(column).to_pylist(), dtype=object)
        return self._columns[column]

    @property
    def wall(self) -> Ints:
        if "wall" not in self._columns:
            self._columns["wall"] = self._table.column("wall").to_numpy().astype(np.int64)
        return self._columns["wall"]

    @property
    def span(self) -> tuple[int, int]:
        """The wall time of the first and the last row, as evidence quotes it; (0, 0) without rows."""
        return (int(self.wall.min()), int(self.wall.max()) + 1) if len(self) else (0, 0)

    @property
    def cpu(self) -> Ints:
        return self.numbers("cpu").astype(np.int64)

    def on(self, cpu: int | None) -> "Rows":
        """The rows of one core."""
        return self.where(self.cpu == cpu)

    def within(self, window: Window) -> "Rows":
        return self.where((self.wall >= window.since) & (self.wall < window.until))

    def where(self, mask: Mask) -> "Rows":
        return self if bool(mask.all()) else Rows(self.name, self._table.filter(pa.array(mask)))

    def matching(self, column: str, *texts: str) -> "Rows":
        """The rows whose text in a column is one of these."""
        return Rows(self.name, self._table.filter(pc.is_in(self._table.column(column), pa.array(texts, pa.string()))))

    def containing(self, column: str, text: str) -> "Rows":
        """The rows whose text in a column has this in it."""
        return Rows(self.name, self._table.filter(pc.match_substring(self._table.column(column), text)))

    def listed(self, *columns: str) -> list[tuple[Any, ...]]:
        """Some columns as plain tuples, for the few rows that are read one by one."""
        return list(zip(*(self._table.column(name).to_pylist() for name in columns), strict=True))

    def pairs(self, key: str, value: str) -> dict[Any, Any]:
        """A dict from the values of one column to those of another, for rows that have both; the last row wins."""
        both = self._table.select([key, value]).drop_null().group_by([key, value], use_threads=False).aggregate([])
        return dict(zip(both.column(key).to_pylist(), both.column(value).to_pylist(), strict=True))

    # Aggregates of a column's recorded values; None if nothing was recorded.

    def total(self, column: str) -> float | None:
        return self._of_known(column, np.sum)

    def highest(self, column: str) -> float | None:
        return self._of_known(column, np.max)

    def lowest(self, column: str) -> float | None:
        return self._of_known(column, np.min)

    def middle(self, column: str) -> float | None:
        return self._of_known(column, np.median)

    def mean(self, column: str) -> float | None:
        return self._of_known(column, np.mean)

    def _of_known(self, column: str, take: Callable[[Floats], Any]) -> float | None:
        known = self.numbers(column)
        known = known[~np.isnan(known)]
        return float(take(known)) if len(known) else None

    def newest(self, column: str) -> float | None:
        values = self.numbers(column)
        known = np.flatnonzero(~np.isnan(values))
        return float(values[known[np.argmax(self.wall[known])]]) if len(known) else None

    def per_second(self, column: str) -> float | None:
        """The rate of a delta column over the time that the rows cover (by their span_ms)."""
        values, spans = self.numbers(column), self.numbers("span_ms")
        known = ~np.isnan(values)
        seconds = float(spans[known].sum()) / 1000
        return float(values[known].sum()) / seconds if seconds > 0 else None

    def rates(self, column: str) -> Floats:
        """The rate of a delta column, row by row (NaN if not recorded)."""
        rates: Floats = self.numbers(column) / np.maximum(self.numbers("span_ms"), 1) * 1000
        return rates

    def sums(self, columns: Sequence[str]) -> Floats:
        """The sum of several columns, row by row."""
        total: Floats = np.sum([self.numbers(column) for column in columns], axis=0)
        return total
