"""By how many times a level changed, told from the spread of its seconds (Welch's test, on a scale of ratios). It sees
what ranks can't in a short time: that a difference is many times larger than anything that happens by itself. Each
second counts for as little as its likeness to the seconds before it leaves."""

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from exhume.remedy.verify.ranks import Shift

Floats = npt.NDArray[np.float64]

# Nothing is steadier than this for long, whatever a few seconds say.
_LEAST_SPREAD = 0.2
# What is worth fewer independent values than this says nothing of its own spread.
_LEAST_WORTH = 2.0


def ratio_shift(before: Floats, after: Floats, each_worth: float, nothing: float, doubt: float) -> Shift:
    """The shift of the mean logarithm; either bound is wrong with a chance of `doubt`. A value is worth `each_worth` of
    an independent one; differences far below `nothing` don't count."""
    logs = [np.log(np.maximum(values, 0.0) + nothing) for values in (before, after)]
    worth = [len(values) * each_worth for values in logs]
    middle = float(logs[1].mean() - logs[0].mean())
    if min(worth) < _LEAST_WORTH:
        return Shift(-math.inf, middle, math.inf)
    errors = [
        max(_LEAST_SPREAD**2, float(values.var()) * count / (count - 1)) / count
        for values, count in zip(logs, worth, strict=True)
    ]
    freedom = sum(errors) ** 2 / sum(error**2 / (count - 1) for error, count in zip(errors, worth, strict=True))
    reach = student(round(freedom, 2), doubt) * math.sqrt(sum(errors))
    return Shift(middle - reach, middle, middle + reach)


@lru_cache(maxsize=1024)
def student(freedom: float, doubt: float) -> float:
    """What Student's t is above with a chance of `doubt`: found on its curve, that of a power of the cosine."""
    angles = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.cos(angles) ** (freedom - 1) if freedom > 1 else np.maximum(np.cos(angles), 1e-9) ** (freedom - 1)
    passed = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2)))
    wanted = (0.5 - doubt) * 2 * passed[-1]
    return math.sqrt(freedom) * math.tan(float(np.interp(wanted, passed, angles)))
