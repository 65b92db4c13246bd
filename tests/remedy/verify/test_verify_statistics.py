"""The statistics behind a verdict, against counting by hand and tables."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.model.remedy import Effect, Measure
from exhume.remedy.verify.measures import Series
from exhume.remedy.verify.statistics import (
    block_means,
    block_seconds,
    clear_gap,
    correlation_seconds,
    critical_u,
    dispersion,
    episodes,
    fewest_after,
    mann_whitney_u,
    poisson_rate_ratio,
    seconds_without_any,
)


def observed(values, measure=Measure.FORKS, span=1.0) -> Series:
    values = tuple(float(value) for value in values)
    return Series(Effect(measure, "fall"), "live", 0, round(len(values) * span * 1e9), values, (span,) * len(values))


def waves(rng, count, correlation):
    """Values that resemble the ones before them."""
    values = np.empty(count)
    values[0] = rng.normal()
    for i in range(1, count):
        values[i] = correlation * values[i - 1] + math.sqrt(1 - correlation**2) * rng.normal()
    return values


def test_counts_are_compared_exactly():
    # 5 in 100 s, none in 100 s: each of the five fell into the first half by chance, 1 in 32.
    assert poisson_rate_ratio(5, 100, 0, 100, 0.01).fewer == pytest.approx(1 / 32)
    assert poisson_rate_ratio(0, 100, 5, 100, 0.01).more == pytest.approx(1 / 32)
    # Two thirds of the time lie after: (1/3)^4.
    assert poisson_rate_ratio(4, 100, 0, 200, 0.01).fewer == pytest.approx((1 / 3) ** 4)
    assert poisson_rate_ratio(0, 10, 0, 10, 0.01).fewer == 1.0


@given(st.integers(0, 60), st.integers(0, 60), st.floats(1, 1000), st.floats(1, 1000))
def test_p_values_and_bounds_of_a_ratio_agree(before, after, first, last):
    ratio = poisson_rate_ratio(before, first, after, last, 0.01)
    assert 0 <= ratio.fewer <= 1
    assert 0 <= ratio.more <= 1
    assert ratio.fewer + ratio.more >= 1 - 1e-9  # what was observed belongs to both
    assert ratio.low <= ratio.high
    if before + after:
        assert (ratio.high < 1) == (ratio.fewer < 0.01)
        assert (ratio.low > 1) == (ratio.more < 0.01)


@given(st.integers(1, 50), st.floats(1, 10_000))
def test_the_time_without_any_is_just_enough(before, seconds):
    needed = seconds_without_any(before, seconds, 0.01)
    assert poisson_rate_ratio(before, seconds, 0, needed * 1.001, 0.01).fewer <= 0.01
    assert poisson_rate_ratio(before, seconds, 0, needed * 0.99, 0.01).fewer > 0.01


@pytest.mark.parametrize(("few", "many"), [(1, 5), (2, 6), (3, 5), (4, 4), (5, 7)])
def test_the_critical_rank_is_what_counting_all_orders_gives(few, many):
    orders = list(combinations(range(few + many), few))
    sums = sorted(sum(order) - few * (few - 1) // 2 for order in orders)
    for alpha in (0.2, 0.05, 0.01):
        expected = max((u + 1 for u in range(few * many) if sum(s <= u for s in sums) <= alpha * len(sums)), default=0)
        assert critical_u(few, many, alpha) == critical_u(many, few, alpha) == expected


def test_counting_and_the_curve_agree_where_they_meet():
    assert critical_u(12, 60, 0.005) == pytest.approx(critical_u(13, 60, 0.005) * 12 / 13, rel=0.03)


def test_too_few_values_have_no_bounds():
    shift = mann_whitney_u(np.array([5.0, 6.0]), np.array([1.0, 2.0]), 0.01)
    assert not shift.bounded
    assert fewest_after(2, 0.01) == 13  # one over 15 x 14 / 2
    assert mann_whitney_u(np.array([5.0, 6.0]), np.arange(13.0) / 10, 0.01).high < 0


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_bounds_of_a_shift_are_wrong_as_seldom_as_they_say(alpha):
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(1500):
        shift = mann_whitney_u(rng.lognormal(0, 1, 6), rng.lognormal(0, 1, 25), alpha)
        wrong += shift.high < 0
    assert wrong / 1500 <= alpha * 1.5 + 0.002


def test_blocks_keep_the_mean_and_leave_out_the_rest():
    assert block_means(observed([1, 2, 3, 4, 5, 6, 7]), 3.0).tolist() == [2.0, 5.5]
    assert block_means(observed([1, 2, 3, 4, 5, 6]), 3.0).tolist() == [2.0, 5.0]
    # Spans that are a little off make as many blocks.
    assert (
        len(block_means(observed([1] * 15, span=0.999), 3.0))
        == len(block_means(observed([1] * 15, span=1.002), 3.0))
        == 5
    )
    assert len(block_means(observed([4, 4]), 30.0)) == 1


@pytest.mark.parametrize(("correlation", "low", "high"), [(0.0, 1.0, 2.0), (0.5, 2.0, 5.0), (0.9, 10.0, 35.0)])
def test_the_autocorrelation_time(correlation, low, high):
    rng = np.random.default_rng(3)
    found = [correlation_seconds(observed(100 + waves(rng, 600, correlation))) for _ in range(20)]
    assert low <= float(np.median(found)) <= high  # in truth 1, 3 and 19 s


def test_blocks_are_longer_where_seconds_resemble_each_other():
    rng = np.random.default_rng(4)
    alone = observed(100 + waves(rng, 600, 0.0))
    alike = observed(100 + waves(rng, 600, 0.9))
    assert block_seconds(alone, alone) < 8
    assert block_seconds(alike, alike) > 20
    assert block_seconds(observed([1, 2, 3] * 5), alike) == 15  # never longer than the shorter stretch


def test_spikes_that_are_close_are_one_episode():
    values = [0, 9, 9, 0, 9, 0, 0, 0, 0, 9]
    assert episodes(observed(values), 5, apart_s=3) == (2, pytest.approx(0.4))
    assert episodes(observed(values), 5, apart_s=1) == (3, pytest.approx(0.4))
    assert episodes(observed([9] * 10), 5, apart_s=3) == (1, 1.0)


def test_events_that_cluster_count_less():
    rng = np.random.default_rng(5)
    alone = observed(rng.poisson(0.2, 600), Measure.NIC_TIMEOUTS)
    crowds = observed(np.where(rng.random(600) < 0.02, 5, 0), Measure.NIC_TIMEOUTS)
    regular = observed(np.arange(600) % 5 == 0, Measure.RESTARTS)
    assert dispersion(alone) < 1.4
    assert 3.5 < dispersion(crowds) < 7
    assert dispersion(regular) == 1.0
    assert dispersion(observed([0, 0, 5, 0, 0, 0, 0, 0, 0, 0]), observed([0] * 10)) > 3


def test_a_gap_is_clear_where_it_is_wider_than_either_range():
    high, low = observed([10, 12] * 5), observed([1, 3] * 5)
    assert clear_gap(high, low) == clear_gap(low, high) == 7
    assert clear_gap(observed([4, 6] * 5), low) == 0  # a gap of 1 in a range of 2
    assert clear_gap(observed([10] * 7), low) == 0  # too few values
    assert clear_gap(observed([10] * 15), observed([1] * 60)) == 9
