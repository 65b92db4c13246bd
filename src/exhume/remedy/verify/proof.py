"""Proof of a fix: measures taken before anything is changed and again afterwards, and the verdict on each."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from exhume.model.audit import History
from exhume.model.clock import NANOS, Clock, SystemClock, Window
from exhume.model.errors import ExhumeError
from exhume.model.remedy import Effect, Measure, Verification
from exhume.model.stop import Stop
from exhume.procfs.host import Host
from exhume.remedy.ledger import Fix
from exhume.remedy.verify.judge import judge
from exhume.remedy.verify.measures import LIVE, RECORDING, Series, format_duration, promised
from exhume.remedy.verify.observe import LiveSampler, Progress, Recorded
from exhume.remedy.verify.restarts import ENOUGH, NodeRestarts, history_series
from exhume.store.read.recording import Recording

BASELINE_VERSION = 1
# How much of a recording is used; it counts as ongoing only if it ends no longer than _FRESH_S before now.
RECORDED_S = 600.0
_FRESH_S = 10.0
# A shorter time before the fix leads to a caution.
_SHORT_S = 60.0
# If less than this is left to observe, it is not worth it.
_WORTH_S = 2.0


@dataclass(frozen=True, slots=True)
class Baseline:
    """The measures of a plan before it was carried out. Times are wall nanoseconds; `source` is recording, live, or
    both if some measures come from each."""

    taken_from: int
    taken_until: int
    source: str
    observed: tuple[Series, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Serialise for the ledger."""
        return {
            "version": BASELINE_VERSION,
            "taken_from": self.taken_from,
            "taken_until": self.taken_until,
            "source": self.source,
            "observed": [each.to_dict() for each in self.observed],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Baseline":
        """Parse the output of `to_dict`. Raises ExhumeError for anything else: without it nothing can be proved."""
        try:
            if content["version"] != BASELINE_VERSION:
                raise ExhumeError(
                    f"the measures from before the fix are of version {content['version']}, not known here"
                )
            observed = tuple(Series.from_dict(each) for each in content["observed"])
            return cls(int(content["taken_from"]), int(content["taken_until"]), str(content["source"]), observed)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ExhumeError(
                f"the measures from before the fix can't be read ({type(error).__name__}: {error}); give a recording "
                "of that time with --dir"
            ) from error


def take_baseline(
    host: Host,
    effects: Sequence[Effect],
    seconds: float,
    recording: Recording | None = None,
    *,
    restarts: NodeRestarts | None = None,
    records: Callable[[], Mapping[str, History]] = dict,
    stop: Stop | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Baseline:
    """Measure what a plan's effects refer to, before anything is done.

    What an ongoing recording covers is read from there at once, up to ten minutes of it; the rest is observed live for
    some seconds. `records` (by subject) have restarts from further back than either; they are read at the end, so that
    they extend up to it.
    """
    clock = clock or SystemClock()
    wanted = promised(effects)
    now = clock.wall_ns()
    found = {each.effect: each for each in _recent(recording, wanted, now, RECORDED_S) if each.seconds >= seconds}
    unseen = [effect for effect in wanted if effect not in found]
    if unseen:
        with closing(LiveSampler(host, unseen, restarts, clock)) as sampler:
            sampler.watch(seconds, stop, progress)
            found |= {each.effect: each for each in sampler.observed()}
    pasts = records()
    for effect in wanted:
        history = pasts.get(effect.subject)
        if effect.measure is Measure.RESTARTS and history is not None:
            found[effect] = _better(found[effect], history_series(effect, history, clock.wall_ns()))
    observed = tuple(found[effect] for effect in wanted)
    sources = {RECORDING if each.source == RECORDING else LIVE for each in observed}
    return Baseline(
        min((each.since for each in observed), default=now),
        max((each.until for each in observed), default=now),
        " and ".join(sorted(sources)) or LIVE,
        observed,
    )


def _recent(
    recording: Recording | None, effects: Sequence[Effect], now: int, seconds: float, after: int = 0
) -> list[Series]:
    """The last part of an ongoing recording; empty if there is none."""
    span = recording.span() if recording is not None else None
    if recording is None or span is None or span.until < now - _FRESH_S * NANOS:
        return []
    recorded = Recorded(recording, Window(max(after, span.until - round(seconds * NANOS)), span.until))
    return [recorded.observe(effect) for effect in effects]


def _better(seen: Series, recorded: Series | None) -> Series:
    """The longer of two series. If only the number of recorded events is known, but not their times, the live series is
    better as soon as it has enough of them."""
    if recorded is None or seen.seconds >= recorded.seconds:
        return seen
    return seen if len(recorded.values) == 1 and seen.amount >= ENOUGH else recorded


@dataclass(frozen=True, slots=True)
class Proof:
    """The verdicts, and the observations that they are based on, measure by measure in the same order."""

    verification: Verification
    before: tuple[Series, ...]
    after: tuple[Series, ...]


def verify(
    fix: Fix,
    host: Host,
    seconds: float,
    recording: Recording | None = None,
    *,
    restarts: NodeRestarts | None = None,
    stop: Stop | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Proof:
    """Observe each measure for the given time after a fix was applied: from an ongoing recording, otherwise live.
    Raises ExhumeError if nothing is known about the time before, or nothing was promised."""
    clock = clock or SystemClock()
    effects = promised(fix.effects)
    if not effects:
        raise ExhumeError(f"fix {fix.id} promised no effect on any measure: there is nothing to verify")
    # Nothing had been done before `began`, everything by `ended`.
    began = fix.applied_at or fix.planned_at
    ended = fix.finished_at or began
    baseline = Baseline.from_dict(fix.baseline) if fix.baseline is not None else None
    before = _before(began, baseline, effects, recording)
    if not any(each.values for each in before):
        raise ExhumeError(
            f"nothing was measured before fix {fix.id}, so nothing can be proved; name a recording of that time "
            "with --dir"
        )
    if recording is not None:
        # On a starved node, reading the time before took long: only what was recorded meanwhile shows that the
        # recording is ongoing.
        recording.refresh()
    after = _recent(recording, effects, clock.wall_ns(), seconds, ended)
    left, whole = seconds - min((each.seconds for each in after), default=0.0), True
    if left >= _WORTH_S or not after:
        with closing(LiveSampler(host, effects, restarts, clock)) as sampler:
            whole = sampler.watch(left, stop, progress)
            live = sampler.observed()
        if recording is not None and after:
            recording.refresh()
            # If the recorder stopped meanwhile, what it had recorded is still valid.
            after = _recent(recording, effects, clock.wall_ns(), seconds, ended) or after
        after = [max(pair, key=lambda each: each.seconds) for pair in zip(live, after or live, strict=True)]
    if restarts is not None:
        after = [
            replace(each, settled=restarts.settled(each.effect.subject))
            if each.effect.measure is Measure.RESTARTS
            else each
            for each in after
        ]
    verification = Verification(
        node=fix.node,
        fix=fix.id,
        target=fix.target,
        applied_at=began,
        looked_from=min(each.since for each in after),
        looked_until=max(each.until for each in after),
        measures=tuple(map(judge, before, after)),
        done=fix.done,
        interrupted=not whole,
        blind_spots=tuple(_blind_spots(baseline, before)),
    )
    return Proof(verification, tuple(before), tuple(after))


def _before(
    began: int, baseline: Baseline | None, effects: Sequence[Effect], recording: Recording | None
) -> list[Series]:
    """The longest series of each measure from before the fix, whatever effect was promised on it then."""
    window = Window(began - round(RECORDED_S * NANOS), began)
    recorded = Recorded(recording, window) if recording is not None else None
    seen = baseline.observed if baseline is not None else ()
    known = {(each.effect.measure, each.effect.subject): each for each in reversed(seen)}
    found = []
    for effect in effects:
        none = Series(effect, LIVE, began, began, missing="it was not looked at then")
        best = replace(known.get((effect.measure, effect.subject), none), effect=effect)
        past = recorded.observe(effect) if recorded is not None else best
        found.append(past if past.seconds > best.seconds else best)
    return found


def _blind_spots(baseline: Baseline | None, before: Sequence[Series]) -> list[str]:
    spots = [
        "what else began or ended on the node since the fix moves these measures as well; that is not separated here"
    ]
    short = [each.seconds for each in before if each.values and each.seconds < _SHORT_S]
    if short:
        spots.append(
            f"the time before is known for {format_duration(max(short))} only: what comes less often is not in it; "
            "with exhume record running, ten minutes would be"
        )
    if baseline is not None and any(each.effect.measure is Measure.NIC_TIMEOUTS for each in before):
        spots.append("timeouts of network cards may be days apart: none for minutes proves little")
    return spots
