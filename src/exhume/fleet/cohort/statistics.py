"""Statistics of cohorts: exact tests and likelihoods of two-by-two tables, risk ratios, corrections for multiple
testing, change points and chance coincidences.

A table is four counts: `hits` of `members` with a property are sick, of `sick` among all `nodes`. Functions take
arrays of hits and members, one entry for each property. Uses only numpy: of scipy (35 MB), two functions would be
needed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from exhume.model.finding import Estimate
from exhume.remedy.verify.statistics import log_factorials

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float32]
# For each node, the node whose label it gets in a round of shuffling.
Draw = Callable[[np.random.Generator], Ints]

CONFIDENCE = 0.95
Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
# Permuted labels are multiplied with the properties in batches of this many columns.
_BATCH = 256


def fisher_exact(hits: int, members: int, sick: int, nodes: int) -> float:
    """The natural logarithm of the p-value of Fisher's exact test, one-sided: at least this many hits by chance."""
    least, most = max(hits, members + sick - nodes), min(members, sick)
    if hits <= max(0, members + sick - nodes):
        return 0.0
    logs, x = log_factorials(nodes), np.arange(least, most + 1)
    ways = logs[sick] - logs[x] - logs[sick - x]
    ways += logs[nodes - sick] - logs[members - x] - logs[nodes - sick - members + x]
    ways -= logs[nodes] - logs[members] - logs[nodes - members]
    highest = ways.max()
    return min(0.0, float(highest + np.log(np.exp(ways - highest).sum())))


def g_statistic(hits: Floats, members: Floats, sick: Floats | float, nodes: float) -> Floats:
    """Twice the gain in log likelihood of two risks over one (the G test); 0 if nodes with the property are not the
    sicker ones."""
    others, other_hits = nodes - members, sick - hits
    gain = _entropy(hits, members) + _entropy(other_hits, others) - _entropy(np.asarray(sick, float), nodes)
    with np.errstate(invalid="ignore", divide="ignore"):
        sicker = hits * others > other_hits * members
    statistic: Floats = np.where(sicker, np.maximum(2 * gain, 0.0), 0.0)
    return statistic


def _entropy(hits: Floats, total: Floats | float) -> Floats:
    """The maximum log likelihood of a number of hits, which is at their own rate."""
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = hits / total
        one = np.where(hits > 0, hits * np.log(rate), 0.0)
        other = np.where(hits < total, (total - hits) * np.log1p(-rate), 0.0)
    found: Floats = one + other
    return found


def risk_ratio(hits: int, members: int, other_hits: int, others: int, least_error: float = 0.0) -> Estimate:
    """The risk with a property over the risk without it, with its interval (Katz 1978; half a node is added to each
    count if one is zero). `least_error` is a lower bound on the standard error of its logarithm, as caused by
    clusters."""
    a, n, b, m = _halved(hits, members, other_hits, others)
    log = math.log(a / n) - math.log(b / m)
    error = Z * max(least_error, math.sqrt(max(0.0, 1 / a - 1 / n + 1 / b - 1 / m)))
    return Estimate(math.exp(log), math.exp(log - error), math.exp(log + error))


def _halved(hits: int, members: int, other_hits: int, others: int) -> tuple[float, float, float, float]:
    half = 0.0 if min(hits, other_hits, members - hits, others - other_hits) > 0 else 0.5
    return hits + half, members + 2 * half, other_hits + half, others + 2 * half


def clustered_error(members: npt.NDArray[np.bool_], label: npt.NDArray[np.bool_], units: Ints) -> float:
    """The standard error of the logarithm of the risk ratio when nodes within a unit are alike: linearised, with units
    as the observations (Liang and Zeger 1986)."""
    inside, outside = label[members], label[~members]
    a, n, b, m = _halved(int(inside.sum()), len(inside), int(outside.sum()), len(outside))
    influence = np.where(members, (label - a / n) / a, -(label - b / m) / b)
    sums = np.bincount(units, influence)
    sums = sums[np.bincount(units) > 0]
    return math.sqrt(float((sums**2).sum()) * len(sums) / max(1, len(sums) - 1))


@dataclass(frozen=True, slots=True)
class Stratum:
    """One two-by-two table of a stratified comparison."""

    hits: int
    members: int
    other_hits: int
    others: int


def mantel_haenszel(strata: Sequence[Stratum]) -> Estimate | None:
    """The risk ratio pooled over strata (Mantel-Haenszel, with the variance of Greenland and Robins 1985); None if no
    stratum has both kinds of nodes and a sick one."""
    upper = lower = spread = 0.0
    for each in strata:
        total = each.members + each.others
        if not each.members or not each.others:
            continue
        upper += each.hits * each.others / total
        lower += each.other_hits * each.members / total
        both = each.hits + each.other_hits
        spread += (each.members * each.others * both - each.hits * each.other_hits * total) / total**2
    if upper + lower == 0:
        return None
    # Add half a node if one side has none.
    upper, lower = (upper, lower) if min(upper, lower) > 0 else (upper + 0.5, lower + 0.5)
    error = Z * math.sqrt(spread / (upper * lower)) if spread > 0 else Z
    ratio = upper / lower
    return Estimate(ratio, ratio * math.exp(-error), ratio * math.exp(error))


def benjamini_hochberg(log_p: Floats) -> Floats:
    """The q-values of p-values given as logarithms: the false discovery rate at which each test would be reported."""
    order = np.argsort(log_p, kind="stable")
    q = log_p[order] + np.log(len(log_p)) - np.log(np.arange(1, len(log_p) + 1))
    q = np.minimum.accumulate(q[::-1])[::-1]
    found = np.empty(len(log_p))
    found[order] = np.exp(np.minimum(q, 0.0))
    return found


def greatest_by_chance(properties: Matrix, labels: Matrix, rounds: int, seed: int, draw: Draw | None = None) -> Floats:
    """The greatest G of all properties for each label (column) in each round (row), when labels are shuffled between
    nodes or drawn from others: what the best of all would reach by chance (Westfall and Young 1993)."""
    nodes, kinds = labels.shape
    members = properties.sum(axis=0, dtype=np.float64)
    shuffle = draw if draw is not None else (lambda generator: generator.permutation(nodes))
    rng = np.random.default_rng(seed)
    # Count set bits instead of multiplying matrices: BLAS threads spin while they wait for each other, which takes
    # several times as long when other work has the cores.
    having, sick_nodes = _bits(properties.T > 0), np.ascontiguousarray(labels.T > 0)
    at_once = max(1, _BATCH // kinds)
    greatest = []
    for begin in range(0, rounds, at_once):
        count = min(at_once, rounds - begin)
        shuffled = np.concatenate([_bits(np.take(sick_nodes, shuffle(rng), axis=1)) for _ in range(count)])
        hits = np.stack([_counts(having & each) for each in shuffled], axis=1).astype(np.float64)
        sick = _counts(shuffled).astype(np.float64)
        statistic = g_statistic(hits, members[:, None], sick[None, :], nodes)
        greatest.append(statistic.reshape(len(members), count, kinds).max(axis=0))
    return np.concatenate(greatest)


def _bits(flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Each row of flags packed into words of bits."""
    packed = np.packbits(flags, axis=1)
    words = np.zeros((len(packed), -(-packed.shape[1] // 8) * 8), np.uint8)
    words[:, : packed.shape[1]] = packed
    return words.view(np.uint64)


def _counts(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint32]:
    """The number of set bits in each row."""
    found: npt.NDArray[np.uint32] = np.bitwise_count(bits).sum(axis=1, dtype=np.uint32)
    return found


def adjusted_p(statistic: float, by_chance: Floats) -> float:
    """The probability that the best of all is at least this great by chance."""
    return float((1 + (by_chance >= statistic).sum()) / (1 + len(by_chance)))


def wilson(hits: int, trials: int) -> Estimate:
    """A share with its confidence interval (Wilson 1927)."""
    if trials == 0:
        return Estimate(0.0, 0.0, 1.0)
    share, square = hits / trials, Z * Z
    middle = (share + square / (2 * trials)) / (1 + square / trials)
    half = Z * math.sqrt(share * (1 - share) / trials + square / (4 * trials**2)) / (1 + square / trials)
    return Estimate(share, max(0.0, middle - half), min(1.0, middle + half))


def poisson_rate(events: int, exposure: float) -> Estimate:
    """Events per exposure with a confidence interval (Byar's approximation of the exact one)."""
    if exposure <= 0:
        return Estimate(0.0, 0.0, math.inf)
    low = 0.0
    if events:
        low = events * (1 - 1 / (9 * events) - Z / (3 * math.sqrt(events))) ** 3
    more = events + 1
    high = more * (1 - 1 / (9 * more) + Z / (3 * math.sqrt(more))) ** 3
    return Estimate(events / exposure, max(0.0, low) / exposure, high / exposure)


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """A change of a rate: the first cell of the new rate, the range of cells that explain the counts almost as well,
    both rates, and twice the log likelihood gained."""

    at: int
    earliest: int
    latest: int
    before: float
    after: float
    gain: float


# Twice the log likelihood that a change has to gain: 1% of series without a change reach this somewhere (simulated, 24
# to 720 cells).
CHANGE_GAIN = 14.0


def change_point(events: Floats, exposure: Floats) -> ChangePoint | None:
    """Where the rate of a Poisson process changed most clearly; None if no change is evident."""
    counts, times = np.cumsum(events), np.cumsum(exposure)
    if len(events) < 2 or counts[-1] <= 0 or times[-1] <= 0:
        return None
    before, span = counts[:-1], times[:-1]
    after, rest = counts[-1] - before, times[-1] - span
    usable = (span > 0) & (rest > 0)
    if not usable.any():
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        likelihood = np.where(before > 0, before * np.log(before / span), 0.0)
        likelihood = likelihood + np.where(after > 0, after * np.log(after / rest), 0.0)
    likelihood = np.where(usable, likelihood, -np.inf)
    best = int(np.argmax(likelihood))
    gain = 2 * (likelihood[best] - counts[-1] * math.log(counts[-1] / times[-1]))
    if gain < CHANGE_GAIN:
        return None
    near = np.flatnonzero(2 * (likelihood[best] - likelihood) <= Z * Z)
    return ChangePoint(
        best + 1,
        int(near[0]) + 1,
        int(near[-1]) + 1,
        float(before[best] / span[best]),
        float(after[best] / rest[best]),
        float(gain),
    )


def by_chance_at_least(hits: int, chances: Floats) -> float:
    """The probability that at least this many of independent events with these chances happen (Poisson binomial,
    exact)."""
    distribution = np.array([1.0])
    for chance in chances.tolist():
        distribution = np.convolve(distribution, (1.0 - chance, chance))
    return float(min(1.0, distribution[hits:].sum()))
