"""What the bench says about the size from which on two Ray workers gain what they must."""

import pytest
from bench.fleet_report import MUST, RayTimes, days_needed, ray_rows


def times(days: int, fixed: float, shared: float) -> RayTimes:
    """Some seconds are fixed, and some a day shared by the workers."""
    return RayTimes(days, fixed + shared * days, fixed + shared * days / 2, fixed)


def test_the_size_follows_from_what_is_fixed():
    # 2 + d / 2 is two thirds of 2 + d at 4 days.
    small, big = times(2, 2.0, 1.0), times(42, 2.0, 1.0)
    assert days_needed(small, big) == pytest.approx(4.0)
    assert times(4, 2.0, 1.0).ratio == pytest.approx(MUST)
    assert days_needed(times(7, 0.0, 1.0), times(42, 0.0, 1.0)) == 0.0


def test_two_workers_that_gain_too_little_never_reach_it():
    assert days_needed(RayTimes(7, 10.0, 9.0, 1.0), RayTimes(42, 50.0, 45.0, 1.0)) is None


def test_the_bound_is_of_the_big_lake_alone():
    rows = ray_rows(times(7, 4.0, 0.5), times(42, 4.0, 0.5))
    bound = [row for row in rows if row.must is not None]
    assert [row.measure for row in bound] == ["fleet report on Ray, 2 workers / 1, 42 days"] and not bound[0].missed
    small = next(row for row in rows if row.measure == "fleet report on Ray, 2 workers / 1, 7 days")
    assert small.measured > MUST and "53%" in small.note and "16 days" in small.note
    slow = ray_rows(times(7, 40.0, 0.5), times(42, 40.0, 0.5))
    assert slow[0].missed
