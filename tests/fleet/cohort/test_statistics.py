"""The statistics of cohorts, against values that are known."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.fleet.cohort.statistics import (
    Stratum,
    adjusted_p,
    benjamini_hochberg,
    by_chance_at_least,
    change_point,
    clustered_error,
    fisher_exact,
    g_statistic,
    greatest_by_chance,
    mantel_haenszel,
    poisson_rate,
    risk_ratio,
    wilson,
)


def test_fisher_exact_of_the_lady_tasting_tea():
    assert math.exp(fisher_exact(4, 4, 4, 8)) == pytest.approx(1 / 70)
    assert math.exp(fisher_exact(3, 4, 4, 8)) == pytest.approx(17 / 70)
    assert fisher_exact(0, 4, 4, 8) == 0.0


@given(st.integers(1, 30), st.data())
def test_fisher_exact_counts_all_ways(nodes: int, data: st.DataObject):
    sick, members = data.draw(st.integers(0, nodes)), data.draw(st.integers(0, nodes))
    hits = data.draw(st.integers(max(0, sick + members - nodes), min(sick, members)))
    ways = sum(
        math.comb(sick, x) * math.comb(nodes - sick, members - x)
        for x in range(hits, min(sick, members) + 1)
        if members - x <= nodes - sick
    )
    assert math.exp(fisher_exact(hits, members, sick, nodes)) == pytest.approx(ways / math.comb(nodes, members))


def test_fisher_exact_does_not_underflow():
    assert -9000 < fisher_exact(2000, 2000, 2000, 10_000) < -4000


def test_g_statistic_is_that_of_the_contingency_table():
    observed = np.array([[30.0, 70.0], [10.0, 190.0]])
    expected = observed.sum(axis=1, keepdims=True) * observed.sum(axis=0) / observed.sum()
    g = 2 * (observed * np.log(observed / expected)).sum()
    assert g_statistic(np.array([30.0]), np.array([100.0]), 40.0, 300)[0] == pytest.approx(g)
    assert g_statistic(np.array([5.0]), np.array([100.0]), 40.0, 300)[0] == 0.0, "they are less sick"
    assert g_statistic(np.array([40.0]), np.array([40.0]), 40.0, 300)[0] == pytest.approx(
        -2 * (40 * math.log(40 / 300) + 260 * math.log(260 / 300))
    )


def test_risk_ratio_with_its_interval():
    ratio = risk_ratio(15, 100, 5, 100)
    assert ratio.value == pytest.approx(3.0)
    assert (ratio.low, ratio.high) == pytest.approx((1.133, 7.942), abs=0.002)
    none = risk_ratio(10, 10, 0, 100)
    assert none.low > 10 and math.isfinite(none.high)


def test_mantel_haenszel_sees_through_simpsons_paradox():
    # Within each stratum the risk is the same; pooled, it looks like four times.
    strata = [Stratum(80, 100, 8, 10), Stratum(1, 10, 10, 100)]
    found = mantel_haenszel(strata)
    assert found is not None
    assert found.value == pytest.approx(1.0)
    assert found.low < 1 < found.high
    assert risk_ratio(81, 110, 18, 110).value > 4
    twice = mantel_haenszel([Stratum(20, 100, 10, 100), Stratum(40, 100, 20, 100)])
    assert twice is not None and twice.value == pytest.approx(2.0)
    assert mantel_haenszel([Stratum(10, 10, 0, 0)]) is None


def test_benjamini_hochberg_of_four():
    q = benjamini_hochberg(np.log([0.01, 0.04, 0.03, 0.005]))
    assert q.tolist() == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert benjamini_hochberg(np.array([0.0, 0.0])).tolist() == [1.0, 1.0]


def test_shuffled_labels_give_the_chance_of_the_best():
    rng = np.random.default_rng(3)
    matrix = (rng.random((400, 60)) < 0.3).astype(np.float32)
    labels = (rng.random((400, 2)) < 0.1).astype(np.float32)
    every = greatest_by_chance(matrix, labels, 300, seed=5)
    assert every.shape == (300, 2)
    by_chance = every.max(axis=1)
    # The best of 120 tests exceeds the bound of a single one.
    assert np.median(by_chance) > 3.84
    labels[:, 0] = matrix[:, 7]
    hits = (matrix.T @ labels).astype(float)
    best = g_statistic(hits, matrix.sum(0, dtype=float)[:, None], labels.sum(0, dtype=float)[None, :], 400).max()
    assert adjusted_p(best, by_chance) == pytest.approx(1 / 301)
    assert adjusted_p(0.0, by_chance) == 1.0


def test_intervals_are_wider_where_clusters_are_sick_and_not_where_nodes_are():
    rng = np.random.default_rng(4)
    units = np.repeat(np.arange(40), 25)
    members = (units % 2).astype(bool)
    alone = rng.random(1000) < np.where(members, 0.3, 0.1)
    together = (rng.random(40) < np.where(np.arange(40) % 2, 0.3, 0.1))[units]

    def errors(label: np.ndarray) -> tuple[float, float]:
        inside, outside = int(label[members].sum()), int(label[~members].sum())
        katz = math.sqrt(1 / inside - 1 / 500 + 1 / outside - 1 / 500)
        return clustered_error(members, label, units), katz

    clustered, katz = errors(alone)
    assert clustered == pytest.approx(katz, rel=0.4)
    clustered, katz = errors(together)
    assert clustered > 3 * katz
    # The interval of the ratio is at least as wide.
    narrow, wide = risk_ratio(150, 500, 50, 500), risk_ratio(150, 500, 50, 500, 1.0)
    assert wide.value == narrow.value and wide.low < narrow.low < narrow.high < wide.high


def test_shares_and_rates_have_the_usual_intervals():
    share = wilson(8, 10)
    assert (share.low, share.high) == pytest.approx((0.490, 0.943), abs=0.001)
    assert wilson(0, 0).high == 1.0
    rate = poisson_rate(10, 1.0)
    assert (rate.low, rate.high) == pytest.approx((4.795, 18.39), rel=0.01)
    assert poisson_rate(0, 2.0).high == pytest.approx(3.689 / 2, rel=0.02)


def test_a_change_point_is_found_where_it_is():
    rng = np.random.default_rng(1)
    events = np.concatenate([rng.poisson(0.5, 100), rng.poisson(4.0, 60)]).astype(float)
    found = change_point(events, np.ones(160))
    assert found is not None
    assert abs(found.at - 100) <= 2 and found.earliest <= 100 <= found.latest
    assert found.before == pytest.approx(0.5, abs=0.3) and found.after == pytest.approx(4.0, abs=0.8)


def test_constant_rates_have_no_change_point():
    rng = np.random.default_rng(2)
    series = [rng.poisson(rate, 168).astype(float) for rate in (0.05, 0.5, 3.0) for _ in range(200)]
    alarms = sum(change_point(each, np.ones(168)) is not None for each in series)
    assert alarms <= 12, "2% of 600"


def test_coincidences_by_chance_are_binomial_where_chances_are_equal():
    tail = sum(math.comb(20, k) * 0.1**k * 0.9 ** (20 - k) for k in range(5, 21))
    assert by_chance_at_least(5, np.full(20, 0.1)) == pytest.approx(tail)
    assert by_chance_at_least(0, np.full(3, 0.2)) == pytest.approx(1.0)
    tails = [by_chance_at_least(hits, np.array([0.1, 0.9, 0.5])) for hits in range(4)]
    assert all(before >= after for before, after in pairwise(tails))
