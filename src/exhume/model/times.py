"""The time grammar: the accepted forms of a moment, a range, a duration or a size, and how moments are displayed.

Moments are wall nanoseconds since the epoch, kept as integers throughout so that nothing is rounded. Ranges are
half-open: the end is not included. A bare time of day (`03:14:07`) means the latest such time not after the end of the
recording; as the end of a range it means the first such time at or after the start of the range.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo

from exhume.model.clock import NANOS
from exhume.model.errors import UsageError

MOMENT_FORMS = "2026-03-01T03:14:07Z, '2026-03-01 03:14:07', 03:14:07, 03:14, '10m ago', @1772334847 or now"

_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": NANOS, "m": 60 * NANOS, "h": 3600 * NANOS, "d": 86400 * NANOS}
_DURATION_PART = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))?(ns|us|ms|s|m|h|d)", re.ASCII)
_SIZE = re.compile(r"(\d{1,18})(?:\.(\d{1,9}))?([KMGT]?)(?:I?B)?", re.ASCII | re.IGNORECASE)
_UNIX = re.compile(r"@(\d{1,11})(?:\.(\d{1,9}))?", re.ASCII)
_AGO = re.compile(r"(.+?)\s+ago", re.ASCII)
_MOMENT = re.compile(
    r"(?:(?P<date>\d{4}-\d{2}-\d{2})(?:[Tt]|\s+))?"
    r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d{1,9}))?)?"
    r"\s*(?P<zone>[Zz]|[+-]\d{2}:\d{2})?",
    re.ASCII,
)
_HALF_DAY = 12 * 3600 * NANOS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Reference:
    """The reference for relative times: `now`, and the ends of the recording in question (now, without one).

    `zone` is the zone of times without one; None is the zone of this machine.
    """

    now: int
    earliest: int
    latest: int
    zone: tzinfo | None = None


@dataclass(frozen=True, slots=True)
class _TimeOfDay:
    """A time without a date; its day depends on what it is compared with."""

    hour: int
    minute: int
    second: int
    nanos: int
    zone: tzinfo | None

    def near(self, moment: int) -> Iterator[int]:
        """All such times from three days before a moment to three days after it, ascending.

        Three days, because a day on which clocks go forward may skip the time.
        """
        around = _from_epoch(moment, self.zone).date()
        yield from sorted({each for days in range(-3, 4) for each in _at(around + timedelta(days=days), self)})

    def latest_until(self, moment: int) -> int:
        return max(found for found in self.near(moment) if found <= moment)

    def first_from(self, moment: int) -> int:
        return min(found for found in self.near(moment) if found >= moment)


def parse_moment(text: str, reference: Reference) -> int:
    """A moment in wall nanoseconds; a bare time of day is the latest one not after the recording's end."""
    moment = _read_moment(text, reference)
    return moment.latest_until(reference.latest) if isinstance(moment, _TimeOfDay) else moment


def parse_window(since: str | None, until: str | None, reference: Reference) -> tuple[int | None, int | None]:
    """Both ends of a half-open window; None for an end that is not given."""
    begin = _read_moment(since, reference) if since is not None else None
    end = _read_moment(until, reference) if until is not None else None
    bare = isinstance(begin, _TimeOfDay)
    if isinstance(begin, _TimeOfDay):
        begin = begin.latest_until(reference.latest)
    reversed_ = False
    if isinstance(end, _TimeOfDay):
        zone = end.zone
        latest = end.latest_until(reference.latest)
        if begin is not None:
            end = end.first_from(begin)
        else:
            # With only an end given: the latest, unless that lies before the recording began (it ended a moment ago).
            end = latest if latest >= reference.earliest else end.first_from(reference.latest)
        # The first such time after the begin is after the last recorded day: the day of the begin was meant.
        days = [_from_epoch(moment, zone).date() for moment in (reference.latest, end)]
        reversed_ = begin is not None and begin <= reference.latest and days[0] < days[1]
        # Nor is a range meant that begins the day before the recording and ends after it: 18:20 to 18:10 is most of a
        # day, while 23:50 to 00:10 crosses midnight.
        if bare and begin is not None and begin < reference.earliest and reference.latest < end:
            over_midnight = _from_epoch(begin, zone).date() < days[1]
            reversed_ = reversed_ or (over_midnight and end - begin > _HALF_DAY)
    elif begin is not None and end is not None:
        reversed_ = end < begin
    if reversed_:
        raise UsageError(f"the window ends ({until}) before it begins ({since}); swap them or correct one")
    return begin, end


def parse_range(text: str, reference: Reference) -> tuple[int | None, int | None]:
    """Parse a range `S..U`; an empty side is open."""
    since, dots, until = text.partition("..")
    if not dots or not (since.strip() or until.strip()):
        raise UsageError(f"{text!r} is not a range: write S..U, for example 03:13:00..03:14:00")
    return parse_window(since.strip() or None, until.strip() or None, reference)


def parse_duration(text: str) -> int:
    """Parse a duration to nanoseconds: `60s`, `10m`, `2h`, `7d`, `500ms`, `1h30m`, `1.5h`."""
    total, position, written = 0, 0, text.strip()
    while position < len(written):
        part = _DURATION_PART.match(written, position)
        if part is None:
            break
        total += _scaled(part[1], part[2], _UNITS[part[3]])
        position = part.end()
    if not written or position != len(written):
        raise UsageError(f"{text!r} is not a duration: write a number with a unit, for example 60s, 10m, 2h or 7d")
    return total


def parse_size(text: str) -> int:
    """Parse a size in bytes: `5G`, `512M`, `1.5GiB`, `4096`. K, M, G and T are powers of 1024."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is not a size: write bytes or a number with K, M, G or T, for example 5G")
    return _scaled(found[1], found[2], 1024 ** " KMGT".index(found[3].upper() or " "))


def format_moment(moment: int, zone: tzinfo | None = None, *, digits: int = 9) -> str:
    """Format as RFC 3339 with the zone's offset; `digits` of the fraction are kept and the rest truncated."""
    local = _from_epoch(moment, zone)
    fraction = f".{moment % NANOS:09d}"[: digits + 1] if digits else ""
    offset = local.strftime("%z")
    # RFC 3339 has no seconds in an offset; nineteenth-century zones do, and are shown in UTC instead.
    if len(offset) != 5:
        return format_moment(moment, UTC, digits=digits)
    suffix = "Z" if zone is UTC else f"{offset[:3]}:{offset[3:]}"
    return f"{local.year:04d}-{local:%m-%dT%H:%M:%S}{fraction}{suffix}"


def format_clock(moment: int, zone: tzinfo | None = None, *, digits: int = 0) -> str:
    """The time of day of a moment, in a form that the grammar accepts."""
    fraction = f".{moment % NANOS:09d}"[: digits + 1] if digits else ""
    return f"{_from_epoch(moment, zone):%H:%M:%S}{fraction}"


def format_day(moment: int, zone: tzinfo | None = None) -> str:
    """The date of a moment."""
    return f"{_from_epoch(moment, zone):%Y-%m-%d}"


def format_offset(moment: int, zone: tzinfo | None = None) -> str:
    """The zone's offset at a moment in common notation: UTC, +02:00."""
    offset = _from_epoch(moment, zone).strftime("%z")
    return "UTC" if zone is UTC or offset == "+0000" else f"{offset[:3]}:{offset[3:5]}"


def _read_moment(text: str, reference: Reference) -> int | _TimeOfDay:
    written = text.strip()
    if written == "now":
        return reference.now
    if unix := _UNIX.fullmatch(written):
        return _scaled(unix[1], unix[2], NANOS)
    if ago := _AGO.fullmatch(written):
        return reference.now - parse_duration(ago[1])
    found = _MOMENT.fullmatch(written)
    if found is None:
        raise UsageError(f"{text!r} is not a time: write {MOMENT_FORMS}")
    time = _TimeOfDay(
        int(found["hour"]),
        int(found["minute"]),
        int(found["second"] or 0),
        int((found["fraction"] or "").ljust(9, "0")),
        _zone(found["zone"], reference.zone),
    )
    if time.hour > 23 or time.minute > 59 or time.second > 59:
        raise UsageError(f"{text!r} is not a time of day: hours go to 23, minutes and seconds to 59")
    if found["date"] is None:
        return time
    try:
        return _resolve(date.fromisoformat(found["date"]), time, fold=0)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{text!r} is not a time: there is no such date") from error


def _zone(suffix: str | None, default: tzinfo | None) -> tzinfo | None:
    if suffix is None:
        return default
    if suffix in "Zz":
        return UTC
    hours, minutes = int(suffix[1:3]), int(suffix[4:6])
    if hours > 23 or minutes > 59:
        raise UsageError(f"{suffix!r} is not an offset from UTC: write it as +02:00, or Z for UTC")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if suffix[0] == "-" else offset)


def _at(day: date, time: _TimeOfDay) -> Iterator[int]:
    """The moments at which a day's clocks show a time: one, two if clocks go back, none if they skip it."""
    for fold in (0, 1):
        moment = _resolve(day, time, fold)
        shown = _from_epoch(moment, time.zone)
        if (shown.hour, shown.minute, shown.second) == (time.hour, time.minute, time.second):
            yield moment


def _resolve(day: date, time: _TimeOfDay, fold: int) -> int:
    local = datetime(day.year, day.month, day.day, time.hour, time.minute, time.second, tzinfo=time.zone, fold=fold)
    utc = local.astimezone(UTC)
    return ((utc - _EPOCH) // timedelta(seconds=1)) * NANOS + time.nanos


def _from_epoch(moment: int, zone: tzinfo | None) -> datetime:
    return (_EPOCH + timedelta(seconds=moment // NANOS)).astimezone(zone)


def _scaled(whole: str, fraction: str | None, unit: int) -> int:
    scaled = int(whole) * unit
    if fraction:
        scaled += int(fraction) * unit // 10 ** len(fraction)
    return scaled
