"""By how much a level moved, without a word about how it is spread: the bounds that go with the rank test of Mann,
Whitney and Wilcoxon, around the middle of all differences between a value before and one after (Hodges, Lehmann)."""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# From so many values on each side the normal curve is as good as counting.
_COUNTED = 12


@dataclass(frozen=True, slots=True)
class Shift:
    """What came after minus what was before: the middle, and bounds that are wrong with a chance that was asked for.
    They are infinite where there are too few values for any bound."""

    low: float
    middle: float
    high: float

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)


def shift_between(before: Floats, after: Floats, doubt: float) -> Shift:
    """The shift; either bound is wrong with a chance of `doubt` at most."""
    differences = np.sort(np.subtract.outer(after, before).ravel())
    left_out = critical(len(before), len(after), doubt)
    middle = float(np.median(differences))
    if left_out == 0:
        return Shift(-math.inf, middle, math.inf)
    return Shift(float(differences[left_out - 1]), middle, float(differences[-left_out]))


def fewest_after(before: int, doubt: float, most: int = 100_000) -> int | None:
    """How many values there have to be after, so that there can be bounds at all."""
    chance = 1.0
    for after in range(1, most + 1):
        # One over the number of ways to choose the values before out of all of them.
        chance *= after / (before + after)
        if chance <= doubt:
            return after
    return None


@lru_cache(maxsize=256)
def critical(one: int, other: int, doubt: float) -> int:
    """How many of the differences at each end lie outside of the bounds; 0 when there can be no bounds."""
    few, many = sorted((one, other))
    if few == 0:
        return 0
    if few > _COUNTED:
        spread = math.sqrt(few * many * (few + many + 1) / 12)
        # Half a step on the safe side.
        return max(0, math.floor(few * many / 2 - 0.5 + NormalDist().inv_cdf(doubt) * spread))
    allowed = doubt * math.comb(few + many, few)
    passed = 0
    for rank, ways in enumerate(_ways(few, many)):
        passed += ways
        if passed > allowed:
            return rank
    return 0


def _ways(few: int, many: int) -> list[int]:
    """In how many orders each value of U comes about, from 0 up to its middle: the coefficients of the Gaussian
    binomial, by multiplying with 1 - q^(many + i) and dividing by 1 - q^i."""
    length = few * many // 2 + 1
    ways = [1] + [0] * (length - 1)
    for i in range(1, few + 1):
        for at in range(length - 1, many + i - 1, -1):
            ways[at] -= ways[at - many - i]
        for at in range(i, length):
            ways[at] += ways[at - i]
    return ways
