"""Which incidents are reported."""

from exhume.notify.limits import MOST, QUIET_S, REMINDER_S, WITHIN_S, ReportLimits, TokenBucket


def test_one_episode_is_reported_once():
    limits = ReportLimits()
    assert limits.admit("zombie-memcgs", 1000) == 0
    assert [limits.admit("zombie-memcgs", 1000 + 60 * n) for n in range(1, 6)] == [None] * 5
    assert limits.suppressed == 5


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
