"""The rows of one tick, from all sources, before they are committed."""

from collections import Counter
from collections.abc import Iterator

from exhume.collect.source import TickRows
from exhume.model.tables import Columns, Losses, to_columns


class Gathered:
    """Rows by table; `given` is what each source gave; losses are rows of their own, for the loop to look at."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Columns]] = {}
        self.given: list[TickRows] = []
        self.losses: list[Losses] = []

    def add(self, rows: TickRows) -> None:
        if rows:
            self.given.append(rows)
        for table, columns in rows.items():
            if table == "losses":
                names = list(columns)
                self.losses.extend(
                    Losses(**dict(zip(names, row, strict=True)))
                    for row in zip(*(columns[name] for name in names), strict=True)
                )
            else:
                self._rows.setdefault(table, []).append(columns)

    def lose(self, loss: Losses) -> None:
        self.losses.append(loss)

    def loss_counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for loss in self.losses:
            counts[loss.kind] += loss.count
        return counts

    def of(self, table: str) -> list[Columns]:
        return self._rows.get(table, [])

    def items(self) -> Iterator[tuple[str, Columns]]:
        """Every batch, losses last."""
        for table, batches in self._rows.items():
            for columns in batches:
                yield table, columns
        if self.losses:
            yield "losses", to_columns("losses", self.losses)
