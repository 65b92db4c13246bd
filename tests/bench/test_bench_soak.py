"""What `make soak` concludes from the minutes that it watched."""

from bench.soak import MINUTES, SETTLING_MINUTES, Minute, soak_rows


def verdicts(passed: list[Minute], lost: int = 0) -> dict[str, str]:
    return {row.measure: row.verdict for row in soak_rows(passed, lost)}


def test_two_hours_that_stay_flat() -> None:
    assert MINUTES == 120
    # The first minutes fill caches: that is no trend.
    passed = [Minute(70.0 + min(minute, SETTLING_MINUTES), 60, 1.0) for minute in range(MINUTES)]
    assert set(verdicts(passed).values()) == {"aim met"}


def test_a_leak_is_missed() -> None:
    passed = [Minute(80.0 + minute * 0.6 / 60, 60, 1.0) for minute in range(MINUTES)]
    row = soak_rows(passed, 0)[0]
    assert round(row.measured, 3) == 0.6
    assert row.missed


def test_files_and_losses() -> None:
    passed = [Minute(80.0, 60 + minute // 100, 1.0) for minute in range(MINUTES)]
    found = verdicts(passed, lost=1)
    assert found["open files, the last minute above the first"] == "MISSED"
    assert found["rows and samples lost"] == "MISSED"


def test_a_short_run_says_that_its_trend_is_no_figure() -> None:
    assert soak_rows([Minute(80.0, 60, 1.0)] * 5, 0)[0].note
    assert not soak_rows([Minute(80.0, 60, 1.0)] * MINUTES, 0)[0].note
