"""What the difference between before and after is worth: a verdict on each measure, with the reason in a sentence.

A verdict has to be worth its word. `improved` and `worse` are said only where chance would say so less than once in a
hundred times and the difference is large enough to matter; `unchanged` only where a difference that matters would have
been seen. All else is not enough evidence, and says how much longer it would take.
"""

import math
from statistics import median

from exhume.model.remedy import Change, Effect, Measure, Verified
from exhume.remedy.verify.blocks import crowding, longest_pause_s
from exhume.remedy.verify.judge_levels import judge_levels
from exhume.remedy.verify.lasting import lasting, longer, times
from exhume.remedy.verify.measures import MEANINGS, Kind, Meaning, number
from exhume.remedy.verify.observed import Observed
from exhume.remedy.verify.poisson import chance_of_as_few, chance_of_as_many, ratio_bounds, seconds_to_see_none
from exhume.remedy.verify.verdict import DOUBT, FACTOR, LONG_S, SURE, Judged

_LEAST_COUNTS = 3
# Managers wait longer and longer before they start something again, up to twice as long each time: only a pause that is
# well above twice the longest is news.
_PAUSES = 2.5
# Where its manager says that it is down for good, no pause grows any more: it only has to be longer than any was, and
# there has to have been a loop.
_SETTLED_PAUSES, _SETTLED_LEAST, _SETTLED_S = 1.1, 2, 10.0
# What was to stop goes on where it still comes this often, as a share of before.
_GOES_ON = 0.2


def judge(before: Observed, after: Observed) -> Verified:
    """The verdict on a measure."""
    effect = after.effect
    meaning = MEANINGS[effect.measure]
    missing = _missing(before, after)
    if missing:
        found = Judged(Change.UNPROVEN, missing)
    elif meaning.kind is Kind.EVENTS:
        found = _events(before, after)
    elif meaning.kind is Kind.STOCK:
        found = _stock(before, after, meaning)
    else:
        found = judge_levels(before, after, meaning)
    return Verified(
        effect, meaning.unit, before.stretch, after.stretch, found.change, found.why, _as_expected(effect, found)
    )


def _as_expected(effect: Effect, found: Judged) -> bool:
    if found.change is Change.UNPROVEN:
        return False
    if found.change is Change.UNCHANGED and found.never:
        # There was nothing to stop.
        return effect.expected != "rise"
    if effect.expected == "stop":
        return found.change is Change.IMPROVED and found.gone
    if effect.expected == "fall":
        return found.change is Change.IMPROVED
    if effect.expected == "rise":
        return found.change is Change.WORSE
    return found.change is not Change.WORSE


def _missing(before: Observed, after: Observed) -> str:
    for when, each in (("before the fix", before), ("since the fix", after)):
        if not each.values:
            return f"it was not measured {when}{': ' + each.missing if each.missing else ''}"
    return ""


def _events(before: Observed, after: Observed) -> Judged:
    crowd = crowding(before, after)
    counts = [math.floor(each.amount / crowd + 0.5) for each in (before, after)]
    seen, since = round(before.amount), round(after.amount)
    first, length = before.seconds, after.seconds
    both = f"{times(seen)} in {lasting(first)} before, {times(since)} in {lasting(length)} since"
    if crowd > 1.5:
        both += f" (they crowd together: {number(crowd)} count as one)"
    if not seen and not since:
        if first >= LONG_S or after.effect.expected == "stay":
            return Judged(Change.UNCHANGED, f"never in {lasting(first)} before, nor since", gone=True, never=True)
        return Judged(Change.UNPROVEN, f"never in the {lasting(first)} before: there is nothing to compare with")
    apart = longest_pause_s(before) if after.effect.measure is Measure.RESTARTS else 0.0
    if after.settled and not since and seen >= _SETTLED_LEAST and len(before.values) > 1:
        if (needed := max(_SETTLED_PAUSES * apart, _SETTLED_S)) <= length:
            return Judged(Change.IMPROVED, f"{both}; {after.settled}: it is not started again", gone=True)
        wait = f"{after.settled}, but before up to {lasting(apart)} passed between two"
        return Judged(Change.UNPROVEN, f"{both}; {wait}: {longer(needed - length)}")
    if chance_of_as_few(counts[0], first, counts[1], length) <= DOUBT:
        if (needed := _PAUSES * apart * (since + 1)) > length:
            wait = f"before, up to {lasting(apart)} passed between two, and such pauses may grow"
            return Judged(Change.UNPROVEN, f"{both}; {wait}: {longer(needed - length)}")
        goes_on = "" if not since else ", but it goes on"
        return Judged(Change.IMPROVED, f"{both}: less often ({SURE}){goes_on}", gone=not since)
    if chance_of_as_many(counts[0], first, counts[1], length) <= DOUBT:
        return Judged(Change.WORSE, f"{both}: more often ({SURE})")
    low, high = ratio_bounds(counts[0], first, counts[1], length, DOUBT)
    if after.effect.expected == "stay":
        if high < FACTOR:
            return Judged(Change.UNCHANGED, f"{both}: not much more often")
    elif low > (_GOES_ON if after.effect.expected == "stop" else 1 / FACTOR):
        return Judged(Change.UNCHANGED, f"{both}: it goes on")
    needed = seconds_to_see_none(counts[0], first, DOUBT)
    if not since and math.isfinite(needed):
        wait = f"it has to stay away for {lasting(needed)} to be sure; {longer(needed - length)}"
        return Judged(Change.UNPROVEN, f"{both}: {wait}")
    return Judged(Change.UNPROVEN, f"{both}: too few to tell a change from chance; look for longer")


def _stock(before: Observed, after: Observed, meaning: Meaning) -> Judged:
    """A count is what it is; what has to be told apart is a change from its usual jitter."""
    fewest = min(len(before.values), len(after.values))
    if fewest < _LEAST_COUNTS:
        return Judged(Change.UNPROVEN, f"it was counted only {times(fewest)}; it takes {_LEAST_COUNTS} on each side")
    old, new = (float(median(each.values[-_LEAST_COUNTS:])) for each in (before, after))
    jitter = max(_jitter(each.values) for each in (before, after))
    matters = max(meaning.matters, meaning.share * old, 3 * jitter)
    gone = new <= meaning.nothing
    if abs(new - old) < matters:
        words = f"from {number(old)} to {number(new)}, less than what matters here ({number(matters)})"
        return Judged(Change.UNCHANGED, words, gone, never=old <= meaning.nothing)
    if new < old:
        return Judged(Change.IMPROVED, f"fell from {number(old)} to {number(new)}", gone)
    return Judged(Change.WORSE, f"rose from {number(old)} to {number(new)}")


def _jitter(values: tuple[float, ...]) -> float:
    """How far a count is usually from its neighbours' line: the median of it, so that growth and steps don't count."""
    bends = [abs(b - (a + c) / 2) for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    return 1.4826 * float(median(bends)) if bends else 0.0
