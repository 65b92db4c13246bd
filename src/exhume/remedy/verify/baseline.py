"""How things stood before a fix: taken before anything is done, and kept with what was done."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from exhume.model.audit import History
from exhume.model.clock import NANOS, Clock, SystemClock
from exhume.model.errors import ExhumeError
from exhume.model.remedy import Effect, Measure, Stretch
from exhume.model.stop import Stop
from exhume.model.window import Window
from exhume.procfs.host import Host
from exhume.remedy.verify.live import LiveSampler, Progress, RestartCounts, sample
from exhume.remedy.verify.measures import promised
from exhume.remedy.verify.observed import LIVE, RECORDING, Observed
from exhume.remedy.verify.recorded import Recorded
from exhume.remedy.verify.told import ENOUGH, told_restarts
from exhume.store.read.recording import Recording

BASELINE_VERSION = 1
LIVE_S = 15.0
# So much of a recording is looked at; and it has to reach as near to now as this.
RECORDED_S = 600.0
_FRESH_S = 10.0


@dataclass(frozen=True, slots=True)
class Baseline:
    """The measures of a plan before it was carried out. Times are wall nanoseconds; `source` is recording, live, or
    both where some measures are from the one and some from the other."""

    taken_from: int
    taken_until: int
    source: str
    observed: tuple[Observed, ...] = ()

    @property
    def stretches(self) -> dict[Effect, Stretch]:
        return {each.effect: each.stretch for each in self.observed}

    def of(self, effect: Effect) -> Observed | None:
        """What was observed of an effect's measure, whatever was promised of it then."""
        same = (each for each in self.observed if (each.effect.measure, each.effect.subject) == _key(effect))
        return next((replace(each, effect=effect) for each in same), None)

    def to_dict(self) -> dict[str, Any]:
        """As it is kept in the ledger."""
        return {
            "version": BASELINE_VERSION,
            "taken_from": self.taken_from,
            "taken_until": self.taken_until,
            "source": self.source,
            "observed": [each.to_dict() for each in self.observed],
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> "Baseline":
        """What `to_dict` gave. Raises ExhumeError for anything else: without it nothing can be proved."""
        try:
            if told["version"] != BASELINE_VERSION:
                raise ExhumeError(f"the measures from before the fix are of version {told['version']}, not known here")
            observed = tuple(Observed.from_dict(each) for each in told["observed"])
            return cls(int(told["taken_from"]), int(told["taken_until"]), str(told["source"]), observed)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ExhumeError(
                f"the measures from before the fix can't be read ({type(error).__name__}: {error}); give a recording "
                "of that time with --dir"
            ) from error


def take_baseline(
    host: Host,
    effects: Sequence[Effect],
    seconds: float = LIVE_S,
    recording: Recording | None = None,
    *,
    restarts: RestartCounts | None = None,
    histories: Callable[[], Mapping[str, History]] | None = None,
    stop: Stop | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Baseline:
    """Measure what a plan's effects are about, before anything is done.

    What a recording that is going on covers comes from there at once, up to ten minutes of it; for the rest it looks
    itself for some seconds. `histories` (by subject) tell of restarts further back than either can; they are asked for
    at the end, so that they reach up to it.
    """
    clock = clock or SystemClock()
    wanted = promised(tuple(effects))
    now = clock.wall_ns()
    found = _recorded(recording, wanted, now, seconds)
    unseen = [effect for effect in wanted if effect not in found]
    if unseen:
        sampler = LiveSampler(host, unseen, restarts, clock)
        try:
            sample(sampler, seconds, stop, progress)
            found |= {each.effect: each for each in sampler.observed()}
        finally:
            sampler.close()
    pasts = histories() if histories is not None else {}
    for effect in wanted:
        history = pasts.get(effect.subject)
        if effect.measure is Measure.RESTARTS and history is not None:
            found[effect] = _better(found[effect], told_restarts(effect, history, clock.wall_ns()))
    observed = tuple(found[effect] for effect in wanted)
    sources = {RECORDING if each.source == RECORDING else LIVE for each in observed}
    return Baseline(
        min((each.since for each in observed), default=now),
        max((each.until for each in observed), default=now),
        " and ".join(sorted(sources)) or LIVE,
        observed,
    )


def _recorded(
    recording: Recording | None, effects: Sequence[Effect], now: int, seconds: float
) -> dict[Effect, Observed]:
    """What the recording covers: it has to go on until now, and be longer than looking would be."""
    span = recording.span() if recording is not None else None
    if recording is None or span is None or span.until < now - _FRESH_S * NANOS:
        return {}
    recorded = Recorded(recording, Window(now - round(RECORDED_S * NANOS), now))
    seen = {effect: recorded.observe(effect) for effect in effects}
    return {effect: each for effect, each in seen.items() if each.seconds >= seconds}


def _better(seen: Observed, told: Observed | None) -> Observed:
    """What is known for longer. Where it is only told how many there were, and not when, what goes on now is worth more
    as soon as enough of it was seen."""
    if told is None or seen.seconds >= told.seconds:
        return seen
    return seen if len(told.values) == 1 and seen.amount >= ENOUGH else told


def _key(effect: Effect) -> tuple[Measure, str]:
    return effect.measure, effect.subject
