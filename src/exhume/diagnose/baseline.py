"""What a function's time is held against: the same core before, the other cores then, the same core an hour earlier.

A core that is busy with something is no news where it always is, or where all cores are. The three comparisons say so,
each with its significance; the weakest of them is what can be claimed.
"""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import significance
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.evidence.samples import Names, Samples
from exhume.model.clock import NANOS
from exhume.model.finding import Evidence
from exhume.model.window import Window

HOUR_NS = 3600 * NANOS
# Standard errors from which a difference is not chance: one in ten thousand.
SIGNIFICANT = 4.0


@dataclass(frozen=True, slots=True)
class Share:
    """The part of one core's time in a function over a stretch, and the samples it is known from."""

    share: float
    samples: int
    seconds: float
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A function on one core in the focus, against what there is to hold it against (None where there is nothing)."""

    function: str
    cpu: int
    now: Share
    before: Share | None
    others: Share | None
    hour_earlier: Share | None

    def significance_of(self, against: Share) -> float:
        """Standard errors between the focus and something it is held against."""
        return significance(self.now.samples, self.now.seconds, against.samples, against.seconds)

    @property
    def text(self) -> str:
        """The comparison in words."""
        told = [
            (self.before, "just before"),
            (self.others, "on the other cores meanwhile"),
            (self.hour_earlier, "there an hour earlier"),
        ]
        parts = [f"{each.share:.1%} {where}" for each, where in told if each is not None]
        against = f", against {', '.join(parts)}" if parts else ""
        return f"{self.function} took {self.now.share:.0%} of core {self.cpu}{against}"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        on_core = [each for each in (self.now, self.before, self.hour_earlier) if each is not None]
        return tuple(
            Evidence(
                "samples",
                "weight_us",
                "share",
                round(each.share, 4),
                each.since,
                each.until,
                self.cpu,
                functions=(self.function,),
            )
            for each in on_core
        )


def compare(case: Case, function: str, cpu: int) -> Comparison:
    """CoreHold a function of the kernel on one core against the calm before, the other cores and the hour before."""
    sampled = case.samples
    holding = sampled.holding(Names.of([function]))
    here = sampled.cpu == cpu
    now = _share(sampled, holding & here, case.focus, 1)
    before = None if case.baseline.empty else _share(sampled, holding & here, case.baseline, 1)
    others = _share(sampled, holding & ~here, case.focus, case.cores - 1) if case.cores > 1 else None
    return Comparison(function, cpu, now, before, others, _hour_earlier(case, function, cpu))


def _hour_earlier(case: Case, function: str, cpu: int) -> Share | None:
    earlier = Window(case.focus.since - HOUR_NS, case.focus.until - HOUR_NS)
    span = case.recording.span()
    if span is None or earlier.since < span.since or case.recording.gaps(earlier):
        return None
    sampled = Samples.read(case.recording, earlier, cpus={cpu})
    return _share(sampled, sampled.holding(Names.of([function])), earlier, 1)


def _share(sampled: Samples, mask: Mask, window: Window, cores: int) -> Share:
    chosen = mask & sampled.within(window)
    seconds = window.seconds * max(cores, 1)
    weight = float(np.sum(sampled.weight[chosen])) / 1e6
    return Share(weight / max(seconds, 1e-9), int(chosen.sum()), seconds, window.since, window.until)
