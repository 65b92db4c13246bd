"""The names of segments, which are the whole index of a recording: no file is opened to find a window.

    20260714T120000250Z_1f0c5a9e_86400250_60000
    wall start           boot     start    length in milliseconds of CLOCK_MONOTONIC

A fifth number, where there is one, says how many milliseconds before its start the segment's earliest row lies (a
kernel-log line that was read late). A segment that is still being written has no length yet.

The name is also the segment's clock: wall time = monotonic time + (wall start - start). Segments are cut when the
wall clock moves against the monotonic one, so one difference holds for every row inside.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from exhume.model.clock import MILLIS, Window

LIVE_DIRECTORY = "live"
LIVE_SUFFIX = ".arrows"
# Names inside the live directory of segments on their way in and out. Two levels below the recording, so that a
# pattern such as D/*/cpu.parquet never sees them.
SEALING_SUFFIX = ".sealing"
DROPPING_SUFFIX = ".dropping"
# Room that the recorder holds for a full disk.
RESERVE_NAME = "reserve"
# The state of the recorder, for probes.
HEALTH_NAME = "health.json"
# What a recording was imported from; and, among the live segments, what an import builds.
IMPORTS_NAME = "imports.json"
IMPORT_STAGING_NAME = "import"
# What is to be sent to a lake.
PUSH_NAME = "push"
# A segment that can't be sealed; it is kept for people, and goes when its time comes.
DAMAGED_SUFFIX = ".damaged"
PARQUET_SUFFIX = ".parquet"
LOCK_NAME = "recorder.lock"
# The file, next to a segment's tables, of how busy each core was in each second.
OVERVIEW = "overview"
# Of earlier versions, in a format of its own; not read any more.
OLD_OVERVIEW_FILE = "overview.bin"

_PATTERN = re.compile(
    r"(\d{8})T([01]\d|2[0-3])([0-5]\d)([0-5]\d)(\d{3})Z_([0-9a-f]{8})_(\d+)(?:_(\d+)(?:_(\d+))?)?", re.ASCII
)
# Wall time is counted in nanoseconds since 1970, in 64 bits.
_LATEST_MS = (1 << 63) // MILLIS
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@lru_cache(16)
def _day_ms(text: str) -> int | None:
    """Where a day (YYYYMMDD) begins; None where there is no such day. A recording has hundreds of names of few days."""
    try:
        return (datetime(int(text[:4]), int(text[4:6]), int(text[6:]), tzinfo=UTC) - _EPOCH) // _MILLISECOND
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class SegmentName:
    wall_ms: int
    boot: str
    start_ms: int
    length_ms: int | None = None
    reach_ms: int = 0

    def __str__(self) -> str:
        wall = _EPOCH + timedelta(milliseconds=self.wall_ms)
        text = f"{wall:%Y%m%dT%H%M%S}{wall.microsecond // 1000:03d}Z_{self.boot}_{self.start_ms}"
        if self.length_ms is not None:
            text += f"_{self.length_ms}"
            if self.reach_ms:
                text += f"_{self.reach_ms}"
        return text

    @classmethod
    def parse(cls, text: str) -> "SegmentName | None":
        """The name, or None where it is not the name of a segment."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            return None
        day, hour, minute, second, millis, boot, start, length, reach = match.groups()
        first_ms = _day_ms(day)
        if first_ms is None:
            return None
        wall_ms = first_ms + ((int(hour) * 60 + int(minute)) * 60 + int(second)) * 1000 + int(millis)
        return cls(wall_ms, boot, int(start), None if length is None else int(length), int(reach or 0))

    @classmethod
    def of_entry(cls, text: str) -> "SegmentName | None":
        """The name of something in a directory, or None where it names no segment that a clock can have timed."""
        found = cls.parse(text)
        if found is None or found.wall_ms < 0:
            return None
        latest = max(found.end_ms, found.reach_ms, found.wall_ms + (found.length_ms or 0))
        return found if latest < _LATEST_MS else None

    @property
    def key(self) -> tuple[str, int]:
        """What stays the same when a segment is sealed: its boot and its start."""
        return (self.boot, self.start_ms)

    @property
    def identity(self) -> bytes:
        """The key, as the files of a segment carry it."""
        return f"{self.boot}_{self.start_ms}".encode()

    @property
    def offset(self) -> int:
        """Wall time minus monotonic time, in nanoseconds, for every row of the segment."""
        return (self.wall_ms - self.start_ms) * MILLIS

    @property
    def end_ms(self) -> int:
        return self.start_ms + (self.length_ms or 0)

    @property
    def span(self) -> Window:
        """The wall time that the segment covers (empty while it has no length)."""
        return Window(self.wall_ms * MILLIS, (self.wall_ms + (self.length_ms or 0)) * MILLIS)


def boot_part(boot_id: str) -> str:
    """The eight hex digits of a boot id that names carry."""
    digits = "".join(c for c in boot_id.lower() if c in "0123456789abcdef")
    return digits[:8].ljust(8, "0")
