"""Runs as a history, and times as engines write them."""

from dataclasses import replace

import pytest

from exhume.collect.containers.runs import Run, age_pattern, history, join_jobs, nanoseconds
from exhume.model.audit import Exit, History, Manager, Service

NANOS = 10**9
HOUR = 3600 * NANOS


def test_a_loop_of_a_day_is_counted_and_its_age_reported() -> None:
    every = 60 * NANOS
    runs = [Run(at, at + 2 * NANOS + at % NANOS, 1, failed=True) for at in range(HOUR, 25 * HOUR, every)]
    reported = history(runs, now=25 * HOUR, since=HOUR)
    assert (reported.starts, reported.failures, reported.success_rate, reported.hours) == (1440, 1440, 0.0, 24.0)
    assert reported.restarts_per_hour == pytest.approx(60, rel=0.01)
    assert len(reported.exits) == 10 and reported.exits[0].at == runs[-1].ended and reported.exits[0].code == 1
    assert reported.age_pattern == "always a few seconds old: the last 1000 runs lasted 2.0 s to 2.0 s"


@pytest.mark.parametrize("manager", [Manager.CRI, Manager.DOCKER])
def test_the_pods_of_a_job_are_one(manager: Manager) -> None:
    def pod(number: int, workload: str = "job/import") -> Service:
        past = History("runtime", 1.0, 1, 1, 0.0, (Exit(number * HOUR, number),))
        more = {"created": number * HOUR, "started": number * HOUR, "workload": workload, "history": past}
        return Service(manager, f"{number}" * 64, f"shop/import-{number}/run", **more)

    rows = [pod(2), pod(1), pod(3), pod(4, "job/other")]
    joined, other = join_jobs(rows, now=4 * HOUR)
    assert other == rows[-1]
    assert (joined.name, joined.earlier) == ("shop/import-3/run", ("shop/import-1/run", "shop/import-2/run"))
    assert joined.history is not None and (joined.history.starts, joined.history.failures) == (3, 3)
    assert [each.code for each in joined.history.exits] == [3, 2, 1]


def test_a_job_whose_newest_pod_runs_still_has_its_last_exit() -> None:
    ended, more = Exit(HOUR, 3), {"workload": "job/import"}
    first = Service(Manager.CRI, "1", "shop/import-1/run", created=HOUR, last_exit=ended, **more)
    first = replace(first, history=History("runtime", 1.0, 1, 1, 0.0, (ended,)))
    second = Service(Manager.CRI, "2", "shop/import-2/run", created=2 * HOUR, **more)
    (joined,) = join_jobs([first, second], now=3 * HOUR)
    assert (joined.id, joined.last_exit) == ("2", ended)


def test_one_that_runs_on_is_no_restart() -> None:
    reported = history([Run(HOUR)], now=3 * HOUR, since=0)
    assert (reported.starts, reported.failures, reported.restarts_per_hour, reported.exits, reported.age_pattern) == (
        1,
        0,
        0.0,
        (),
        "",
    )


def test_nothing_started_is_no_rate_of_success() -> None:
    reported = history([], now=3 * HOUR, since=0)
    assert reported.success_rate is None and reported.restarts_per_hour == 0.0


@pytest.mark.parametrize(
    ("lasted", "begins"),
    [
        ([0.1, 0.2], ""),
        ([0.1, 0.2, 0.9], "never a second old: the last 3 runs lasted 0.10 s to 0.90 s"),
        ([2.1, 3, 4.0], "always a few seconds old: the last 3 runs lasted 2.1 s to 4.0 s"),
        ([2.1, 40.0, 3.3], "never a minute old: the last 3 runs lasted 2.1 s to 40.0 s"),
        ([2, 3, 90], "never two minutes old"),
        ([3600, 3700, 3650], "ends at about the same age each time: the last 3 runs lasted 60 min to 62 min"),
        ([2, 3, 3600], "the last 3 runs lasted 2.0 s to 60 min, half of them less than 3.0 s"),
        ([5.0, 7200.0, 86400.0 * 9, 300.0], "the last 4 runs lasted 5.0 s to 9 d, half of them less than 2.0 h"),
        ([30000, 31000, 30500], "ends at about the same age each time: the last 3 runs lasted 8.3 h to 8.6 h"),
    ],
)
def test_ages_make_a_pattern(lasted: list[float], begins: str) -> None:
    reported = age_pattern(lasted)
    assert reported.startswith(begins) and bool(reported) == bool(begins)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00Z", None),
        ("2026-06-01T10:00:00.123456789Z", 1_780_308_000_123_456_789),
        ("2026-06-01T12:00:00.5+02:00", 1_780_308_000_500_000_000),
        ("2026-06-01T05:00:00-05:00", 1_780_308_000_000_000_000),
        ("", None),
        (None, None),
        ("soon.", None),
    ],
)
def test_times_of_engines(text: str | None, expected: int | None) -> None:
    assert nanoseconds(text) == expected
