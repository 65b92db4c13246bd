"""The attempts of a pod's container: kubelet makes a new container for each restart and keeps the last few."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from exhume.collect.runs import Run, age_pattern, history
from exhume.model.audit import Exit, History

_NANOS = 10**9
_SHORTEST_S = 60.0
_LAST_EXITS = 10
# Few ended containers are kept: with this many attempts two of them make a pattern.
_MANY_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Attempt:
    """One container of the row; times are wall nanoseconds."""

    number: int
    created: int
    run: Run | None


@dataclass(frozen=True, slots=True)
class Attempts:
    """Those that the runtime still has, oldest first. `pod_made` is when the pod came to this node, None where that is
    not known (the pod's sandbox was made anew, so that the numbers go back further than it)."""

    known: Sequence[Attempt] = field(default_factory=tuple)
    pod_made: int | None = None

    def history(self, now: int, since: int) -> History:
        """How they fared. Attempts that are no longer there are taken to have ended like those that are."""
        runs = [attempt.run for attempt in self.known if attempt.run is not None]
        last = self.known[-1].number
        if last == len(self.known) - 1:
            return history(runs, now, max(since, self.known[0].created))
        # Numbers are told from the first on; the time that they took is known where all fall into the time looked at,
        # or by the oldest one that is left.
        if self.pod_made is not None and self.pod_made >= since:
            first, began = 0, self.pod_made
        else:
            first, began = self.known[0].number, self.known[0].created
        span_s = max(_SHORTEST_S, (now - began) / _NANOS)
        ended = [run for run in runs if run.ended is not None]
        failed = sum(run.failed for run in ended)
        gone = last - first + 1 - len(self.known)
        failures = failed + (gone if ended and failed == len(ended) else 0)
        lasted = [(run.ended - run.started) / _NANOS for run in ended if run.ended is not None]
        return History(
            source="runtime",
            hours=round(span_s / 3600, 4),
            starts=last - first + 1,
            failures=failures,
            restarts_per_hour=round((last - first) * 3600 / span_s, 2),
            exits=tuple(Exit(run.ended, run.code) for run in reversed(ended[-_LAST_EXITS:])),
            age_pattern=age_pattern(lasted, fewest=2 if last >= _MANY_ATTEMPTS else None),
        )
