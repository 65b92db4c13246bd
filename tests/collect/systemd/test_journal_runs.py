"""How long a unit ran and since when it fails, as a journal that begins in the middle of its life can tell it."""

import time

import pytest

from exhume.collect.systemd.journal import Journal, Past

NOW = time.time()


@pytest.fixture(autouse=True)
def the_clock_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes from writing down a past to asking for it."""
    monkeypatch.setattr(time, "time", lambda: NOW)


def ago(seconds: float) -> int:
    return round((NOW - seconds) * 1e9)


def test_a_run_that_is_older_than_the_journal_lasted_from_its_beginning_at_least():
    """Up when the journal begins two hours ago, it ended a minute ago, and fails since."""
    past = Past(lasted_s=[1.0, 2.0], failed_at=[ago(60), ago(5)], older_end=ago(60))
    reported = Journal({"a.service": past}, hours=2.0).history("a.service")
    assert reported is not None
    assert reported.longest_s == pytest.approx(7140, abs=1) and reported.failing_s == pytest.approx(60, abs=1)


def test_a_loop_that_is_older_than_the_journal_never_ran_for_long():
    past = Past(lasted_s=[1.0, 2.0], failed_at=[ago(7198), ago(5)], older_end=ago(7198))
    reported = Journal({"a.service": past}, hours=2.0).history("a.service")
    assert reported is not None
    assert reported.longest_s == pytest.approx(2.0, abs=1) and reported.failing_s == pytest.approx(7198, abs=1)


def test_of_what_never_ended_nothing_is_reported():
    reported = Journal(hours=2.0).history("a.service")
    assert reported is not None and (reported.longest_s, reported.failing_s) == (None, None)
