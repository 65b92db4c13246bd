"""The proof of a fix: measures taken before anything is changed and again afterwards, and the verdict on each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from exhume.collect.node_root import NodeRoot
from exhume.model.audit import History
from exhume.model.clock import NANOS, Clock, SystemClock, Window
from exhume.model.errors import ExhumeError
from exhume.model.remedy import Effect, Measure, Stretch, Verification
from exhume.model.stop import Stop
from exhume.procfs.host import Host
from exhume.remedy.verify.judge import judge
from exhume.remedy.verify.live import LiveSampler, Progress, RestartCounts, sample
from exhume.remedy.verify.measures import LIVE, RECORDING, Series, format_duration, promised
from exhume.remedy.verify.recorded import Recorded
from exhume.remedy.verify.restarts import ENOUGH, NodeRestarts, histories, history_series
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
    observed: tuple[Series, ...] = ()

    @property
    def stretches(self) -> dict[Effect, Stretch]:
        return {each.effect: each.stretch for each in self.observed}

    def of(self, effect: Effect) -> Series | None:
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
    def from_dict(cls, content: Mapping[str, Any]) -> "Baseline":
        """What `to_dict` gave. Raises ExhumeError for anything else: without it nothing can be proved."""
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
    seconds: float = LIVE_S,
    recording: Recording | None = None,
    *,
    restarts: RestartCounts | None = None,
    records: Callable[[], Mapping[str, History]] | None = None,
    stop: Stop | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Baseline:
    """Measure what a plan's effects are about, before anything is done.

    What a recording that is going on covers comes from there at once, up to ten minutes of it; for the rest it looks
    itself for some seconds. `records` (by subject) hold restarts further back than either; they are read at the end, so
    that they reach up to it.
    """
    clock = clock or SystemClock()
    wanted = promised(tuple(effects))
    now = clock.wall_ns()
    found = _recorded_baseline(recording, wanted, now, seconds)
    unseen = [effect for effect in wanted if effect not in found]
    if unseen:
        sampler = LiveSampler(host, unseen, restarts, clock)
        try:
            sample(sampler, seconds, stop, progress)
            found |= {each.effect: each for each in sampler.observed()}
        finally:
            sampler.close()
    pasts = records() if records is not None else {}
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


def take_node_baseline(
    root: NodeRoot,
    effects: Sequence[Effect],
    seconds: float,
    recording: Recording | None,
    *,
    stop: Stop,
    progress: Progress,
) -> Baseline:
    """Take the baseline of a node, with the restarts that its service managers count and recorded."""
    restarts = NodeRestarts(root)
    try:
        return take_baseline(
            root.host,
            effects,
            seconds,
            recording,
            restarts=restarts,
            records=lambda: histories(root, effects),
            stop=stop,
            progress=progress,
        )
    finally:
        restarts.close()


def _recorded_baseline(
    recording: Recording | None, effects: Sequence[Effect], now: int, seconds: float
) -> dict[Effect, Series]:
    """What the recording covers: it has to go on until now, and be longer than looking would be."""
    span = recording.span() if recording is not None else None
    if recording is None or span is None or span.until < now - _FRESH_S * NANOS:
        return {}
    recorded = Recorded(recording, Window(now - round(RECORDED_S * NANOS), now))
    seen = {effect: recorded.observe(effect) for effect in effects}
    return {effect: each for effect, each in seen.items() if each.seconds >= seconds}


def _better(seen: Series, recorded: Series | None) -> Series:
    """What is known for longer. Where only their number is known, and not when, what goes on now is worth more
    as soon as enough of it was seen."""
    if recorded is None or seen.seconds >= recorded.seconds:
        return seen
    return seen if len(recorded.values) == 1 and seen.amount >= ENOUGH else recorded


def _key(effect: Effect) -> tuple[Measure, str]:
    return effect.measure, effect.subject


# A recording whose end is older than this doesn't go on.
_FRESH_S = 10.0
# A shorter time before is worth a caution.
_SHORT_S = 60.0
# What is left to look for is not worth a look under this.
_WORTH_S = 2.0


@dataclass(frozen=True, slots=True)
class Claim:
    """What a fix did and promised. Times are wall nanoseconds: nothing was done before `began`, all was at `ended`."""

    id: str
    node: str
    target: str
    effects: tuple[Effect, ...]
    began: int
    ended: int
    done: tuple[str, ...] = ()
    baseline: Baseline | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """The verdicts, and the observations that they rest on, measure by measure in the same order."""

    verification: Verification
    before: tuple[Series, ...]
    after: tuple[Series, ...]


def verify(
    claim: Claim,
    host: Host,
    seconds: float,
    recording: Recording | None = None,
    *,
    restarts: RestartCounts | None = None,
    stop: Stop | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> Proof:
    """Look at each measure for so long after the fix: back into a recording that goes on, else from now on. Raises
    ExhumeError where nothing is known of the time before, or nothing was promised."""
    clock = clock or SystemClock()
    effects = promised(claim.effects)
    if not effects:
        raise ExhumeError(f"fix {claim.id} promised no effect on any measure: there is nothing to verify")
    before = [_before(claim, effect, recording) for effect in effects]
    if not any(each.values for each in before):
        raise ExhumeError(
            f"nothing was measured before fix {claim.id}, so nothing can be proved; name a recording of that time "
            "with --dir"
        )
    after = _recorded(claim, effects, recording, seconds, clock.wall_ns())
    left = seconds - min((each.seconds for each in after), default=0.0) if after else seconds
    whole = True
    if left >= _WORTH_S:
        live, whole = _watched(host, effects, left, restarts, stop, progress, clock)
        if recording is not None and after:
            recording.refresh()
            after = _recorded(claim, effects, recording, seconds, clock.wall_ns())
        after = [_longer(*each) for each in zip(live, after, strict=True)] if after else live
    after = [_settled(each, restarts) for each in after]
    verification = Verification(
        node=claim.node,
        fix=claim.id,
        target=claim.target,
        applied_at=claim.began,
        looked_from=min(each.since for each in after),
        looked_until=max(each.until for each in after),
        measures=tuple(judge(*each) for each in zip(before, after, strict=True)),
        done=claim.done,
        interrupted=not whole,
        blind_spots=tuple(_blind_spots(claim, before)),
    )
    return Proof(verification, tuple(before), tuple(after))


def _before(claim: Claim, effect: Effect, recording: Recording | None) -> Series:
    """The longest that is known of a measure before anything was done."""
    known = claim.baseline.of(effect) if claim.baseline is not None else None
    found = known or Series(effect, LIVE, claim.began, claim.began, missing="it was not looked at then")
    if recording is None:
        return found
    window = Window(claim.began - round(RECORDED_S * NANOS), claim.began)
    recorded = Recorded(recording, window).observe(effect)
    return recorded if recorded.seconds > found.seconds else found


def _recorded(
    claim: Claim, effects: Sequence[Effect], recording: Recording | None, seconds: float, now: int
) -> list[Series]:
    """The last part since the fix, out of a recording that goes on; empty where there is none."""
    span = recording.span() if recording is not None else None
    if recording is None or span is None or span.until < now - _FRESH_S * NANOS:
        return []
    recorded = Recorded(recording, Window(max(claim.ended, span.until - round(seconds * NANOS)), span.until))
    return [recorded.observe(effect) for effect in effects]


def _watched(  # noqa: PLR0917
    host: Host,
    effects: Sequence[Effect],
    seconds: float,
    restarts: RestartCounts | None,
    stop: Stop | None,
    progress: Progress | None,
    clock: Clock,
) -> tuple[list[Series], bool]:
    sampler = LiveSampler(host, effects, restarts, clock)
    try:
        whole = sample(sampler, seconds, stop, progress)
        return sampler.observed(), whole
    finally:
        sampler.close()


def _settled(observed: Series, restarts: RestartCounts | None) -> Series:
    """The same, with the manager's final state."""
    if observed.effect.measure is not Measure.RESTARTS or restarts is None:
        return observed
    return replace(observed, settled=restarts.settled(observed.effect.subject))


def _longer(one: Series, other: Series) -> Series:
    return one if one.seconds >= other.seconds else other


def _blind_spots(claim: Claim, before: Sequence[Series]) -> list[str]:
    spots = [
        "what else began or ended on the node since the fix moves these measures as well; that is not separated here"
    ]
    short = [each for each in before if each.values and each.seconds < _SHORT_S]
    if short:
        length = format_duration(max(each.seconds for each in short))
        spots.append(
            f"the time before is known for {length} only: what comes less often is not in it; with exhume record "
            "running, ten minutes would be"
        )
    if claim.baseline is not None and any(each.effect.measure is Measure.NIC_TIMEOUTS for each in before):
        spots.append("timeouts of network cards may be days apart: none for minutes proves little")
    return spots
