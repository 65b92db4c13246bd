"""Recorded births, removals and ends of cgroups, paired."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.diagnose.facts.leaks import COLUMNS, LeakReport, find_leakers
from exhume.model.clock import MILLIS, NANOS

HOUR = 3600 * NANOS


def columns(*rows: tuple) -> dict[str, list]:
    return {name: [row[index] for row in rows] for index, name in enumerate(COLUMNS)}


def life(number: int, path: str, born: int, removed: int | None = None, released: int | None = None) -> list[tuple]:
    rows = [(born, "mkdir", number, path, 100 + number, "runc")]
    if removed is not None:
        rows.append((removed, "rmdir", number, path, 200, "runc"))
    if released is not None:
        rows.append((released, "release", number, path, 7, "kworker/0:1"))
    return rows


def leaks(*rows: tuple, now: int = 10 * HOUR, counts: Sequence[tuple[int, int]] = ()) -> LeakReport:
    return find_leakers(columns(*sorted(rows)), now, counts)


def test_removed_and_never_released_is_a_zombie() -> None:
    report = leaks(
        *life(1, "/docker/" + "a1" * 32, 0, NANOS),
        *life(2, "/docker/" + "b2" * 32, HOUR, HOUR + NANOS),
        *life(3, "/docker/" + "c3" * 32, 2 * HOUR, 2 * HOUR + NANOS),
        *life(4, "/docker/" + "d4" * 32, 3 * HOUR, 3 * HOUR, 3 * HOUR + 40 * MILLIS),  # a clean end
        *life(5, "/docker/" + "e5" * 32, 4 * HOUR),  # alive
    )
    (leaker,) = report.leakers
    assert leaker.pattern == "/docker/*"
    assert (leaker.zombies, leaker.made, report.zombies, report.made) == (3, 5, 3, 5)
    assert leaker.per_hour == 1.0
    assert (leaker.first, leaker.last) == (NANOS, 2 * HOUR + NANOS)
    assert leaker.creators == [("runc", 3)]
    assert leaker.lives[-1].pid == 103


@pytest.mark.slow
def test_seventy_thousand_are_one_line() -> None:
    rows = [row for n in range(70_000) for row in life(n, f"/docker/{n:064x}", n * NANOS, n * NANOS + 3 * MILLIS)]
    report = find_leakers(columns(*rows), 100_000 * NANOS)
    assert [(leaker.pattern, leaker.zombies) for leaker in report.leakers] == [("/docker/*", 70_000)]


def test_a_removal_is_given_two_seconds() -> None:
    rows = life(1, "/a", 0, HOUR)
    assert leaks(*rows, now=HOUR + 2 * NANOS - 1).leakers == []
    assert leaks(*rows, now=HOUR + 2 * NANOS).zombies == 1


def test_one_that_was_made_before_the_recording_is_named_without_its_maker() -> None:
    (leaker,) = leaks((HOUR, "rmdir", 9, "/old", 4, "systemd")).leakers
    assert (leaker.pattern, leaker.made, leaker.creators) == ("/old", 0, [])
    assert leaker.lives[0].born is None
    assert leaker.per_hour is None


def test_a_late_release_frees_it() -> None:
    assert leaks(*life(1, "/a", 0, NANOS, HOUR)).leakers == []


def test_rows_that_only_count_are_passed_over() -> None:
    assert leaks((HOUR, "churn", None, None, None, None)) == LeakReport()


def test_releases_that_were_not_recorded_are_known_by_the_counts() -> None:
    """Two thousand are freed at once, of which ten releases were kept; then another leak begins."""
    freed = [row for n in range(2000) for row in life(n, f"/docker/{n}", n * NANOS, n * NANOS)]
    kept = [(3000 * NANOS, "release", n, f"/docker/{n}", 7, "kworker/0:1") for n in range(10)]
    again = [row for n in range(5000, 5040) for row in life(n, f"/jobs/{n}", n * NANOS, n * NANOS)]
    counts = [(2990 * NANOS, 2000), (3010 * NANOS, 3), (5020 * NANOS, 23), (6000 * NANOS, 43)]
    report = leaks(*freed, *kept, *again, counts=counts)
    assert [(each.pattern, each.zombies) for each in report.leakers] == [("/jobs/*", 40), ("/docker/*", 3)]
    assert (report.zombies, report.unseen) == (43, 1987)
    assert [life.path for life in report.leakers[1].lives] == [f"/docker/{n}" for n in (1997, 1998, 1999)]


def test_what_is_being_removed_at_a_count_displaces_no_zombie() -> None:
    """A release comes some 40 ms after the removal: a count in between is that of the others."""
    zombies = [row for n in range(5) for row in life(n, f"/docker/{n}", 0, NANOS)]
    busy = [
        row for n in range(10, 60) for row in life(n, f"/ok/{n}", 99 * NANOS, 100 * NANOS, 100 * NANOS + 40 * MILLIS)
    ]
    report = leaks(*zombies, *busy, counts=[(100 * NANOS, 5), (100 * NANOS + 20 * MILLIS, 5)])
    assert (report.zombies, report.unseen) == (5, 0)


def test_those_with_the_most_come_first() -> None:
    rows = [row for n in range(3) for row in life(n, f"/few/{n}", 0, NANOS)]
    rows += [row for n in range(10, 15) for row in life(n, f"/more/{n}", 0, NANOS)]
    assert [leaker.pattern for leaker in leaks(*rows).leakers] == ["/more/*", "/few/*"]


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["mkdir", "rmdir", "release"])), max_size=60))
def test_whatever_was_lost_no_more_zombies_than_removals(events: list[tuple[int, str]]) -> None:
    rows = [(at * NANOS, op, number, f"/p/{number}", 1, "x") for at, (number, op) in enumerate(events)]
    report = find_leakers(columns(*rows), HOUR)
    removed = {number for number, op in events if op == "rmdir"}
    assert report.zombies <= len(removed)
    assert report.zombies == sum(leaker.zombies for leaker in report.leakers)


def test_a_leak_that_ended_is_known_by_how_long_nothing_came() -> None:
    fast = [row for n in range(40) for row in life(n, f"/jobs/{n}", n * NANOS, n * NANOS + MILLIS)]
    (leaker,) = leaks(*fast, now=60 * NANOS).leakers
    assert leaker.ended_ago(60 * NANOS) is None
    assert leaker.ended_ago(100 * NANOS) == pytest.approx(61, abs=0.1)
    # One that leaks every ten minutes may do so again.
    slow = [row for n in range(6) for row in life(n, f"/jobs/{n}", n * HOUR // 6, n * HOUR // 6 + MILLIS)]
    (leaker,) = leaks(*slow).leakers
    assert leaker.ended_ago(leaker.last + HOUR // 4) is None
    assert leaker.ended_ago(leaker.last + HOUR // 2) == 1800
