"""A measure as it was observed: value by value, each over its seconds, as the statistics need them."""

from dataclasses import dataclass
from statistics import median
from typing import Any

from exhume.model.remedy import Effect, Measure, Stretch
from exhume.remedy.verify.measures import MEANINGS, Kind

RECORDING, LIVE = "recording", "live"


@dataclass(frozen=True, slots=True)
class Observed:
    """The observations of one effect's measure, oldest first. A value is a level at the end of its span, or an amount
    over it; `spans` are seconds. `missing` says why there are none, or fewer than there should be; `settled` says in
    what state the subject's manager has it, where that is one in which it is not started again."""

    effect: Effect
    source: str
    since: int
    until: int
    values: tuple[float, ...] = ()
    spans: tuple[float, ...] = ()
    missing: str = ""
    settled: str = ""

    @property
    def seconds(self) -> float:
        """The time that was observed; gaps are not part of it."""
        return sum(self.spans)

    @property
    def amount(self) -> float:
        return sum(self.values)

    @property
    def stretch(self) -> Stretch:
        return Stretch(self._value(), round(self.seconds, 3), len(self.values), self.source)

    def _value(self) -> float | None:
        """What a person is told: the rate, the usual level, or the newest count."""
        if not self.values or not self.seconds:
            return None
        meaning = MEANINGS[self.effect.measure]
        if meaning.kind is Kind.STOCK:
            return float(median(self.values[-3:]))
        if meaning.kind is Kind.LEVEL:
            return float(median(self.values))
        return self.amount / self.seconds * meaning.per

    def to_dict(self) -> dict[str, Any]:
        stretch = self.stretch
        return {
            "measure": self.effect.measure.value,
            "expected": self.effect.expected,
            "subject": self.effect.subject,
            "source": self.source,
            "since": self.since,
            "until": self.until,
            "value": stretch.value,
            "unit": MEANINGS[self.effect.measure].unit,
            "values": [_short(value) for value in self.values],
            "spans": [_short(span) for span in self.spans],
            "missing": self.missing,
        }

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> "Observed":
        """What `to_dict` gave. Raises KeyError, TypeError or ValueError for anything else."""
        values = tuple(float(value) for value in told["values"])
        spans = tuple(float(span) for span in told["spans"])
        if len(values) != len(spans) or any(not span > 0 for span in spans):
            raise ValueError("each value needs a span above 0")
        effect = Effect(Measure(told["measure"]), str(told["expected"]), str(told["subject"]))
        since, until = int(told["since"]), int(told["until"])
        return cls(effect, str(told["source"]), since, until, values, spans, str(told["missing"]))


def _short(number: float) -> float:
    """Six digits are more than was measured."""
    return float(f"{number:.6g}") if abs(number) < 1e6 else round(number, 1)
