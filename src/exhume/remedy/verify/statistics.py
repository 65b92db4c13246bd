"""Statistics behind a verdict: an exact test for counts, a rank test for levels, and blocks of time that are long
enough to count as independent observations."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from exhume.remedy.verify.measures import MEASURES, Kind, Series

Floats = npt.NDArray[np.float64]

SHORTEST_BLOCK_S = 3.0
# The length of a block, in autocorrelation times.
_CORRELATION_TIMES = 2.0
# Fewer values than this say nothing about autocorrelation; this many suffice to estimate it from a single series.
_FEWEST_VALUES, _MANY_VALUES = 8, 60
_HIGHEST_CORRELATION = 0.99
# More blocks than this add nothing, and all pairs of them are compared.
_MOST_BLOCKS = 300
# Counts above this are scaled down: the bounds are narrow enough for any purpose.
_MOST_COUNTS = 200_000
# From this many values on, the normal approximation of U is as good as exact counting.
_EXACT_U = 12


@dataclass(frozen=True, slots=True)
class RateRatio:
    """Comparison of two Poisson rates: p-values for `fewer` and `more` events after than before, and bounds of the
    ratio after / before, each wrong with a probability of at most alpha."""

    fewer: float
    more: float
    low: float
    high: float


def poisson_rate_ratio(before: int, before_s: float, after: int, after_s: float, alpha: float) -> RateRatio:
    """Exact conditional test of two Poisson rates.

    Given the total, the number after is binomial with the share of the time after (Przyborowski and Wilenski 1940).
    """
    total, share = before + after, after_s / (before_s + after_s)
    fewer, more = _binomial_cdf(after, total, share), _binomial_cdf(before, total, 1 - share)
    if not total:
        return RateRatio(fewer, more, 0.0, math.inf)
    low = _bisect(lambda p: _binomial_cdf(before, total, 1 - p) < alpha) if after else 0.0
    high = _bisect(lambda p: _binomial_cdf(after, total, p) >= alpha) if before else 1.0
    low, high = (share / (1.0 - share) if share < 1.0 else math.inf for share in (low, high))
    return RateRatio(fewer, more, low * before_s / after_s, high * before_s / after_s)


def seconds_without_any(before: int, before_s: float, alpha: float) -> float:
    """How long there must be no events for a lower rate to be significant; infinite if there were none before."""
    return before_s * (alpha ** (-1.0 / before) - 1.0) if before > 0 else math.inf


def _bisect(is_below: Callable[[float], bool]) -> float:
    """The point in 0..1 up to which `is_below` is true."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2


def _binomial_cdf(count: int, trials: int, p: float) -> float:
    """P(X <= count) of a binomial distribution."""
    if count >= trials:
        return 1.0
    if not 0.0 < p < 1.0:
        return 1.0 if p <= 0.0 else 0.0
    if trials > _MOST_COUNTS:
        count, trials = round(count * _MOST_COUNTS / trials), _MOST_COUNTS
    logs = log_factorials(trials)
    k = np.arange(count + 1)
    terms = logs[trials] - logs[k] - logs[trials - k] + k * math.log(p) + (trials - k) * math.log1p(-p)
    return min(1.0, float(np.exp(terms).sum()))


@lru_cache(maxsize=8)
def log_factorials(most: int) -> Floats:
    """log(n!) of 0 to `most`."""
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, most + 1)))))


@dataclass(frozen=True, slots=True)
class Shift:
    """The shift of a level from before to after: the Hodges-Lehmann estimate, and bounds that are infinite if there are
    too few values."""

    low: float
    estimate: float
    high: float

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)


def mann_whitney_u(before: Floats, after: Floats, alpha: float) -> Shift:
    """Mann-Whitney U test, as bounds of the shift: each is wrong with a probability of at most alpha.

    A shift below zero is significant where `high` < 0. Nothing is assumed about the distribution but independence.
    """
    differences = np.sort(np.subtract.outer(after, before).ravel())
    outside = critical_u(len(before), len(after), alpha)
    estimate = float(np.median(differences))
    if outside == 0:
        return Shift(-math.inf, estimate, math.inf)
    return Shift(float(differences[outside - 1]), estimate, float(differences[-outside]))


def clear_gap(before: Series, after: Series) -> float:
    """The gap between all values before and all values after, if it is wider than the range of either; else 0.

    No stationary process, however autocorrelated, jumps by more than it moved in all the time observed; a series of a
    few seconds that has too few blocks for ranks can still show that.
    """
    if min(len(before.values), len(after.values)) < _FEWEST_VALUES:
        return 0.0
    old, new = rates(before), rates(after)
    gap = float(max(old.min() - new.max(), new.min() - old.max()))
    return gap if gap > max(np.ptp(old), np.ptp(new)) else 0.0


def fewest_after(before: int, alpha: float, most: int = 100_000) -> int | None:
    """How many values are needed after for bounds to exist; None if `most` are too few."""
    p = 1.0
    for after in range(1, most + 1):
        # The most extreme order: one of all ways to choose the values before.
        p *= after / (before + after)
        if p <= alpha:
            return after
    return None


@lru_cache(maxsize=256)
def critical_u(one: int, other: int, alpha: float) -> int:
    """How many differences at each end are outside of the bounds; 0 if bounds are impossible."""
    few, many = sorted((one, other))
    if few == 0:
        return 0
    if few > _EXACT_U:
        deviation = math.sqrt(few * many * (few + many + 1) / 12)
        # Continuity correction, on the safe side.
        return max(0, math.floor(few * many / 2 - 0.5 + NormalDist().inv_cdf(alpha) * deviation))
    allowed = alpha * math.comb(few + many, few)
    passed = 0
    for u, ways in enumerate(_u_counts(few, many)):
        passed += ways
        if passed > allowed:
            return u
    return 0


def _u_counts(few: int, many: int) -> list[int]:
    """The number of orders that produce each value of U, from 0 up to its middle: the coefficients of the Gaussian
    binomial, by multiplying with 1 - q^(many + i) and dividing by 1 - q^i."""
    length = few * many // 2 + 1
    ways = [1] + [0] * (length - 1)
    for i in range(1, few + 1):
        for at in range(length - 1, many + i - 1, -1):
            ways[at] -= ways[at - many - i]
        for at in range(i, length):
            ways[at] += ways[at - i]
    return ways


def rates(series: Series) -> Floats:
    """The values of a series: a level unchanged, an amount per second."""
    values = np.array(series.values, np.float64)
    return values if MEASURES[series.effect.measure].kind is Kind.LEVEL else values / np.array(series.spans)


def block_seconds(before: Series, after: Series) -> float:
    """A block length that suits both series; never longer than the shorter of the two."""
    observation = max(_usual_span(before), _usual_span(after))
    correlation = [correlation_seconds(each) for each in (before, after) if len(each.values) >= _MANY_VALUES]
    needed = _CORRELATION_TIMES * max([correlation_seconds(before, after), *correlation])
    needed = max(needed, SHORTEST_BLOCK_S, observation, max(before.seconds, after.seconds) / _MOST_BLOCKS)
    return min(needed, max(observation, min(before.seconds, after.seconds)))


def block_means(series: Series, seconds: float) -> Floats:
    """The mean of each block; a remainder at the end of less than half a block is dropped."""
    weights = np.array(series.spans)
    if not len(weights):
        return np.empty(0)
    # Rounded, so that 3 ticks of 0.999 s make a block of 3 s.
    number = np.minimum(
        ((np.cumsum(weights) - weights / 2) / seconds).astype(np.int64), max(0, round(weights.sum() / seconds) - 1)
    )
    held = np.bincount(number, weights)
    means = np.bincount(number, rates(series) * weights) / np.where(held > 0, held, 1)
    kept: Floats = means[held >= seconds / 2] if len(held) > 1 else means
    return kept


def correlation_seconds(*series: Series) -> float:
    """The integrated autocorrelation time of series taken together.

    It is the greater of two estimates: the autocorrelation summed until it is lost in noise, and that of a first-order
    process with the first lag, corrected for the bias of short series.
    """
    # Deviations from the mean in units of the standard deviation.
    known = [values for each in series if len(values := rates(each)) >= _FEWEST_VALUES and values.std() > 0]
    parts = [(values - values.mean()) / values.std() for values in known]
    if not parts:
        return 0.0
    count = sum(map(len, parts))
    total, first = 1.0, 0.0
    for lag in range(1, max(map(len, parts)) // 2):
        r = sum(float(part[:-lag] @ part[lag:]) for part in parts if len(part) > lag) / count
        first = r if lag == 1 else first
        total += 2 * r
        if lag >= 5 * total:
            break
    # Subtracting the mean of n values lowers each lag by about (1 + 3 r) / n (Kendall 1954).
    first = min(_HIGHEST_CORRELATION, first + (1 + 3 * first) * len(parts) / count)
    return max(1.0, total, (1 + first) / (1 - first)) * max(map(_usual_span, series))


def episodes(series: Series, threshold: float, apart_s: float) -> tuple[int, float]:
    """How often a rate reached a threshold (occurrences less than `apart_s` apart are one episode), and for what share
    of the time."""
    count, quiet, above = 0, math.inf, 0.0
    for rate, span in zip(rates(series), series.spans, strict=True):
        if rate >= threshold:
            count += quiet >= apart_s
            quiet, above = 0.0, above + span
        else:
            quiet += span
    return count, above / series.seconds if series.seconds else 0.0


def longest_pause_s(series: Series) -> float:
    """The longest time without an event, up to the end; 0 if only the number of events is known, not their times."""
    longest = quiet = 0.0
    for value, span in zip(series.values, series.spans, strict=True):
        quiet = 0.0 if value else quiet + span
        longest = max(longest, quiet)
    return longest if len(series.values) > 1 else 0.0


def dispersion(*series: Series) -> float:
    """The index of dispersion of counts (variance over mean, 1 or more), per observation and per ten seconds.

    Events that cluster carry that many times less information than independent ones.
    """
    return max(1.0, _dispersion(series, 0.0), _dispersion(series, 10.0))


def _dispersion(all_series: tuple[Series, ...], length: float) -> float:
    squares = freedom = 0.0
    for series in all_series:
        whole = int(series.seconds // length) if length else len(series.values)
        if whole < 3 or not series.amount:
            continue
        each = series.seconds / whole
        counts = block_means(series, each) * each if length else np.array(series.values)
        squares += float(((counts - counts.mean()) ** 2).sum() / counts.mean())
        freedom += len(counts) - 1
    return squares / freedom if freedom else 1.0


def _usual_span(series: Series) -> float:
    """The typical length of an observation; late ones do not affect it."""
    return float(np.median(series.spans)) if series.spans else 0.0
