"""The segments of a recording, their intervals and gaps, from the names in its directory alone: no file is opened."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.errors import NoRecording, RecordingError, os_reason
from exhume.store.format.names import (
    DAMAGED_SUFFIX,
    DROPPING_SUFFIX,
    HEALTH_NAME,
    IMPORT_STAGING_NAME,
    IMPORTS_NAME,
    LIVE_DIRECTORY,
    LIVE_SUFFIX,
    LOCK_NAME,
    PARQUET_SUFFIX,
    PUSH_NAME,
    RESERVE_NAME,
    SEALING_SUFFIX,
    SegmentName,
)

FOREIGN = "not part of a recording"
SET_ASIDE = "damaged: it could not be sealed, and was set aside"
# Not a gap: a tick may end late, and segment boundaries only match to the millisecond.
SHORTEST_GAP_NS = NANOS
_SETTLED_NS = 2 * NANOS
# Other names that belong in the live directory, and in the directory of sealed segments.
_OWN_NAMES = ((RESERVE_NAME, HEALTH_NAME, IMPORT_STAGING_NAME), (LOCK_NAME, LIVE_DIRECTORY, IMPORTS_NAME, PUSH_NAME))
_PASSING = (SEALING_SUFFIX, DROPPING_SUFFIX, DAMAGED_SUFFIX)
_EARLIEST, _LATEST = -(1 << 62), 1 << 62

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segment:
    """A self-contained part of a recording: a directory with one file per table. `location` may be a string: few of a
    recording's hundreds of segments are opened, and creating a Path takes longer than everything else here."""

    name: SegmentName
    location: Path | str

    @property
    def path(self) -> Path:
        return Path(self.location)

    @property
    def sealed(self) -> bool:
        return self.name.length_ms is not None

    def file(self, table: str) -> Path:
        return self.path / (table + (PARQUET_SUFFIX if self.sealed else LIVE_SUFFIX))

    def size(self) -> int:
        """Bytes of the segment's files, wherever they are by now; 0 if it was removed."""
        try:
            with os.scandir(self.path) as entries:
                return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
        except FileNotFoundError:
            now = self.successor()
            return 0 if now is None else now.size()
        except PermissionError:
            return 0

    def successor(self) -> "Segment | None":
        """The sealed segment, if this one was sealed since it was listed; None if it was removed."""
        if self.sealed:
            return None
        sealed = self.path.parent.parent.glob(f"*_{self.name.boot}_{self.name.start_ms}_*")
        names = ((SegmentName.of_entry(path.name), path) for path in sealed)
        return next((Segment(name, path) for name, path in names if name is not None), None)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A directory entry that was not read, and why."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The segments of a recording in recorded order, the other entries of its directory, and the segments that could
    not be sealed."""

    segments: list[Segment]
    skipped: list[Skipped]
    damaged: list[Skipped]


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The times of the last change to a recording's directories: while they stay the same, a listing is valid."""

    sealed_ns: int
    live_ns: int

    @classmethod
    def of(cls, directory: Path) -> "Unchanged | None":
        """None if unknown, or if the last change is very recent: file systems stamp changes with a coarse clock, and
        another change may get the same time stamp."""
        try:
            sealed = directory.stat().st_mtime_ns
            live_directory = directory / LIVE_DIRECTORY
            live = live_directory.stat().st_mtime_ns if live_directory.exists() else 0
        except OSError:
            return None
        settled = max(sealed, live) < time.time_ns() - _SETTLED_NS
        return cls(sealed, live) if settled else None


def list_recording(directory: Path) -> Listing:
    """List the entries of a recording. Raises RecordingError if the directory is not a recording."""
    skipped: list[Skipped] = []
    try:
        # Live segments first: a segment that is sealed in the meantime is then seen twice rather than not at all.
        live_directory, live = directory / LIVE_DIRECTORY, list[Segment]()
        if live_directory.is_dir():
            live = _segments(live_directory, skipped, sealed=False)
        sealed = _segments(directory, skipped, sealed=True)
    except FileNotFoundError:
        raise NoRecording(
            f"{directory} does not exist; record with exhume record --dir {directory}, or name a recording with --dir"
        ) from None
    except NotADirectoryError:
        raise RecordingError(f"{directory} is a file; a recording is a directory") from None
    except OSError as error:
        raise RecordingError(f"cannot read {directory}: {os_reason(error)}; read it as a user who may") from error
    done = {segment.name.key for segment in sealed} if live else set()
    segments = sealed + [segment for segment in live if segment.name.key not in done]
    if not segments and not (directory / LOCK_NAME).exists():
        if skipped:
            raise NoRecording(f"{directory} holds no recording; name the directory of one with --dir")
        raise NoRecording(f"{directory} is not a recording; record with exhume record --dir {directory}")
    aside = [Skipped(segment.path, SET_ASIDE) for segment in damaged_segments(directory)]
    return Listing(in_recorded_order(segments), skipped, aside)


def sealed_segments(directory: Path) -> list[Segment]:
    """The sealed segments, oldest first."""
    return in_recorded_order(_segments(directory, [], sealed=True))


def live_segments(directory: Path) -> list[Segment]:
    """Segments that are being written or wait to be sealed, oldest first, without listing the sealed ones."""
    try:
        return in_recorded_order(_segments(directory / LIVE_DIRECTORY, [], sealed=False))
    except OSError:
        # Removed in the meantime, or not accessible to this user.
        return []


def damaged_segments(directory: Path) -> list[Segment]:
    """The segments that could not be sealed."""
    try:
        entries = _entries(directory / LIVE_DIRECTORY)
    except OSError:
        return []
    aside = [entry.name for entry in entries if entry.name.endswith(DAMAGED_SUFFIX)]
    names = ((SegmentName.of_entry(name.removesuffix(DAMAGED_SUFFIX)), name) for name in aside)
    return [Segment(name, directory / LIVE_DIRECTORY / text) for name, text in names if name is not None]


def in_recorded_order(segments: Iterable[Segment]) -> list[Segment]:
    """Sort segments: boots by their start time according to most of their segments, and within a boot by the monotonic
    clock. A wall clock that is wrong for a while makes no segment older or newer."""
    segments = list(segments)
    began: dict[str, list[int]] = {}
    for segment in segments:
        began.setdefault(segment.name.boot, []).append(segment.name.offset)
    # The lower median, without the statistics module, which takes longer to import than this one.
    boots = {boot: sorted(offsets)[(len(offsets) - 1) // 2] for boot, offsets in began.items()}
    return sorted(segments, key=lambda s: (boots[s.name.boot], s.name.boot, s.name.start_ms))


def _segments(directory: Path, skipped: list[Skipped], *, sealed: bool) -> list[Segment]:
    """The sealed segments in a recording's directory, or the live ones in its live directory."""
    found = []
    for entry in _entries(directory):
        name = SegmentName.of_entry(entry.name)
        if name is not None and (name.length_ms is not None) == sealed and entry.is_dir():
            found.append(Segment(name, entry.path))
        elif entry.name not in _OWN_NAMES[sealed] and (sealed or not entry.name.endswith(_PASSING)):
            skipped.append(Skipped(directory / entry.name, FOREIGN))
    return found


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def gaps_between(spans: Iterable[Window], window: Window) -> list[Window]:
    """The parts of the window that no span covers. An empty span covers nothing, wherever it is."""
    found = []
    covered = window.since
    for span in sorted((each for each in spans if not each.empty), key=lambda span: span.since):
        if span.since - covered > SHORTEST_GAP_NS and covered < window.until:
            found.append(Window(covered, min(span.since, window.until)))
        covered = max(covered, span.until)
    if window.until - covered > SHORTEST_GAP_NS:
        found.append(Window(covered, window.until))
    return found


class SegmentIntervals:
    """The intervals of a list of segments as arrays, computed once per list."""

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments

    @cached_property
    def unsealed(self) -> list[Segment]:
        """Segments that are still being written; their name does not give their end."""
        return [segment for segment in self.segments if not segment.sealed]

    @cached_property
    def span(self) -> Window | None:
        """The wall time from the start of the first to the end of the last sealed segment; None if there are none."""
        names = [segment.name for segment in self.segments if segment.name.length_ms]
        if not names:
            return None
        first, last = min(name.wall_ms for name in names), max(name.wall_ms + (name.length_ms or 0) for name in names)
        return Window(first * MILLIS, last * MILLIS)

    @cached_property
    def _edges(self) -> "tuple[Ints, Ints]":
        """The begin and end of each segment, in milliseconds."""
        # Imported late: the web server lists recordings but reads none.
        import numpy as np

        names = [segment.name for segment in self.segments]
        # A segment without a length may contain any time.
        first = [_EARLIEST if name.length_ms is None else name.wall_ms - name.reach_ms for name in names]
        last = [_LATEST if name.length_ms is None else name.wall_ms + name.length_ms for name in names]
        return np.array(first, np.int64), np.array(last, np.int64)

    def holding(self, window: Window) -> list[Segment]:
        """The segments that may have rows in the window, according to their names."""
        first, last = self._edges
        since, until = _clamp(window.since // MILLIS), _clamp(-(-window.until // MILLIS))
        held = (first < min(until, _LATEST - 1)) & (max(since, _EARLIEST + 1) < last)
        return [self.segments[place] for place in held.nonzero()[0].tolist()]


def _clamp(wall: int) -> int:
    """Clamp a time so that it fits into 64 bits."""
    return min(max(wall, _EARLIEST), _LATEST)
