"""Watch what a fix claims to change, and set it against the time before."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from exhume.model.clock import NANOS, Clock, SystemClock
from exhume.model.errors import ExhumeError
from exhume.model.remedy import Effect, Measure, Verification
from exhume.model.stop import Stop
from exhume.model.window import Window
from exhume.procfs.host import Host
from exhume.remedy.verify.baseline import RECORDED_S, Baseline
from exhume.remedy.verify.judge import judge
from exhume.remedy.verify.lasting import lasting
from exhume.remedy.verify.live import LiveSampler, Progress, RestartCounts, sample
from exhume.remedy.verify.measures import promised
from exhume.remedy.verify.observed import LIVE, Observed
from exhume.remedy.verify.recorded import Recorded
from exhume.store.read.recording import Recording

# A recording whose end is older than this doesn't go on.
_FRESH_S = 10.0
# Under this the time before is worth a word of caution.
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
    before: tuple[Observed, ...]
    after: tuple[Observed, ...]


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


def _before(claim: Claim, effect: Effect, recording: Recording | None) -> Observed:
    """The longest that is known of a measure before anything was done."""
    known = claim.baseline.of(effect) if claim.baseline is not None else None
    found = known or Observed(effect, LIVE, claim.began, claim.began, missing="it was not looked at then")
    if recording is None:
        return found
    window = Window(claim.began - round(RECORDED_S * NANOS), claim.began)
    recorded = Recorded(recording, window).observe(effect)
    return recorded if recorded.seconds > found.seconds else found


def _recorded(
    claim: Claim, effects: Sequence[Effect], recording: Recording | None, seconds: float, now: int
) -> list[Observed]:
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
) -> tuple[list[Observed], bool]:
    sampler = LiveSampler(host, effects, restarts, clock)
    try:
        whole = sample(sampler, seconds, stop, progress)
        return sampler.observed(), whole
    finally:
        sampler.close()


def _settled(observed: Observed, restarts: RestartCounts | None) -> Observed:
    """The same, with the word of the manager at the end."""
    if observed.effect.measure is not Measure.RESTARTS or restarts is None:
        return observed
    return replace(observed, settled=restarts.settled(observed.effect.subject))


def _longer(one: Observed, other: Observed) -> Observed:
    return one if one.seconds >= other.seconds else other


def _blind_spots(claim: Claim, before: Sequence[Observed]) -> list[str]:
    spots = [
        "what else began or ended on the node since the fix moves these measures as well; it is not told apart here"
    ]
    short = [each for each in before if each.values and each.seconds < _SHORT_S]
    if short:
        length = lasting(max(each.seconds for each in short))
        spots.append(
            f"the time before is known for {length} only: what comes in longer turns is not in it; with exhume record "
            "running, ten minutes would be"
        )
    if claim.baseline is not None and any(each.effect.measure is Measure.NIC_TIMEOUTS for each in before):
        spots.append("timeouts of network cards may be days apart: none for minutes proves little")
    return spots
