"""The statistics behind a verdict, against counting by hand and tables."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.model.remedy import Effect, Measure
from exhume.remedy.verify.blocks import block_seconds, blocks, bursts, crowding, memory_s, share_above
from exhume.remedy.verify.observed import Observed
from exhume.remedy.verify.poisson import chance_of_as_few, chance_of_as_many, ratio_bounds, seconds_to_see_none
from exhume.remedy.verify.ranks import critical, fewest_after, shift_between
from exhume.remedy.verify.spread import ratio_shift, student


def observed(values, measure=Measure.FORKS, span=1.0) -> Observed:
    values = tuple(float(value) for value in values)
    return Observed(Effect(measure, "fall"), "live", 0, round(len(values) * span * 1e9), values, (span,) * len(values))


def waves(rng, count, likeness):
    """Values that resemble the ones before them."""
    values = np.empty(count)
    values[0] = rng.normal()
    for i in range(1, count):
        values[i] = likeness * values[i - 1] + math.sqrt(1 - likeness**2) * rng.normal()
    return values


def test_counts_are_compared_exactly():
    # 5 in 100 s, none in 100 s: each of the five fell into the first half by chance, 1 in 32.
    assert chance_of_as_few(5, 100, 0, 100) == pytest.approx(1 / 32)
    assert chance_of_as_many(0, 100, 5, 100) == pytest.approx(1 / 32)
    # Two thirds of the time lie after: (1/3)^4.
    assert chance_of_as_few(4, 100, 0, 200) == pytest.approx((1 / 3) ** 4)
    assert chance_of_as_few(0, 10, 0, 10) == 1.0


@given(st.integers(0, 40), st.integers(0, 40), st.floats(1, 1000), st.floats(1, 1000))
def test_chances_are_chances_and_cover_all(before, after, first, last):
    few, many = chance_of_as_few(before, first, after, last), chance_of_as_many(before, first, after, last)
    assert 0 <= few <= 1
    assert 0 <= many <= 1
    assert few + many >= 1 - 1e-9  # what was seen belongs to both


@given(st.integers(0, 60), st.integers(0, 60), st.floats(1, 1000), st.floats(1, 1000))
def test_bounds_of_a_ratio_agree_with_the_chances(before, after, first, last):
    low, high = ratio_bounds(before, first, after, last, 0.01)
    assert low <= high
    if before + after:
        assert (high < 1) == (chance_of_as_few(before, first, after, last) < 0.01)
        assert (low > 1) == (chance_of_as_many(before, first, after, last) < 0.01)


@given(st.integers(1, 50), st.floats(1, 10_000))
def test_the_time_to_see_none_is_just_enough(before, seconds):
    needed = seconds_to_see_none(before, seconds, 0.01)
    assert chance_of_as_few(before, seconds, 0, needed * 1.001) <= 0.01
    assert chance_of_as_few(before, seconds, 0, needed * 0.99) > 0.01


@pytest.mark.parametrize(("few", "many"), [(1, 5), (2, 6), (3, 5), (4, 4), (5, 7)])
def test_the_critical_rank_is_what_counting_all_orders_gives(few, many):
    orders = list(combinations(range(few + many), few))
    sums = sorted(sum(order) - few * (few - 1) // 2 for order in orders)
    for doubt in (0.2, 0.05, 0.01):
        expected = max((u + 1 for u in range(few * many) if sum(s <= u for s in sums) <= doubt * len(sums)), default=0)
        assert critical(few, many, doubt) == critical(many, few, doubt) == expected


def test_counting_and_the_curve_agree_where_they_meet():
    assert critical(12, 60, 0.005) == pytest.approx(critical(13, 60, 0.005) * 12 / 13, rel=0.03)


def test_too_few_values_have_no_bounds():
    shift = shift_between(np.array([5.0, 6.0]), np.array([1.0, 2.0]), 0.01)
    assert not shift.bounded
    assert fewest_after(2, 0.01) == 13  # one over 15 x 14 / 2
    assert shift_between(np.array([5.0, 6.0]), np.arange(13.0) / 10, 0.01).high < 0


@pytest.mark.parametrize("doubt", [0.05, 0.01])
def test_bounds_of_a_shift_are_wrong_as_seldom_as_they_say(doubt):
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(1500):
        shift = shift_between(rng.lognormal(0, 1, 6), rng.lognormal(0, 1, 25), doubt)
        wrong += shift.high < 0
    assert wrong / 1500 <= doubt * 1.5 + 0.002


@pytest.mark.parametrize(
    ("freedom", "doubt", "value"),
    [
        (1, 0.005, 63.657),
        (2, 0.005, 9.925),
        (4, 0.0025, 5.598),
        (10, 0.01, 2.764),
        (30, 0.005, 2.750),
        (200, 0.01, 2.345),
    ],
)
def test_student_s_table(freedom, doubt, value):
    assert student(freedom, doubt) == pytest.approx(value, abs=0.001)


def test_a_spread_of_one_value_says_nothing():
    values = np.array([1000.0] * 15)
    assert not ratio_shift(values, values / 100, 1 / 15, 20, 0.01).bounded
    assert math.exp(ratio_shift(values, values / 100, 1.0, 1.0, 0.01).high) < 0.02


def test_blocks_keep_the_mean_and_leave_out_the_rest():
    assert blocks(observed([1, 2, 3, 4, 5, 6, 7]), 3.0).tolist() == [2.0, 5.5]
    assert blocks(observed([1, 2, 3, 4, 5, 6]), 3.0).tolist() == [2.0, 5.0]
    # Spans that are a little off make as many blocks.
    assert len(blocks(observed([1] * 15, span=0.999), 3.0)) == len(blocks(observed([1] * 15, span=1.002), 3.0)) == 5
    assert len(blocks(observed([4, 4]), 30.0)) == 1


@pytest.mark.parametrize(("likeness", "low", "high"), [(0.0, 1.0, 2.0), (0.5, 2.0, 5.0), (0.9, 10.0, 35.0)])
def test_how_long_a_second_shows(likeness, low, high):
    rng = np.random.default_rng(3)
    found = [memory_s(observed(100 + waves(rng, 600, likeness))) for _ in range(20)]
    assert low <= float(np.median(found)) <= high  # in truth 1, 3 and 19 s


def test_blocks_are_longer_where_seconds_resemble_each_other():
    rng = np.random.default_rng(4)
    alone = observed(100 + waves(rng, 600, 0.0))
    alike = observed(100 + waves(rng, 600, 0.9))
    assert block_seconds(alone, alone) < 8
    assert block_seconds(alike, alike) > 20
    assert block_seconds(observed([1, 2, 3] * 5), alike) == 15  # never longer than the shorter stretch


def test_bursts_that_are_close_are_one():
    values = [0, 9, 9, 0, 9, 0, 0, 0, 0, 9]
    assert bursts(observed(values), 5, apart_s=3) == 2
    assert bursts(observed(values), 5, apart_s=1) == 3
    assert bursts(observed([9] * 10), 5, apart_s=3) == 1
    assert share_above(observed(values), 5) == pytest.approx(0.4)


def test_what_crowds_together_counts_less():
    rng = np.random.default_rng(5)
    alone = observed(rng.poisson(0.2, 600), Measure.NIC_TIMEOUTS)
    crowds = observed(np.where(rng.random(600) < 0.02, 5, 0), Measure.NIC_TIMEOUTS)
    regular = observed(np.arange(600) % 5 == 0, Measure.RESTARTS)
    assert crowding(alone) < 1.4
    assert 3.5 < crowding(crowds) < 7
    assert crowding(regular) == 1.0
    assert crowding(observed([0, 0, 5, 0, 0, 0, 0, 0, 0, 0]), observed([0] * 10)) > 3
