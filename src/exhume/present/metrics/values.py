"""The values behind the families: plain series, and rankings that expose the busiest few of many names.

Only the recorder's thread writes them. Another thread may read at any time: `list(dict.items())` is atomic in the
interpreter, so there is no lock that a starved reader could hold against the recorder.
"""

from collections.abc import Iterable, Sequence

from exhume.present.metrics.families import MOST_NAMED, OTHER, Family

Labels = tuple[str, ...]
# A snapshot of the values: each family with its series.
Snapshot = list[tuple[Family, list[tuple[Labels, float]]]]


class Series:
    """The series of one family, by label values. Beyond `most` series, new ones are counted as other."""

    def __init__(self, family: Family, most: int = 256) -> None:
        self.family = family
        self._most = most
        self._values: dict[Labels, float] = {}

    def add(self, amount: float, *labels: str) -> None:
        """Increase a counter, creating the series if its labels are new."""
        known = self._values.get(labels)
        if known is None and len(self._values) >= self._most:
            labels = (OTHER,) * len(labels)
            known = self._values.get(labels, 0.0)
        self._values[labels] = (known or 0.0) + amount

    def set(self, value: float | None, *labels: str) -> None:
        """Set a gauge; None removes it."""
        if value is None:
            self._values.pop(labels, None)
        elif labels in self._values or len(self._values) < self._most:
            self._values[labels] = value

    def read(self) -> list[tuple[Labels, float]]:
        return list(self._values.items())


class Ranking:
    """Counters of many names: the busiest are exposed, and the rest are summed as other.

    Each name has one value per family. What a name counts while it is not exposed stays in `other` for good, and the
    name keeps its own count meanwhile, so no exposed series ever decreases. The names counted least recently are
    evicted first.
    """

    def __init__(self, width: int, labels: int, most: int = MOST_NAMED, known: int = 512) -> None:
        self._width, self._most, self._known = width, most, known
        self._other_labels: Labels = (OTHER,) * labels
        self._totals: dict[Labels, list[float]] = {}
        # Recent weight of each name, halved at each review, so that the currently busiest names are exposed.
        self._recent: dict[Labels, float] = {}
        self._exposed: dict[Labels, list[float]] = {}
        self._other = [0.0] * width

    def add(self, amounts: Sequence[float], weight: float, *labels: str) -> None:
        """Count values for a name; `weight` is its contribution to the ranking."""
        # Reinserted at the end: eviction starts with the name counted least recently.
        self._recent[labels] = self._recent.pop(labels, 0.0) + weight
        if len(self._recent) > self._known:
            self._forget()
        values = self._exposed.get(labels)
        if values is None and len(self._exposed) < self._most:
            values = self._expose(labels)
        values = self._other if values is None else values
        for place, amount in enumerate(amounts):
            values[place] += amount

    def add_unnamed(self, amounts: Sequence[float]) -> None:
        """Count values as other."""
        for place, amount in enumerate(amounts):
            self._other[place] += amount

    def review(self) -> None:
        """Replace exposed names with clearly busier ones. Call this periodically."""
        hidden = sorted((name for name in self._recent if name not in self._exposed), key=self._recent.__getitem__)
        shown = sorted(self._exposed, key=lambda name: self._recent.get(name, 0.0), reverse=True)
        while hidden and shown and self._recent[hidden[-1]] > 2 * self._recent.get(shown[-1], 0.0):
            idle = shown.pop()
            self._totals[idle] = self._exposed.pop(idle)
            self._expose(hidden.pop())
        for name in self._recent:
            self._recent[name] /= 2

    def read(self, place: int) -> list[tuple[Labels, float]]:
        """The series of one family."""
        found = [(labels, values[place]) for labels, values in list(self._exposed.items())]
        return [*found, (self._other_labels, self._other[place])]

    def _expose(self, labels: Labels) -> list[float]:
        values = self._totals.pop(labels, None) or [0.0] * self._width
        self._exposed[labels] = values
        return values

    def _forget(self) -> None:
        for labels in self._recent:
            if labels not in self._exposed:
                del self._recent[labels]
                self._totals.pop(labels, None)
                return


def with_label(series: Iterable[tuple[Labels, float]], label: str) -> list[tuple[Labels, float]]:
    """The series with one more label value appended."""
    return [((*labels, label), value) for labels, value in series]
