"""Seconds that follow each other resemble each other. They are put together into blocks that are long enough to stand
for themselves, and happenings that come in bursts are counted as one."""

import math

import numpy as np
import numpy.typing as npt

from exhume.remedy.verify.measures import MEANINGS, Kind
from exhume.remedy.verify.observed import Observed

Floats = npt.NDArray[np.float64]

SHORTEST_S = 3.0
# Blocks are this many times as long as what happens in a second still shows.
_TIMES = 2.0
# Fewer values than these tell nothing of how they hang together; so many can speak for themselves.
FEWEST, _MANY = 8, 60
_CLOSEST = 0.99
# More blocks than these tell no more, and all pairs of them are compared.
_MOST = 300


def rates(observed: Observed) -> Floats:
    """Value by value: a level as it is, an amount by the second."""
    values = np.array(observed.values, np.float64)
    return values if MEANINGS[observed.effect.measure].kind is Kind.LEVEL else values / np.array(observed.spans)


def shared_memory_s(before: Observed, after: Observed) -> float:
    """How long a second shows, in the stretch where it shows for longer; short ones can't speak for themselves."""
    each = [memory_s(stretch) for stretch in (before, after) if len(stretch.values) >= _MANY]
    return max([memory_s(before, after), *each])


def memory_s(*stretches: Observed) -> float:
    """How long what happens in a second still shows in those after it, in stretches that are taken together.

    It is the greater of two estimates: the autocorrelation summed until it is lost in noise, and what the first step of
    it leads to, put right for the little that short stretches show of it.
    """
    parts = [apart for each in stretches if len(apart := _apart(each)) >= FEWEST]
    if not parts:
        return 0.0
    count = sum(map(len, parts))
    total, first = 1.0, 0.0
    for lag in range(1, max(map(len, parts)) // 2):
        seen = sum(float(apart[:-lag] @ apart[lag:]) for apart in parts if len(apart) > lag) / count
        first = seen if lag == 1 else first
        total += 2 * seen
        if lag >= 5 * total:
            break
    # Taking the mean away from n values makes each step look smaller by about (1 + 3 r) / n.
    first = min(_CLOSEST, first + (1 + 3 * first) * len(parts) / count)
    return max(1.0, total, (1 + first) / (1 - first)) * max(map(_usual, stretches))


def _apart(observed: Observed) -> Floats:
    """How far each value is from the mean, in units of their spread; nothing where all are the same."""
    values = rates(observed)
    spread = float(values.std()) if len(values) else 0.0
    return (values - values.mean()) / spread if spread > 0 else np.empty(0)


def block_seconds(before: Observed, after: Observed) -> float:
    """A length of blocks that suits both stretches; never longer than the shorter of the two."""
    observation = max(_usual(before), _usual(after))
    wanted = max(SHORTEST_S, observation, _TIMES * shared_memory_s(before, after))
    wanted = max(wanted, max(before.seconds, after.seconds) / _MOST)
    return min(wanted, max(observation, min(before.seconds, after.seconds)))


def blocks(observed: Observed, seconds: float) -> Floats:
    """The mean of each block; what is left over at the end and shorter than half a block is not used."""
    weights = np.array(observed.spans)
    if not len(weights):
        return np.empty(0)
    # Rounded, so that 3 ticks of 0.999 s make a block of 3 s.
    number = np.minimum(
        ((np.cumsum(weights) - weights / 2) / seconds).astype(np.int64), max(0, round(weights.sum() / seconds) - 1)
    )
    held = np.bincount(number, weights)
    means = np.bincount(number, rates(observed) * weights) / np.where(held > 0, held, 1)
    kept: Floats = means[held >= seconds / 2] if len(held) > 1 else means
    return kept


def bursts(observed: Observed, least: float, apart_s: float) -> int:
    """How many times it came to `least`; times that are less than so many seconds apart are one."""
    count, quiet = 0, math.inf
    for rate, span in zip(rates(observed), observed.spans, strict=True):
        if rate >= least:
            count += quiet >= apart_s
            quiet = 0.0
        else:
            quiet += span
    return count


def longest_pause_s(observed: Observed) -> float:
    """The longest time without any, up to the end; 0 where it is only known how many there were, and not when."""
    longest = quiet = 0.0
    for value, span in zip(observed.values, observed.spans, strict=True):
        quiet = 0.0 if value else quiet + span
        longest = max(longest, quiet)
    return longest if len(observed.values) > 1 else 0.0


def share_above(observed: Observed, least: float) -> float:
    """The share of the time in which it was at `least`."""
    spans = np.array(observed.spans)
    return float(spans[rates(observed) >= least].sum() / spans.sum()) if len(spans) else 0.0


def crowding(*stretches: Observed) -> float:
    """How much more than by chance happenings crowd together: the variance of counts over their mean, 1 or more, second
    by second and in blocks of ten. Counts that crowd are worth so many times less."""
    return max(1.0, _crowding(stretches, 0.0), _crowding(stretches, 10.0))


def _crowding(stretches: tuple[Observed, ...], length: float) -> float:
    squares = freedom = 0.0
    for observed in stretches:
        whole = int(observed.seconds // length) if length else len(observed.values)
        if whole < 3 or not observed.amount:
            continue
        each = observed.seconds / whole
        counts = blocks(observed, each) * each if length else np.array(observed.values)
        squares += float(((counts - counts.mean()) ** 2).sum() / counts.mean())
        freedom += len(counts) - 1
    return squares / freedom if freedom else 1.0


def _usual(observed: Observed) -> float:
    """The length of an observation; one that came late is no measure for the others."""
    return float(np.median(observed.spans)) if observed.spans else 0.0
