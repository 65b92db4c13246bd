"""Segment names, which are the whole index of a recording: finding a window opens no file.

    20260714T120000250Z_1f0c5a9e_86400250_60000
    wall start           boot     start    length in milliseconds of CLOCK_MONOTONIC

An optional fifth number says how many milliseconds before its start the segment's earliest row lies (a kernel-log line
that was read late). A segment that is still being written has no length yet.

The name also defines the segment's clock: wall time = monotonic time + (wall start - start). A new segment begins when
the wall clock moves against the monotonic one, so a single offset holds for every row inside.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from exhume.model.clock import MILLIS, Window

LIVE_DIRECTORY = "live"
LIVE_SUFFIX = ".arrows"
# Suffixes for segments that are being created or removed inside the live directory. They are two levels below the
# recording, so that a pattern like D/*/cpu.parquet never matches them.
SEALING_SUFFIX = ".sealing"
DROPPING_SUFFIX = ".dropping"
# Disk space that the recorder holds back for when the disk is full.
RESERVE_NAME = "reserve"
# The state of the recorder, for probes.
HEALTH_NAME = "health.json"
# The source of an imported recording; and, inside the live directory, where an import is staged.
IMPORTS_NAME = "imports.json"
IMPORT_STAGING_NAME = "import"
# The queue of segments to be pushed to a lake.
PUSH_NAME = "push"
# A segment that can't be sealed; it is kept for inspection until the retention removes it.
DAMAGED_SUFFIX = ".damaged"
PARQUET_SUFFIX = ".parquet"
LOCK_NAME = "recorder.lock"
# A file next to a segment's tables that says how busy each core was in each second.
OVERVIEW = "overview"
# Written by earlier versions in a format of its own; no longer read.
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
    """Milliseconds since 1970 at which a day (YYYYMMDD) begins; None if there is no such day. Cached: a recording has
    hundreds of names from few days."""
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
        """Parse a name; None if it is not the name of a segment."""
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
        """Parse a directory entry; None if it does not name a segment with times that a clock can produce."""
        found = cls.parse(text)
        if found is None or found.wall_ms < 0:
            return None
        latest = max(found.end_ms, found.reach_ms, found.wall_ms + (found.length_ms or 0))
        return found if latest < _LATEST_MS else None

    @property
    def key(self) -> tuple[str, int]:
        """Boot and start, which stay the same when a segment is sealed."""
        return (self.boot, self.start_ms)

    @property
    def identity(self) -> bytes:
        """The key in the form that the files of a segment carry."""
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
    """The first eight hex digits of a boot id, as used in names."""
    digits = "".join(c for c in boot_id.lower() if c in "0123456789abcdef")
    return digits[:8].ljust(8, "0")
