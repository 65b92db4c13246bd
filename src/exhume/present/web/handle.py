"""The recording that a worker answers about: opened once, listed again while it grows."""

import threading
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from exhume.model.clock import NANOS
from exhume.model.errors import RecordingError
from exhume.model.events import INCIDENT
from exhume.model.window import Window
from exhume.present.web.cache import SegmentCache
from exhume.store.read.events import EventView, LossView
from exhume.store.read.index import Skipped
from exhume.store.read.recording import Recording
from exhume.store.write.lock import being_recorded

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
