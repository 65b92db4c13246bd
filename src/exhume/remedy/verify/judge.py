"""The verdict on a measure: whether the difference between before and after a fix is significant, and matters.

`improved` and `worse` are only reported if chance alone would produce them less than once in a hundred times (ALPHA)
and the difference is large enough to matter; `unchanged` only if a difference that matters is ruled out. Everything
else is not proven, with the figures and how much longer it would take.
"""

import math
from dataclasses import dataclass
from statistics import median

from exhume.model.remedy import Change, Effect, Measure, Verified
from exhume.remedy.verify.measures import (
    MEASURES,
    Definition,
    Kind,
    Series,
    format_change,
    format_difference,
    format_duration,
    format_number,
)
from exhume.remedy.verify.statistics import (
    Shift,
    block_means,
    block_seconds,
    clear_gap,
    dispersion,
    episodes,
    fewest_after,
    longest_pause_s,
    mann_whitney_u,
    poisson_rate_ratio,
    seconds_without_any,
)

# The probability of a wrong `improved`, and of a wrong `worse`, per measure; several tests of a measure share it.
ALPHA = 0.01
_SURE = "99% sure"
# Half of it is for spikes. The autocorrelation of a short series is only an estimate, so the rank test gets even less.
_LEVEL_ALPHA = ALPHA / 4
# The probability that a difference which matters is wrongly ruled out, on either side.
EQUIVALENCE_ALPHA = 0.05
# A count has changed if it halved or doubled.
_FACTOR = 2.0
# A period without any events before a fix must be this long to be worth comparing with.
_LONG_S = 600.0
_LEAST_COUNTS = 3
# Managers back off before a restart, each time up to twice as long: only a pause well above twice the longest one is
# significant.
_BACKOFF = 2.5
# If the manager does not restart it, pauses do not grow any more: one longer than all before is enough.
_SETTLED_PAUSES, _SETTLED_LEAST, _SETTLED_S = 1.1, 2, 10.0
# Something that should stop still goes on if it occurs at least this often, as a share of before.
_GOES_ON = 0.2
# If spikes fill most of the time, their number is meaningless.
_MOSTLY = 0.5
_FEW, _SUSPICIOUS = 3, 0.2


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict and its reason. `gone`: it does not occur any more; `never`: it did not occur before either;
    `harmless`: it may have changed, but did not get worse."""

    change: Change
    why: str
    gone: bool = False
    never: bool = False
    harmless: bool = False


@dataclass(frozen=True, slots=True)
class _Spikes:
    """The verdict on spikes: None if there is nothing to report. `needed` says what would prove it."""

    change: Change | None = None
    text: str = ""
    needed: str = ""


def judge(before: Series, after: Series) -> Verified:
    """Judge a measure."""
    effect = after.effect
    definition = MEASURES[effect.measure]
    unseen = next(((when, each) for when, each in (("before", before), ("since", after)) if not each.values), None)
    if unseen is not None:
        when, each = unseen
        found = Judged(
            Change.UNPROVEN, f"it was not measured {when} the fix{': ' + each.missing if each.missing else ''}"
        )
    elif definition.kind is Kind.EVENTS:
        found = _judge_events(before, after)
    elif definition.kind is Kind.STOCK:
        found = _judge_stock(before, after, definition)
    else:
        found = _judge_levels(before, after, definition)
    return Verified(
        effect, definition.unit, before.stretch, after.stretch, found.change, found.why, _as_expected(effect, found)
    )


def _as_expected(effect: Effect, found: Judged) -> bool:
    if effect.expected == "stay":
        return found.harmless or found.change in (Change.IMPROVED, Change.UNCHANGED)
    if found.change is Change.UNPROVEN:
        return False
    if found.change is Change.UNCHANGED and found.never:
        # There was nothing to stop.
        return effect.expected != "rise"
    if effect.expected == "stop":
        return found.change is Change.IMPROVED and found.gone
    return found.change is (Change.WORSE if effect.expected == "rise" else Change.IMPROVED)


def _judge_events(before: Series, after: Series) -> Judged:
    """Counts of single events: the exact test of two Poisson rates."""
    index = dispersion(before, after)
    counts = [math.floor(each.amount / index + 0.5) for each in (before, after)]
    seen, since = round(before.amount), round(after.amount)
    first, length = before.seconds, after.seconds
    both = f"{_times(seen)} in {format_duration(first)} before, {_times(since)} in {format_duration(length)} since"
    if index > 1.5:
        both += f" (they cluster: {format_number(index)} count as one)"
    stays = after.effect.expected == "stay"
    if not seen and not since:
        if first >= _LONG_S or stays:
            never = f"never in {format_duration(first)} before, nor since"
            return Judged(Change.UNCHANGED, never, gone=True, never=True)
        return Judged(
            Change.UNPROVEN, f"never in the {format_duration(first)} before: there is nothing to compare with"
        )
    pause = longest_pause_s(before) if after.effect.measure is Measure.RESTARTS else 0.0
    if after.settled and not since and seen >= _SETTLED_LEAST and len(before.values) > 1:
        if (needed := max(_SETTLED_PAUSES * pause, _SETTLED_S)) <= length:
            return Judged(Change.IMPROVED, f"{both}; {after.settled}: it is not started again", gone=True)
        wait = f"{after.settled}, but before up to {format_duration(pause)} passed between two"
        return Judged(Change.UNPROVEN, f"{both}; {wait}: {_longer(needed - length)}")
    ratio = poisson_rate_ratio(counts[0], first, counts[1], length, ALPHA)
    if ratio.fewer <= ALPHA:
        if (needed := _BACKOFF * pause * (since + 1)) > length:
            wait = f"before, up to {format_duration(pause)} passed between two, and such pauses may grow"
            return Judged(Change.UNPROVEN, f"{both}; {wait}: {_longer(needed - length)}", harmless=True)
        goes_on = ", but it goes on" if since else ""
        return Judged(Change.IMPROVED, f"{both}: less often ({_SURE}){goes_on}", gone=not since)
    if ratio.more <= ALPHA:
        return Judged(Change.WORSE, f"{both}: more often ({_SURE})")
    not_more = ratio.high < _FACTOR
    rates_alike = seen > 0 and 1 / _FACTOR < (since / length) / (seen / first) < _FACTOR
    not_less = ratio.low > (_GOES_ON if after.effect.expected == "stop" else 1 / _FACTOR)
    if rates_alike and (not_more if stays else not_less):
        return Judged(Change.UNCHANGED, f"{both}: {'not much more often' if stays else 'it goes on'}")
    if stays and not_more:
        return Judged(Change.UNPROVEN, f"{both}: not proven to be less often, but not more often", harmless=True)
    needed_text = _none_needed(counts[0], before, since, after, ALPHA)
    return Judged(Change.UNPROVEN, f"{both}: not proven; {needed_text}")


def _judge_stock(before: Series, after: Series, definition: Definition) -> Judged:
    """Judge a count, which is exact; a change is compared with its usual jitter."""
    fewest = min(len(before.values), len(after.values))
    if fewest < _LEAST_COUNTS:
        return Judged(Change.UNPROVEN, f"it was counted only {_times(fewest)}; {_LEAST_COUNTS} on each side are needed")
    old, new = (float(median(each.values[-_LEAST_COUNTS:])) for each in (before, after))
    jitter = 0.0
    for values in (before.values, after.values):
        # The median deviation of a count from the line between its neighbours, so that growth and steps don't count.
        bends = [abs(b - (a + c) / 2) for a, b, c in zip(values, values[1:], values[2:], strict=False)]
        jitter = max(jitter, 1.4826 * float(median(bends)))
    matters = max(definition.matters, definition.share * old, 3 * jitter)
    gone = new <= definition.nothing
    text = f"from {format_number(old)} to {format_number(new)}"
    if abs(new - old) < matters:
        why = f"{text}, less than what matters ({format_number(matters)})"
        return Judged(Change.UNCHANGED, why, gone, never=old <= definition.nothing)
    return Judged(Change.IMPROVED, f"fell {text}", gone) if new < old else Judged(Change.WORSE, f"rose {text}")


def _judge_levels(before: Series, after: Series, definition: Definition) -> Judged:
    """Judge levels and flows: the rank test on block means, and the exact test on the number of spikes, which don't
    affect the usual level."""
    measure, per = after.effect.measure, definition.per or 1.0
    length = block_seconds(before, after)
    means = [block_means(each, length) for each in (before, after)]
    old, new = (float(median(each.tolist())) for each in means)
    shown = [each.stretch.value or 0.0 for each in (before, after)]
    matters = max(definition.matters, definition.share * abs(shown[0])) / per
    shift = mann_whitney_u(means[0], means[1], _LEVEL_ALPHA)
    gap = clear_gap(before, after)
    level: Change | None = None
    if shift.estimate <= -matters and (shift.high < 0 or gap > 0):
        level = Change.IMPROVED
    elif shift.estimate >= matters and (shift.low > 0 or gap > 0):
        level = Change.WORSE
    spikes = _judge_spikes(before, after, definition, length)
    text = format_change(measure, *shown)
    also = f"; {spikes.text}" if spikes.text else ""
    gone, never = (max(each) <= definition.nothing for each in ((new * per, shown[1]), (old * per, shown[0])))
    moves = {each for each in (level, spikes.change) if each is Change.IMPROVED or each is Change.WORSE}
    if len(moves) > 1:
        return Judged(Change.UNPROVEN, f"{text}{also}: not proven, the one is better, the other worse")
    if change := next(iter(moves), None):
        gone = gone and change is Change.IMPROVED
        if level is not change:
            return Judged(change, f"{spikes.text} ({_SURE}); {text} most of the time", gone)
        bound, direction = (-shift.high, "less") if change is Change.IMPROVED else (shift.low, "more")
        least = format_difference(measure, max(gap, bound) * per)
        sure = f" ({_SURE})" if least.startswith("0 ") else f", at least {least} {direction} ({_SURE})"
        return Judged(change, f"{text}{sure}{also}", gone)
    stays = after.effect.expected == "stay"
    if definition.rare and never and gone and not spikes.text and before.seconds < _LONG_S and not stays:
        return Judged(Change.UNPROVEN, f"none in the {format_duration(before.seconds)} before: nothing to compare with")
    near = mann_whitney_u(means[0], means[1], EQUIVALENCE_ALPHA)
    not_worse = near.high < matters
    # The printed values must not contradict the verdict: `unchanged` also requires them to be close.
    close = abs(shown[1] - shown[0]) < matters * per
    least = format_difference(measure, matters * per)
    if spikes.change is Change.UNPROVEN:
        return Judged(Change.UNPROVEN, f"{text} most of the time{also}: not proven; {spikes.needed}")
    if not_worse and near.low > -matters and close:
        return Judged(Change.UNCHANGED, f"{text}: no change of {least} or more{also}", gone, never)
    if stays and not_worse:
        why = f"{text}{also}: a fall is not proven, a rise of {least} or more is ruled out"
        return Judged(Change.UNPROVEN, why, harmless=True)
    needed = _needed(near, matters, (len(means[0]), len(means[1])), length)
    return Judged(Change.UNPROVEN, f"{text}{also}: not proven; {needed}")


def _judge_spikes(before: Series, after: Series, definition: Definition, apart_s: float) -> _Spikes:
    if definition.spike is None:
        return _Spikes()
    (old, old_share), (new, new_share) = (episodes(each, definition.spike, apart_s) for each in (before, after))
    if not old and not new:
        return _Spikes()
    first, last = before.seconds, after.seconds
    text = f"{definition.spike_text} {_seen(old, old_share, first)} before, {_seen(new, new_share, last)} since"
    ratio = poisson_rate_ratio(old, first, new, last, ALPHA / 2)
    # A spike that never ends is one episode: it must not count as fewer.
    if ratio.fewer <= ALPHA / 2 and new_share < old_share:
        return _Spikes(Change.IMPROVED, text)
    if ratio.more <= ALPHA / 2 and new_share > old_share:
        return _Spikes(Change.WORSE, text)
    if max(old_share, new_share) > _MOSTLY:
        return _Spikes()
    if after.effect.expected == "stay":
        open_ = new >= _FEW and ratio.more <= _SUSPICIOUS
    else:
        open_ = old > 0 and new / last <= old / first / _FACTOR
    if not open_:
        return _Spikes(None, text)
    return _Spikes(Change.UNPROVEN, text, _none_needed(old, before, new, after, ALPHA / 2))


def _none_needed(old: int, before: Series, new: int, after: Series, alpha: float) -> str:
    """What would prove that there are fewer: for how long there must be none."""
    if new or not old:
        return "too few to distinguish a change from chance; look for longer"
    needed = seconds_without_any(old, before.seconds, alpha)
    return f"there must be none for {format_duration(needed)} to be sure; {_longer(needed - after.seconds)}"


def _seen(count: int, share: float, seconds: float) -> str:
    within = f" ({format_duration(share * seconds)} in all)" if count else ""
    return f"{_times(count)}{within} in {format_duration(seconds)}"


def _needed(shift: Shift, matters: float, counts: tuple[int, int], length: float) -> str:
    """What would prove it: how much longer to look, or that the time before is too short for any proof."""
    old, new = counts
    if not shift.bounded:
        fewest = fewest_after(old, EQUIVALENCE_ALPHA)
        if fewest is None or fewest <= new:
            return "the time before is too short to compare with; record before a fix"
        return f"too short; {_longer((fewest - new) * length)}"
    share = 2 * matters / (shift.high - shift.low) if shift.high > shift.low else 1.0
    if share >= 1.0:
        return "about as much as matters, and no more; look for longer"
    # The width of the bounds is proportional to the square root of 1/old + 1/new.
    room = share * share * (1 / old + 1 / new) - 1 / old
    if room <= 0:
        known = format_duration(old * length)
        return f"it varies too much for the {known} that were measured before; record before a fix"
    return f"it varies too much; {_longer((1 / room - new) * length)}"


def _longer(seconds: float) -> str:
    return f"look for {format_duration(seconds)} longer" if seconds >= 60 else "look for a minute longer"


def _times(count: int) -> str:
    return "never" if count == 0 else "once" if count == 1 else "twice" if count == 2 else f"{count:,} times"
