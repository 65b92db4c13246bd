"""The recorder's budget: lowered by halves to a floor, raised again, and never swinging."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.collect.budget import AVERAGED_TICKS, LOWEST_HZ, SETTLING_TICKS, Budget

SHARE = 0.08


def run(budget: Budget, costs: list[float], seconds: float = 1.0) -> list[int]:
    """The rates that the budget asks for, when ticks cost this share of a core."""
    changes = [budget.observe(cost * seconds, seconds) for cost in costs]
    return [change.rate_hz for change in changes if change]


def settled(rate_hz: int = 97) -> Budget:
    budget = Budget(SHARE, rate_hz)
    assert run(budget, [5.0] * SETTLING_TICKS) == [], "the first seconds say nothing"
    return budget


def test_far_too_dear_goes_down_by_halves_to_the_floor_and_stays_there() -> None:
    assert run(settled(), [1.0] * 20 * AVERAGED_TICKS) == [48, 24, 12, LOWEST_HZ]


def test_when_cheap_again_the_rate_returns_to_the_requested_one() -> None:
    budget = settled()
    run(budget, [1.0] * 4 * AVERAGED_TICKS)
    assert run(budget, [0.001] * 20 * AVERAGED_TICKS) == [22, 44, 88, 97]


def test_a_change_takes_a_whole_average() -> None:
    budget = settled()
    assert run(budget, [1.0] * (AVERAGED_TICKS - 1)) == []
    assert run(budget, [1.0]) == [48]
    assert run(budget, [1.0] * (AVERAGED_TICKS - 1)) == []


def test_a_short_burst_is_borne() -> None:
    budget = settled()
    assert run(budget, [0.01] * AVERAGED_TICKS + [0.5] * 4 + [0.01] * AVERAGED_TICKS) == []


@pytest.mark.parametrize("share", [0.033, 0.05, 0.079])
def test_within_the_budget_but_not_well_within_it_nothing_changes(share) -> None:
    budget = settled()
    run(budget, [0.2] * AVERAGED_TICKS)
    assert run(budget, [share] * 10 * AVERAGED_TICKS) == []


def test_a_rate_below_the_floor_is_left_alone() -> None:
    assert run(settled(5), [1.0] * 5 * AVERAGED_TICKS) == []


def test_long_ticks_count_by_their_length() -> None:
    assert run(settled(), [0.05] * 2 * AVERAGED_TICKS, seconds=3.0) == []
    assert run(settled(), [0.1] * AVERAGED_TICKS, seconds=3.0) == [48]


@given(st.floats(0, 0.05), st.floats(0, 0.02), st.integers(11, 5000))
def test_a_steady_load_never_makes_it_swing(fixed, by_hertz, wanted) -> None:
    """What a tick costs is a fixed part and one that goes with the rate: under such a load the rate falls or stays."""
    budget = settled(wanted)
    rate, rates = wanted, [wanted]
    for _ in range(15 * AVERAGED_TICKS):
        change = budget.observe(fixed + by_hertz * rate, 1.0)
        if change:
            rate = change.rate_hz
            rates.append(rate)
    assert rates == sorted(rates, reverse=True)
    assert rate >= min(wanted, LOWEST_HZ)
    assert fixed + by_hertz * rate <= SHARE or rate == LOWEST_HZ


def test_the_reason_is_reported() -> None:
    budget = settled()
    for _ in range(AVERAGED_TICKS - 1):
        budget.observe(0.2, 1.0)
    change = budget.observe(0.2, 1.0)
    assert change.reason == (
        "the recorder used 20.0% of one core, over its budget of 8.0%: sampling at 48 Hz instead of 97 Hz"
    )
