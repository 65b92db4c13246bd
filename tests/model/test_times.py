"""The time grammar: what people write, what it means, and what is refused."""

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.model.clock import NANOS
from exhume.model.errors import UsageError
from exhume.model.times import (
    Reference,
    format_clock,
    format_moment,
    parse_duration,
    parse_moment,
    parse_range,
    parse_size,
    parse_window,
)

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp()) * NANOS


END = at("2026-03-01T12:00:30+00:00")
START = END - 3600 * NANOS
REFERENCE = Reference(now=END + 60 * NANOS, earliest=START, latest=END, zone=UTC)
moments = st.integers(min_value=0, max_value=4_000_000_000 * NANOS)
zones = st.sampled_from([UTC, BERLIN, ZoneInfo("America/St_Johns"), timezone(timedelta(hours=-9, minutes=-30))])


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2026-03-01T03:14:07Z", at("2026-03-01T03:14:07+00:00")),
        ("2026-03-01t03:14:07z", at("2026-03-01T03:14:07+00:00")),
        ("2026-03-01T03:14:07.000000001Z", at("2026-03-01T03:14:07+00:00") + 1),
        ("2026-03-01T03:14:07.5+02:00", at("2026-03-01T01:14:07+00:00") + NANOS // 2),
        ("2026-03-01 03:14:07", at("2026-03-01T03:14:07+00:00")),
        ("2026-03-01 03:14", at("2026-03-01T03:14:00+00:00")),
        ("12:00:30", END),
        ("12:00:31", END + NANOS - 86400 * NANOS),
        ("3:14", at("2026-03-01T03:14:00+00:00")),
        ("10m ago", END - 540 * NANOS),
        ("1h30m ago", END - 5340 * NANOS),
        ("@1772334847", 1772334847 * NANOS),
        ("@1772334847.25", 1772334847 * NANOS + NANOS // 4),
        ("now", END + 60 * NANOS),
        ("  12:00:30 ", END),
    ],
)
def test_forms(written, meant):
    assert parse_moment(written, REFERENCE) == meant


@pytest.mark.parametrize(
    "written",
    ["", "yesterday", "25:00", "12:60", "12:00:60", "2026-02-30T00:00:00Z", "2026-13-01 00:00", "@", "@-5", "@1e9",
     "10 ago", "ago", "12:00:00+25:00", "12", "0000-01-01 00:00", "٣:١٤", "10m ago ago"],
)  # fmt: skip
def test_nonsense_is_one_sentence(written):
    with pytest.raises(UsageError) as raised:
        parse_moment(written, REFERENCE)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) > 20


def test_local_times_are_read_in_the_local_zone_and_z_in_utc():
    local = Reference(now=END, earliest=START, latest=END, zone=BERLIN)
    assert parse_moment("13:00:30", local) == END
    assert parse_moment("12:00:30Z", local) == END


def test_a_time_that_clocks_show_twice_is_the_later_one():
    end = at("2026-10-25T12:00:00+01:00")
    reference = Reference(now=end, earliest=end, latest=end, zone=BERLIN)
    assert parse_moment("02:30", reference) == at("2026-10-25T02:30:00+01:00")
    between = Reference(now=end, earliest=end, latest=at("2026-10-25T02:45:00+02:00"), zone=BERLIN)
    assert parse_moment("02:30", between) == at("2026-10-25T02:30:00+02:00")


def test_a_time_that_clocks_skipped_is_of_the_day_before():
    end = at("2026-03-29T12:00:00+02:00")
    reference = Reference(now=end, earliest=end, latest=end, zone=BERLIN)
    assert parse_moment("02:30", reference) == at("2026-03-28T02:30:00+01:00")


def test_a_window_whose_end_lies_past_the_recording_stays_on_its_day():
    since, until = parse_window("12:00:00", "12:01:00", REFERENCE)
    assert (since, until) == (END - 30 * NANOS, END + 30 * NANOS)


def test_a_window_across_midnight():
    since, until = parse_window("23:59:50", "00:00:10", REFERENCE)
    assert until == at("2026-03-01T00:00:10+00:00")
    assert since == until - 20 * NANOS


def test_an_end_alone():
    assert parse_window(None, "11:30", REFERENCE) == (None, at("2026-03-01T11:30:00+00:00"))
    assert parse_window(None, "12:05", REFERENCE) == (None, at("2026-03-01T12:05:00+00:00"))


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("18:20", "18:10"),
        ("18:20:00", "18:19:59.5"),
        ("18:20Z", "18:10Z"),
        ("2026-03-01T18:20:00Z", "18:10"),
        ("@1772389200", "18:10"),
        ("30m ago", "18:10"),
    ],
)
def test_an_end_before_the_begin_on_the_last_day_is_refused(since, until):
    # Recorded until 19:00 of 2026-03-01; 18:20 is @1772389200.
    latest = 1_772_391_600 * NANOS
    reference = Reference(now=latest, earliest=latest - 3600 * NANOS, latest=latest, zone=UTC)
    with pytest.raises(UsageError, match="before it begins"):
        parse_window(since, until, reference)


def test_a_window_that_is_most_of_a_day_around_the_recording_is_reversed():
    # Recorded from 18:00 to 18:03: 18:20 was the day before, and 18:10 is to come.
    begin = 1_772_388_000 * NANOS
    reference = Reference(now=begin, earliest=begin, latest=begin + 180 * NANOS, zone=UTC)
    with pytest.raises(UsageError, match="before it begins"):
        parse_window("18:20", "18:10", reference)
    assert parse_window("06:00", "18:10", reference) == (begin - 12 * 3600 * NANOS, begin + 600 * NANOS)
    assert parse_window("23:50", "18:01", reference)[1] == begin + 60 * NANOS


def test_an_end_after_midnight_is_not_reversed():
    # Recorded until 00:05.
    latest = (1_772_391_600 + 5 * 3600 + 300) * NANOS
    reference = Reference(now=latest, earliest=latest - 3600 * NANOS, latest=latest, zone=UTC)
    since, until = parse_window("23:50", "00:10", reference)
    assert (latest - since, until - latest) == (15 * 60 * NANOS, 5 * 60 * NANOS)


def test_a_reversed_window_is_refused():
    with pytest.raises(UsageError, match="before it begins"):
        parse_window("now", "10m ago", REFERENCE)


def test_ranges():
    assert parse_range("12:00:00..12:00:10", REFERENCE) == (END - 30 * NANOS, END - 20 * NANOS)
    assert parse_range("12:00:00..", REFERENCE) == (END - 30 * NANOS, None)
    assert parse_range("..12:00:00", REFERENCE) == (None, END - 30 * NANOS)
    assert parse_range("20m ago .. 10m ago", REFERENCE) == (END - 1140 * NANOS, END - 540 * NANOS)
    for nonsense in ("12:00:00", "..", "", "12:00..x"):
        with pytest.raises(UsageError):
            parse_range(nonsense, REFERENCE)


@settings(deadline=None)
@given(moments, zones)
def test_what_is_shown_can_be_written_back(moment, zone):
    assert parse_moment(format_moment(moment, zone), REFERENCE) == moment


@settings(deadline=None)
@given(moments, zones)
def test_the_time_of_day_of_a_moment_leads_back_to_it(moment, zone):
    reference = Reference(now=moment, earliest=moment, latest=moment, zone=zone)
    assert parse_moment(format_clock(moment, zone, digits=9), reference) == moment


@settings(deadline=None)
@given(moments, moments, zones)
def test_a_time_of_day_is_never_after_the_end_nor_over_two_days_before_it(shown, end, zone):
    reference = Reference(now=end, earliest=end, latest=end, zone=zone)
    found = parse_moment(format_clock(shown, zone), reference)
    assert end - 2 * 86400 * NANOS < found <= end


@settings(deadline=None)
@given(moments, moments, moments, zones)
def test_a_window_of_two_times_of_day_is_ordered_and_under_two_days(first, second, end, zone):
    reference = Reference(now=end, earliest=end, latest=end, zone=zone)
    begin, finish = format_clock(first, zone), format_clock(second, zone)
    try:
        since, until = parse_window(begin, finish, reference)
    except UsageError:
        # Refused only where the end would be on a day after the last recorded one. Clocks that go back show a later
        # time first.
        assert finish < begin or zone is not UTC
        return
    assert since <= end
    assert 0 <= until - since < 2 * 86400 * NANOS


@settings(deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_a_moment_or_a_usage_error(text):
    try:
        assert isinstance(parse_moment(text, REFERENCE), int)
    except UsageError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("60s", 60), ("10m", 600), ("2h", 7200), ("7d", 604800), ("1h30m", 5400), ("1.5h", 5400), ("0s", 0), (" 5s ", 5)],
)
def test_durations(written, seconds):
    assert parse_duration(written) == seconds * NANOS


@settings(deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(["ns", "us", "ms", "s", "m", "h", "d"]))
def test_durations_scale(count, unit):
    assert parse_duration(f"{count}{unit}") == count * parse_duration(f"1{unit}")


@pytest.mark.parametrize("written", ["", "60", "s", "10 m", "-5s", "1e3s", "5w", "1..5s", "٣s", "9" * 5000 + "s"])
def test_durations_refused(written):
    with pytest.raises(UsageError, match="not a duration"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("5G", 5 << 30),
        ("512M", 512 << 20),
        ("1.5GiB", 3 << 29),
        ("4096", 4096),
        ("1k", 1024),
        ("2TB", 2 << 40),
        ("10B", 10),
    ],
)
def test_sizes(written, size):
    assert parse_size(written) == size


@pytest.mark.parametrize("written", ["", "G", "-5G", "5 apples", "5X", "5 G", "9" * 5000])
def test_sizes_refused(written):
    with pytest.raises(UsageError, match="not a size"):
        parse_size(written)
