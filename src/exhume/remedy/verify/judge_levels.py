"""Levels and flows: whether they moved most of the time, and whether the seconds that hurt became fewer.

Two tests look at the level: ranks, which ask nothing of how it is spread, and the spread itself, which needs less time
but is heard only where all that it allows is a difference that matters. A third counts bursts of seconds that hurt by
themselves: what happens once in a minute leaves the usual level as it is. They share the doubt that is allowed.
"""

import math
from dataclasses import dataclass
from statistics import median

from exhume.model.remedy import Change, Measure
from exhume.remedy.verify.blocks import FEWEST, block_seconds, blocks, bursts, rates, share_above, shared_memory_s
from exhume.remedy.verify.lasting import lasting, longer, times
from exhume.remedy.verify.measures import Meaning, difference, number, span
from exhume.remedy.verify.observed import Observed
from exhume.remedy.verify.poisson import chance_of_as_few, chance_of_as_many, seconds_to_see_none
from exhume.remedy.verify.ranks import Shift, fewest_after, shift_between
from exhume.remedy.verify.spread import ratio_shift
from exhume.remedy.verify.verdict import DOUBT, FACTOR, LONG_S, SAME_DOUBT, SURE, Judged

# Where it hurts for most of the time, bursts say nothing.
_MOSTLY = 0.5
# The spread is heard where it rules out a change by less than this (a factor of 1.25).
_AT_LEAST = math.log(1.25)
_FEW = 3
_SUSPICIOUS = 0.2


@dataclass(frozen=True, slots=True)
class _Level:
    """What the tests of the level say: how much is certain, or what is needed to be."""

    change: Change
    words: str = ""


@dataclass(frozen=True, slots=True)
class _Peaks:
    """What the bursts say; None where there is nothing to say."""

    change: Change | None = None
    words: str = ""
    needed: str = ""


def judge_levels(before: Observed, after: Observed, meaning: Meaning) -> Judged:
    measure, per = after.effect.measure, meaning.per or 1.0
    length = block_seconds(before, after)
    old, new = (float(median(blocks(each, length).tolist())) for each in (before, after))
    matters = max(meaning.matters / per, meaning.share * abs(old))
    level = _level(before, after, meaning, length, matters)
    peaks = _peaks(before, after, meaning, length)
    gone, never = _nothing(after, new * per, meaning), _nothing(before, old * per, meaning)
    words = span(measure, before.stretch.value or 0.0, after.stretch.value or 0.0)
    also = f"; {peaks.words}" if peaks.words else ""
    moves = {level.change, peaks.change} & {Change.IMPROVED, Change.WORSE}
    if len(moves) > 1:
        return Judged(Change.UNPROVEN, f"{words}{also}: the one is better, the other worse")
    if moves:
        change = Change.IMPROVED if Change.IMPROVED in moves else Change.WORSE
        gone = gone and change is Change.IMPROVED
        if level.change is not change:
            return Judged(change, f"{peaks.words} ({SURE}); {words} most of the time", gone)
        return Judged(change, f"{words}{level.words}{also}", gone)
    if meaning.rare and never and gone and not peaks.words and _too_short(before, after):
        return Judged(Change.UNPROVEN, f"none in the {lasting(before.seconds)} before: nothing to compare with")
    if level.change is Change.UNPROVEN:
        return Judged(Change.UNPROVEN, f"{words}{also}: {level.words}")
    if peaks.change is Change.UNPROVEN:
        return Judged(Change.UNPROVEN, f"{words} most of the time{also}: {peaks.needed}")
    return Judged(
        Change.UNCHANGED, f"{words}: no change of {difference(measure, matters * per)} or more{also}", gone, never
    )


def _too_short(before: Observed, after: Observed) -> bool:
    return before.seconds < LONG_S and after.effect.expected != "stay"


def _nothing(observed: Observed, usual: float, meaning: Meaning) -> bool:
    value = observed.stretch.value or 0.0
    return max(usual, value) <= meaning.nothing


def _level(before: Observed, after: Observed, meaning: Meaning, length: float, matters: float) -> _Level:
    old, new = blocks(before, length), blocks(after, length)
    doubt, per, measure = _doubt(meaning), meaning.per or 1.0, after.effect.measure
    ranks = shift_between(old, new, doubt)
    usual = max(float(median(each.spans)) for each in (before, after))
    # How few values hang together is not known: then the spread is not heard.
    enough = min(len(before.values), len(after.values)) >= FEWEST
    worth = usual / max(usual, shared_memory_s(before, after)) if enough else 0.0
    ratio = ratio_shift(rates(before), rates(after), worth, meaning.nothing / per, doubt)
    if ranks.middle <= -matters and (ranks.high < 0 or ratio.high < -_AT_LEAST):
        return _Level(Change.IMPROVED, _bound(measure, -ranks.high * per, -ratio.high, "less"))
    if ranks.middle >= matters and (ranks.low > 0 or ratio.low > _AT_LEAST):
        return _Level(Change.WORSE, _bound(measure, ranks.low * per, ratio.low, "more"))
    near = shift_between(old, new, SAME_DOUBT)
    # Of what should stay only the worse has to be ruled out.
    if near.high < matters and (near.low > -matters or after.effect.expected == "stay"):
        return _Level(Change.UNCHANGED)
    return _Level(Change.UNPROVEN, _needed(near, matters, (len(old), len(new)), length))


def _doubt(meaning: Meaning) -> float:
    """What each test may be wrong by: there are two, and a third where there are seconds that hurt."""
    return DOUBT / (2 if meaning.spike is None else 3)


def _peaks(before: Observed, after: Observed, meaning: Meaning, length: float) -> _Peaks:
    if meaning.spike is None:
        return _Peaks()
    doubt = _doubt(meaning)
    counts = [bursts(each, meaning.spike, length) for each in (before, after)]
    shares = [share_above(each, meaning.spike) for each in (before, after)]
    if not any(counts):
        return _Peaks()
    first, last = before.seconds, after.seconds
    told = [_seen(*each) for each in zip(counts, shares, (first, last), strict=True)]
    words = f"{meaning.spike_words} {told[0]} before, {told[1]} since"
    # One that never ends is one burst only: it must not pass for fewer.
    if chance_of_as_few(counts[0], first, counts[1], last) <= doubt and shares[1] < shares[0]:
        return _Peaks(Change.IMPROVED, words)
    if chance_of_as_many(counts[0], first, counts[1], last) <= doubt and shares[1] > shares[0]:
        return _Peaks(Change.WORSE, words)
    if max(shares) > _MOSTLY:
        return _Peaks()
    if not _may_have_moved(counts, (first, last), after.effect.expected):
        return _Peaks(None, words)
    needed = seconds_to_see_none(counts[0], first, doubt)
    if counts[1] or not math.isfinite(needed):
        return _Peaks(Change.UNPROVEN, words, "too few to tell a change from chance; look for longer")
    wait = f"it has to stay away for {lasting(needed)} to be sure; {longer(needed - last)}"
    return _Peaks(Change.UNPROVEN, words, wait)


def _seen(count: int, share: float, seconds: float) -> str:
    within = f" ({lasting(share * seconds)} in all)" if count else ""
    return f"{times(count)}{within} in {lasting(seconds)}"


def _may_have_moved(counts: list[int], seconds: tuple[float, float], expected: str) -> bool:
    """Whether what was promised (or, of what should stay, the contrary) may have come, unproven."""
    old, new = counts[0] / seconds[0], counts[1] / seconds[1]
    if expected == "stay":
        return counts[1] >= _FEW and chance_of_as_many(counts[0], seconds[0], counts[1], seconds[1]) <= _SUSPICIOUS
    return counts[0] > 0 and new <= old / FACTOR


def _bound(measure: Measure, least: float, log_ratio: float, direction: str) -> str:
    """How much of it is certain: the difference where ranks tell, else how many times."""
    if least <= 0:
        return f", at least {number(math.exp(log_ratio))} times {direction} ({SURE})"
    words = difference(measure, least)
    return f" ({SURE})" if words.startswith("0 ") else f", at least {words} {direction} ({SURE})"


def _needed(shift: Shift, matters: float, counts: tuple[int, int], length: float) -> str:
    """What would bring evidence: how much longer to look, or that the time before is too short for any."""
    old, new = counts
    if not shift.bounded:
        fewest = fewest_after(old, SAME_DOUBT)
        if fewest is None:
            return "the time before is too short to compare with; record before a fix"
        return f"too short to tell; {longer((fewest - new) * length)}"
    share = 2 * matters / (shift.high - shift.low) if shift.high > shift.low else 1.0
    if share >= 1.0:
        return "about as much as matters, and no more; look for longer"
    # The bounds draw together as the root of one part in so many blocks, before and after.
    room = share * share * (1 / old + 1 / new) - 1 / old
    if room <= 0:
        return f"it varies too much for the {lasting(old * length)} that were measured before; record before a fix"
    return f"it varies too much to tell; {longer((1 / room - new) * length)}"
