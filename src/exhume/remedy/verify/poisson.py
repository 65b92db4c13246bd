"""Counts of single happenings, compared exactly: given how many there were in all, how they fell to the time before and
the time after is a matter of tossing a coin, weighted by the lengths of the two (the conditional test of two rates)."""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

# Beyond so many the bounds don't get any narrower that anybody would notice.
_MOST = 200_000


def chance_of_as_few(before: int, before_s: float, after: int, after_s: float) -> float:
    """How likely so few (or fewer) would be after, if nothing had changed."""
    return _at_most(after, before + after, after_s / (before_s + after_s))


def chance_of_as_many(before: int, before_s: float, after: int, after_s: float) -> float:
    """How likely so many (or more) would be after, if nothing had changed."""
    return _at_most(before, before + after, before_s / (before_s + after_s))


def ratio_bounds(before: int, before_s: float, after: int, after_s: float, doubt: float) -> tuple[float, float]:
    """Between which bounds the rate after is to the rate before; each is wrong with a chance of `doubt` at most."""
    together = before + after
    if not together:
        return 0.0, math.inf
    length = after_s / before_s
    low = 0.0 if not after else _solve(lambda share: _at_most(before, together, 1 - share), doubt, rising=True)
    high = 1.0 if not before else _solve(lambda share: _at_most(after, together, share), doubt, rising=False)
    return _odds(low) / length, _odds(high) / length


def seconds_to_see_none(before: int, before_s: float, doubt: float) -> float:
    """How long there has to be none, to know that there are fewer; infinite where there were none before."""
    return before_s * (doubt ** (-1.0 / before) - 1.0) if before > 0 else math.inf


def _odds(share: float) -> float:
    return share / (1.0 - share) if share < 1.0 else math.inf


def _solve(chance: "object", doubt: float, *, rising: bool) -> float:
    """The share at which a chance that only rises (or only falls) with it is just `doubt`."""
    assert callable(chance)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if (chance(middle) < doubt) == rising:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _at_most(number: int, of: int, share: float) -> float:
    """The chance of `number` or fewer successes in `of` tries, each with a chance of `share`."""
    if number >= of:
        return 1.0
    if not 0.0 < share < 1.0:
        return 1.0 if share <= 0.0 else 0.0
    if of > _MOST:
        scale = _MOST / of
        number, of = round(number * scale), _MOST
    logs = _log_factorials(of)
    few = np.arange(number + 1)
    terms = logs[of] - logs[few] - logs[of - few] + few * math.log(share) + (of - few) * math.log1p(-share)
    return min(1.0, float(np.exp(terms).sum()))


@lru_cache(maxsize=8)
def _log_factorials(most: int) -> npt.NDArray[np.float64]:
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, most + 1)))))
