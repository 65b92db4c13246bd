"""Compare a function's CPU time with the same core before, the other cores meanwhile, and the same core an hour
earlier.

A busy core is no finding if it is always busy, or if all cores are. Each comparison has its own significance; the
weakest limits what can be claimed.
"""

from dataclasses import dataclass

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import significance
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.evidence.samples import Names, Samples
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Evidence

HOUR_NS = 3600 * NANOS
# A difference of this many standard errors is not chance: the probability is below one in ten thousand.
SIGNIFICANT = 4.0


@dataclass(frozen=True, slots=True)
class Share:
    """A function's share of one core's time over a stretch, and the number of samples behind it."""

    share: float
    samples: int
    seconds: float
    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A function on one core in the focus, and the shares to compare it with (None if there is none)."""

    function: str
    cpu: int
    now: Share
    before: Share | None
    others: Share | None
    hour_earlier: Share | None

    def significance_of(self, against: Share) -> float:
        """Standard errors between the focus and another share."""
        return significance(self.now.samples, self.now.seconds, against.samples, against.seconds)

    @property
    def values(self) -> dict[str, object]:
        """The shares as values for the message; None if there is nothing to compare with."""
        others = {"before": self.before, "others": self.others, "hour": self.hour_earlier}
        shares: dict[str, object] = {name: None if each is None else each.share for name, each in others.items()}
        return {"function": self.function, "cpu": self.cpu, "share": self.now.share, **shares}

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        on_core = [each for each in (self.now, self.before, self.hour_earlier) if each is not None]
        quoted = [(round(each.share, 4), each.since, each.until) for each in on_core]
        return tuple(
            Evidence("samples", "weight_us", "share", *each, self.cpu, functions=(self.function,)) for each in quoted
        )


def compare(case: Case, function: str, cpu: int) -> Comparison:
    """Compare a kernel function on one core with the baseline, the other cores and an hour earlier."""
    samples = case.samples
    holding = samples.holding(Names.of([function]))
    here = samples.cpu == cpu
    now = _share(samples, holding & here, case.focus, 1)
    before = None if case.baseline.empty else _share(samples, holding & here, case.baseline, 1)
    others = _share(samples, holding & ~here, case.focus, case.cores - 1) if case.cores > 1 else None
    earlier, span, hour = Window(case.focus.since - HOUR_NS, case.focus.until - HOUR_NS), case.recording.span(), None
    if span is not None and earlier.since >= span.since and not case.recording.gaps(earlier):
        then = Samples.read(case.recording, earlier, cpus={cpu})
        hour = _share(then, then.holding(Names.of([function])), earlier, 1)
    return Comparison(function, cpu, now, before, others, hour)


def _share(samples: Samples, mask: Mask, window: Window, cores: int) -> Share:
    chosen = mask & samples.within(window)
    seconds = window.seconds * max(cores, 1)
    return Share(
        samples.time(chosen) / 1e6 / max(seconds, 1e-9), int(chosen.sum()), seconds, window.since, window.until
    )
