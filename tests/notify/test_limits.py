"""Which incidents are diagnosed and reported."""

from itertools import pairwise

from exhume.notify.limits import (
    DIAGNOSIS_EVERY_S,
    MOST,
    MOST_PLACES,
    QUIET_S,
    REMINDER_S,
    WITHIN_S,
    DiagnosisPace,
    ReportLimits,
    TokenBucket,
)


def test_one_episode_is_reported_once():
    limits = ReportLimits()
    assert limits.admit("zombie-memcgs", 1000) == 0
    assert [limits.admit("zombie-memcgs", 1000 + 60 * n) for n in range(1, 6)] == [None] * 5


def test_after_a_quiet_time_it_is_reported_with_what_was_left_out():
    limits = ReportLimits()
    limits.admit("rt-hog", 0)
    limits.admit("rt-hog", 100)
    assert limits.admit("rt-hog", 100 + QUIET_S) == 1
    assert limits.admit("rt-hog", 100 + 3 * QUIET_S) == 0


def test_trouble_that_goes_on_is_repeated_now_and_then():
    limits = ReportLimits()
    reported = [now for now in range(0, 8000, 60) if limits.admit("rt-hog", now) is not None]
    assert len(reported) == 3
    assert reported[1] >= REMINDER_S


def test_all_causes_together_are_bounded():
    limits = ReportLimits()
    assert sum(limits.admit(f"cause-{n}", 1000) is not None for n in range(50)) == MOST
    assert limits.admit("another", 1000 + WITHIN_S) == 0


def test_a_token_bucket_says_how_long_to_wait():
    bucket = TokenBucket(2, 60)
    assert bucket.take(1000) and bucket.take(1000) and not bucket.take(1000)
    assert bucket.wait_s(1000) == 60
    assert bucket.wait_s(1030) == 30
    assert bucket.take(1060)


def diagnosed(pace, seconds, cause=lambda now: "softirq-storm", place=lambda now: 3):
    """When marks, one each of these seconds, are diagnosed."""
    found = []
    for now in seconds:
        marks = [("core", place(now))]
        if pace.due(marks, now):
            pace.diagnosed(marks, cause(now), now)
            found.append(now)
    return found


def test_trouble_that_goes_on_is_diagnosed_ever_later():
    found = diagnosed(DiagnosisPace(), range(0, 4 * 3600, 30))
    assert found[:6] == [0, 60, 180, 420, 900, 1860]
    pauses = [after - before for before, after in pairwise(found)]
    assert pauses[-2:] == [REMINDER_S, REMINDER_S]


def test_another_cause_has_its_own_pauses():
    def cause(now):
        return "rt-hog" if now >= 420 else "softirq-storm"

    found = diagnosed(DiagnosisPace(), range(0, 1200, 30), cause)
    assert found == [0, 60, 180, 420, 480, 600, 840]


def test_what_was_quiet_is_new():
    seconds = [0, 30, 30 + QUIET_S, 90 + QUIET_S]
    assert diagnosed(DiagnosisPace(), seconds) == [0, 30 + QUIET_S, 90 + QUIET_S]


def test_other_places_are_looked_at_up_to_a_bound():
    found = diagnosed(DiagnosisPace(), range(int(DIAGNOSIS_EVERY_S)), place=lambda now: now)
    assert found == list(range(MOST_PLACES))


def test_another_trigger_is_due_at_once_and_has_its_own_cause():
    pace = DiagnosisPace()
    assert pace.due([("core", 3)], 100)
    pace.diagnosed([("core", 3)], "rt-hog", 100)
    assert not pace.due([("core", 3)], 110)
    assert pace.due([("core", 3), ("nic-reset", "eth0")], 111)
    assert (pace.cause_of("core"), pace.cause_of("nic-reset")) == ("rt-hog", None)


def test_what_goes_on_without_a_diagnosis_is_no_new_episode():
    limits = ReportLimits()
    limits.admit("rt-hog", 0)
    for now in range(60, 900, 60):
        limits.repeat("rt-hog", now)
    assert limits.admit("rt-hog", 900) is None
    assert limits.admit("rt-hog", 900 + QUIET_S) == 15
