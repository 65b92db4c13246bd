"""Definition of each measure, with the change that matters; a measure as it was observed; and both as text."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import median
from typing import Any

from exhume.model.remedy import Effect, Measure, Stretch

RECORDING, LIVE = "recording", "live"


class Kind(StrEnum):
    """How a measure is compared.

    A LEVEL is a value at a time (a share, a wait). A FLOW is an amount per time (pages, forks). EVENTS are single
    events that are counted. A STOCK is a count that stays until something is added or removed.
    """

    LEVEL = "level"
    FLOW = "flow"
    EVENTS = "events"
    STOCK = "stock"


@dataclass(frozen=True, slots=True)
class Definition:
    """A measure. Lower is better for all of them.

    `per` is the number of seconds that an amount is printed for; 0 if it is not an amount. A change matters if it is at
    least `matters` (in `unit`) and at least `share` of the value before. Values up to `nothing` count as none. A second
    with at least `spike` is harmful by itself; None if there is no such value. Events of a `rare` measure may be
    minutes apart: a short time without any proves nothing.
    """

    title: str
    unit: str
    kind: Kind
    matters: float = 0.0
    share: float = 0.0
    nothing: float = 0.0
    per: float = 0.0
    spike: float | None = None
    spike_text: str = ""
    rare: bool = False


_HOUR = 3600.0
# The unit of values that are shares of one.
SHARE = "of a core"

MEASURES: dict[Measure, Definition] = {
    Measure.ZOMBIES: Definition("zombies", "zombies", Kind.STOCK, matters=50, share=0.1, nothing=50),
    Measure.ZOMBIE_GROWTH: Definition(
        "growth of zombies", "zombies an hour", Kind.FLOW, matters=30, share=0.2, nothing=30, per=_HOUR, spike=1e-9,
        spike_text="more zombies came", rare=True,
    ),
    Measure.BUSIEST_CORE: Definition(
        "busiest core", SHARE, Kind.LEVEL, matters=0.1, nothing=0.1, spike=0.95,
        spike_text="a core had no time left",
    ),
    Measure.KERNEL_CORE: Definition(
        "kernel on its worst core", SHARE, Kind.LEVEL, matters=0.05, share=0.2, nothing=0.1, spike=0.8,
        spike_text="the kernel held a core",
    ),
    Measure.THROTTLING: Definition(
        "throttling", "s held back a second", Kind.FLOW, matters=0.02, share=0.2, nothing=0.01, per=1.0, spike=0.1,
        spike_text="cgroups were held back",
    ),
    Measure.RECLAIM: Definition(
        "reclaim", "pages a second", Kind.FLOW, matters=250, share=0.2, nothing=50, per=1.0, spike=1000.0,
        spike_text="memory was reclaimed",
    ),
    Measure.RESTARTS: Definition("restarts", "an hour", Kind.EVENTS, per=_HOUR),
    Measure.NIC_TIMEOUTS: Definition("timeouts of network cards", "an hour", Kind.EVENTS, per=_HOUR),
    Measure.FORKS: Definition("forks", "a second", Kind.FLOW, matters=20, share=0.2, nothing=20, per=1.0),
    Measure.RUN_QUEUE_WAIT: Definition(
        "wait for a core", "s waited a second on the worst core", Kind.LEVEL, matters=0.05, share=0.2, nothing=0.05,
        spike=1.0, spike_text="tasks queued for a core",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Series:
    """The observations of one effect's measure, oldest first. A value is a level at the end of its span, or an amount
    over it; `spans` are seconds. `missing` says why there are none, or fewer than expected; `settled` is the state of
    the subject, if its manager does not restart it in that state."""

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
        """The time that was observed, without gaps."""
        return sum(self.spans)

    @property
    def amount(self) -> float:
        return sum(self.values)

    @property
    def stretch(self) -> Stretch:
        """Summarise with the value to print: the rate, the median level, or the newest count."""
        definition = MEASURES[self.effect.measure]
        value = None
        if self.values and self.seconds:
            if definition.kind in (Kind.LEVEL, Kind.STOCK):
                value = float(median(self.values[-3:] if definition.kind is Kind.STOCK else self.values))
            else:
                value = self.amount / self.seconds * definition.per
        return Stretch(value, round(self.seconds, 3), len(self.values), self.source)

    def to_dict(self) -> dict[str, Any]:
        return {
            **asdict(self.effect),
            "source": self.source,
            "since": self.since,
            "until": self.until,
            "value": self.stretch.value,
            "unit": MEASURES[self.effect.measure].unit,
            # Six digits exceed the precision of the measurement.
            "values": [float(f"{value:.6g}") for value in self.values],
            "spans": [float(f"{span:.6g}") for span in self.spans],
            "missing": self.missing,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Series":
        """Read the output of `to_dict`. Raises KeyError, TypeError or ValueError for anything else."""
        values = tuple(float(value) for value in content["values"])
        spans = tuple(float(span) for span in content["spans"])
        if len(values) != len(spans) or any(not span > 0 for span in spans):
            raise ValueError("each value needs a span above 0")
        effect = Effect(Measure(content["measure"]), str(content["expected"]), str(content["subject"]))
        since, until = int(content["since"]), int(content["until"])
        return cls(effect, str(content["source"]), since, until, values, spans, str(content["missing"]))


def format_value(measure: Measure, value: float | None) -> str:
    """Format a value of a measure, with its unit."""
    unit = MEASURES[measure].unit
    if value is None:
        return "not known"
    if unit == SHARE:
        return f"{value * 100:.0f}%"
    if measure is Measure.ZOMBIES and round(value) == 1:
        unit = "zombie"
    return f"{format_number(value)} {unit}"


def format_change(measure: Measure, old: float, new: float) -> str:
    """Format a change: `from 2,000 to 8 a second`."""
    before = format_value(measure, old) if MEASURES[measure].unit == SHARE else format_number(old)
    return f"from {before} to {format_value(measure, new)}"


def format_difference(measure: Measure, value: float) -> str:
    """Format the difference of two values."""
    if MEASURES[measure].unit != SHARE:
        return format_value(measure, value)
    return "1 point" if round(value * 100) == 1 else f"{value * 100:.0f} points"


def format_number(value: float) -> str:
    """Format a number with three significant digits and thousands separators."""
    if abs(value) >= 100 or value == round(value):
        return f"{value:,.0f}"
    text = f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.2g}"
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


# From the weakest promise to the strongest; several steps of a plan may promise something about the same measure.
_STRENGTH = {"stay": 0, "rise": 1, "fall": 2, "stop": 3}


def promised(effects: Sequence[Effect]) -> tuple[Effect, ...]:
    """The effects of all steps together: each measure of each subject once, with the strongest promise of any step."""
    strongest: dict[tuple[Measure, str], Effect] = {}
    for effect in effects:
        known = strongest.setdefault((effect.measure, effect.subject), effect)
        if _STRENGTH.get(effect.expected, 0) > _STRENGTH.get(known.expected, 0):
            strongest[effect.measure, effect.subject] = effect
    return tuple(strongest.values())


def format_duration(seconds: float) -> str:
    """Format a length of time, rounded: `15 s`, `10 min`."""
    units = ((90.0, 1, "s"), (5400.0, 60, "min"), (48 * _HOUR, 3600, "h"), (math.inf, 86400, "days"))
    length, unit = next((length, unit) for below, length, unit in units if seconds < below)
    return f"{max(1, math.ceil(seconds / length - 0.5)):,} {unit}"
