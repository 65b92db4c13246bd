"""By how much a mean moved, told from the spread of its seconds (as in Student's test, with the wider spread of the two
stretches for both). It sees what ranks can't in a short time: that a difference is many times larger than anything that
happens by itself. Each second counts for as little as its likeness to the seconds before it leaves."""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from exhume.remedy.verify.ranks import Shift

Floats = npt.NDArray[np.float64]


def mean_shift(before: Floats, after: Floats, each_worth: float, least_spread: float, doubt: float) -> Shift:
    """The shift of the mean; either bound is wrong with a chance of `doubt`. A value is worth `each_worth` of an
    independent one; `least_spread` is what values differ by, even where few of them happen not to."""
    worth = [len(values) * each_worth for values in (before, after)]
    middle = float(after.mean() - before.mean())
    if min(worth) < 2.0:
        return Shift(-math.inf, middle, math.inf)
    # A few seconds in which nothing happened would else seem to say that nothing ever does.
    spreads = [float(values.var()) * count / (count - 1) for values, count in zip((before, after), worth, strict=True)]
    error = math.sqrt((least_spread**2 + max(spreads)) * (1 / worth[0] + 1 / worth[1]))
    reach = student(round(min(worth) - 1, 2), doubt) * error
    return Shift(middle - reach, middle, middle + reach)


@lru_cache(maxsize=1024)
def student(freedom: float, doubt: float) -> float:
    """What Student's t is above with a chance of `doubt`: found on its curve, that of a power of the cosine."""
    angles = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.cos(angles) ** (freedom - 1) if freedom > 1 else np.maximum(np.cos(angles), 1e-9) ** (freedom - 1)
    passed = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2)))
    wanted = (0.5 - doubt) * 2 * passed[-1]
    return math.sqrt(freedom) * math.tan(float(np.interp(wanted, passed, angles)))
