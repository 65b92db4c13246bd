"""Bounded series: the busiest of many names, and counters that never go back."""

from hypothesis import given
from hypothesis import strategies as st
from tests.parts import examples

from exhume.present.metrics.families import DYING, OTHER
from exhume.present.metrics.values import Ranking, Series


def test_a_gauge_that_is_unknown_has_no_series() -> None:
    series = Series(DYING)
    series.set(5, "memory")
    assert series.read() == [(("memory",), 5)]
    series.set(None, "memory")
    assert series.read() == []


def test_past_their_number_series_are_counted_as_other() -> None:
    series = Series(DYING, most=3)
    for name in "abcde":
        series.add(1, name)
    series.add(1, "a")
    assert series.read() == [(("a",), 2), (("b",), 1), (("c",), 1), ((OTHER,), 2)]


def test_twenty_names_are_exposed_and_the_rest_is_other() -> None:
    ranking = Ranking(width=1, labels=1)
    for number in range(100):
        ranking.add((1,), 1, f"name-{number}")
    found = ranking.read(0)
    assert len(found) == 21
    assert found[-1] == ((OTHER,), 80)


def test_what_becomes_busy_is_exposed_instead_of_what_is_idle() -> None:
    ranking = Ranking(width=1, labels=1, most=2)
    for name in ("a", "b", "c"):
        ranking.add((1,), 1, name)
    for _ in range(5):
        ranking.add((1,), 1, "c")
    assert dict(ranking.read(0)) == {("a",): 1, ("b",): 1, (OTHER,): 6}
    ranking.review()
    ranking.add((1,), 1, "c")
    exposed = dict(ranking.read(0))
    # What it counted before it was exposed stays part of the rest.
    assert exposed[("c",)] == 1
    assert exposed[(OTHER,)] == 6
    assert len(exposed) == 3


def test_the_names_that_are_remembered_are_bounded() -> None:
    ranking = Ranking(width=2, labels=1)
    for number in range(10_000):
        ranking.add((1, 0), 1, f"name-{number}")
        if number % 100 == 0:
            ranking.review()
    assert len(ranking._recent) <= 513
    assert len(ranking._totals) <= 513


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=300))
def test_no_exposed_counter_ever_goes_back(counts: list[tuple[int, int]]) -> None:
    ranking = Ranking(width=1, labels=1, most=4, known=64)
    seen: dict[tuple[str, ...], float] = {}
    total = 0
    for place, (name, amount) in enumerate(counts):
        ranking.add((amount,), amount, f"name-{name}")
        total += amount
        if place % 7 == 6:
            ranking.review()
        now = dict(ranking.read(0))
        assert len(now) <= 5
        assert all(value >= seen.get(labels, 0) for labels, value in now.items())
        seen |= now
    # Nothing is lost: what was exposed once, and the rest, is all that was counted.
    assert sum(seen.values()) == total
