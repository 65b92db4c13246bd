"""The recording that a worker serves, and a bounded cache of what was read from its sealed segments.

The cache is keyed by segment and query."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from exhume.model.clock import NANOS, Window
from exhume.model.errors import RecordingError
from exhume.model.tables import INCIDENT
from exhume.store.format.names import SegmentName
from exhume.store.read.events import EventView, LossView
from exhume.store.read.index import Segment, Skipped
from exhume.store.read.progress import reader_threads, track
from exhume.store.read.recording import Recording
from exhume.store.write.lock import being_recorded

MAX_BYTES = 16 << 20
# Counted for a value that does not say how large it is.
_SMALL_BYTES = 500
# Segments from which on threads read them.
_MANY = 8
_MISSING = object()

_Value = TypeVar("_Value")


class SegmentCache:
    """Least recently used values go first."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: OrderedDict[tuple[SegmentName, Hashable], Any] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """The size of all values, as far as they report it."""
        return self._bytes

    def get(self, segments: Sequence[Segment], query: Hashable, load: Callable[[Segment], _Value]) -> list[_Value]:
        """The value of each segment; `load` reads those that are not cached. Reading reports progress, and raises
        Cancelled once the job was cancelled."""
        found: list[Any] = []
        with self._lock:
            for segment in segments:
                key = (segment.name, query)
                value = self._values.get(key, _MISSING)
                if value is not _MISSING:
                    self._values.move_to_end(key)
                found.append(value)
        missing = [place for place, value in enumerate(found) if value is _MISSING]
        loaded = _load([segments[place] for place in missing], load)
        for place, value in zip(missing, loaded, strict=True):
            found[place] = value
            if segments[place].sealed:
                self._put((segments[place].name, query), value)
        return found

    def _put(self, key: tuple[SegmentName, Hashable], value: object) -> None:
        with self._lock:
            if key in self._values:
                return
            self._values[key] = value
            self._bytes += _size(value)
            while self._bytes > self._max_bytes and len(self._values) > 1:
                _, evicted = self._values.popitem(last=False)
                self._bytes -= _size(evicted)


def _load(segments: list[Segment], load: Callable[[Segment], _Value]) -> list[_Value]:
    if len(segments) < _MANY:
        return [load(segment) for segment in track(segments)]
    with reader_threads() as threads:
        values = threads.map(load, segments)
        return [next(values) for _ in track(segments)]


def _size(value: object) -> int:
    return int(getattr(value, "nbytes", 0)) + _SMALL_BYTES


# Listing the directory has a cost: requests that come together share one listing.
REFRESH_S = 0.5


class RecordingHandle:
    """Returns the recording as it is now. A directory that holds none yet is looked at again by each request."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cache = SegmentCache()
        self._lock = threading.Lock()
        self._recording: Recording | None = None
        self._listed_at = 0.0

    def recording(self) -> Recording:
        """Raises RecordingError where there is no recording yet."""
        with self._lock:
            if self._recording is None:
                self._recording = Recording.open(self.directory)
                self._recording.cache_stacks()
                self._listed_at = time.monotonic()
            elif time.monotonic() - self._listed_at >= REFRESH_S:
                self._recording.refresh()
                self._listed_at = time.monotonic()
            return self._recording

    def span(self) -> Window:
        """The recorded time; empty where nothing is recorded."""
        try:
            return self.recording().span() or Window(0, 0)
        except RecordingError:
            return Window(0, 0)

    def live(self) -> bool:
        """Whether a recorder is writing."""
        return being_recorded(self.directory)

    def damaged(self) -> list[Skipped]:
        """The files that could not be read, as far as they were opened."""
        return [] if self._recording is None else self._recording.damaged

    def note_damaged(self, files: Collection[Skipped]) -> None:
        """Files that other workers could not read."""
        if files:
            with suppress(RecordingError):
                self.recording().note_damaged(files)

    def container_names(self) -> dict[str, str]:
        """The name of each container by its id, from the whole recording: it may have been logged hours before."""
        recording = self.recording()
        names = self.cache.get(recording.segments, "container names", recording.container_names_of)
        return {number: name for each in names for number, name in each.items()}

    def containers_named(self, prefix: str) -> tuple[str, ...]:
        """The ids of the containers whose name starts with this."""
        return tuple(sorted(number for number, name in self.container_names().items() if name.startswith(prefix)))

    def marks(self) -> list[EventView]:
        """The incident marks of the recorder, in order."""
        recording = self.recording()
        marks = self.cache.get(recording.segments, "marks", lambda segment: recording.events_of(segment, [INCIDENT]))
        return [mark for each in marks for mark in each]

    def losses(self) -> list[LossView]:
        """Everything that was lost."""
        recording = self.recording()
        return [loss for each in self.cache.get(recording.segments, "losses", recording.losses_of) for loss in each]

    def warm_up(self) -> None:
        """Open the recording and learn the stacks of its last second: first calls take about three times as long, and
        a node runs the same code minute after minute."""
        with suppress(RecordingError):
            recording = self.recording()
            span = recording.span()
            if span is not None:
                last_second = Window(span.until - NANOS, span.until)
                recording.profile(last_second)
                recording.read("processes", last_second, ["time", "pid"])
