"""The map from raw to measured confidence that fits judged findings best: a line in log-odds, two numbers.

More would fit the lab's own luck. A prior holds the line at "as told": a handful of runs moves it little.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# How far the line is expected to lie from "as told", before anything is judged: standard deviations.
_PRIOR_SHIFT, _PRIOR_STRETCH = 0.7, 0.35
_FEWEST = 20
_EDGE = 0.01


@dataclass(frozen=True, slots=True)
class Line:
    """log-odds of being right = shift + stretch x log-odds told. `before` and `after` are the mean squared errors
    (Brier scores) of the confidence as told, and by the line."""

    shift: float
    stretch: float
    findings: int
    before: float
    after: float


def fit(judged: Sequence[tuple[float, bool]]) -> Line | None:
    """The line for findings (told confidence, right); None where there are too few."""
    if len(judged) < _FEWEST:
        return None
    told = np.clip(np.array([confidence for confidence, _ in judged]), _EDGE, 1 - _EDGE)
    right = np.array([float(was_right) for _, was_right in judged])
    odds = np.log(told / (1 - told))
    best, line = -np.inf, (0.0, 1.0)
    for shift in np.linspace(-2, 2, 81):
        for stretch in np.geomspace(0.25, 4, 61):
            chance = 1 / (1 + np.exp(-(shift + stretch * odds)))
            likelihood = np.sum(right * np.log(chance) + (1 - right) * np.log(1 - chance))
            prior = -0.5 * (shift / _PRIOR_SHIFT) ** 2 - 0.5 * (np.log(stretch) / _PRIOR_STRETCH) ** 2
            if likelihood + prior > best:
                best, line = likelihood + prior, (float(shift), float(stretch))
    after = 1 / (1 + np.exp(-(line[0] + line[1] * odds)))
    before_error, after_error = float(np.mean((told - right) ** 2)), float(np.mean((after - right) ** 2))
    return Line(round(line[0], 2), round(line[1], 2), len(judged), before_error, after_error)
