"""The recording that the page shows: opened once, looked at again while it grows, shared by all requests."""

import threading
import time
from contextlib import suppress
from pathlib import Path

from exhume.model.errors import RecordingError
from exhume.model.events import INCIDENT
from exhume.model.window import Window
from exhume.present.web.per_segment import PerSegment
from exhume.present.web.seconds import SecondGrids
from exhume.store.events import EventView, LossView
from exhume.store.lock import being_recorded
from exhume.store.names import SegmentName
from exhume.store.query import Recording

# Looking at the directory costs a listing: requests that come together share one.
LOOK_EVERY_S = 0.5


class Opened:
    """Hands out the recording as it is now. A directory that holds none yet is looked at again by every request."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.memory = PerSegment()
        self.seconds = SecondGrids(self.memory)
        self._lock = threading.Lock()
        self._recording: Recording | None = None
        self._looked = 0.0
        self._looked_at: set[SegmentName] = set()

    def recording(self) -> Recording:
        """Raises RecordingError, with a sentence, where there is nothing to show yet."""
        with self._lock:
            if self._recording is None:
                self._recording = Recording.open(self.directory)
                self._looked = time.monotonic()
            elif time.monotonic() - self._looked >= LOOK_EVERY_S:
                self._recording.refresh()
                self._looked = time.monotonic()
            return self._recording

    def span(self) -> Window:
        """What is recorded so far; empty where nothing is."""
        try:
            return self.recording().span() or Window(0, 0)
        except RecordingError:
            return Window(0, 0)

    def read_ahead(self) -> None:
        """Begin to read what the first view shows, while the server and the browser are still starting."""
        with suppress(RecordingError):
            self.seconds.prepare(self.recording().segments, "busy")

    def look_at_files(self) -> None:
        """Find the files that can't be read. Each is looked at once."""
        recording = self.recording()
        sealed = [segment for segment in recording.segments if segment.sealed]
        for segment in sealed:
            if segment.name not in self._looked_at:
                recording.look_at_files(segment)
        self._looked_at = {segment.name for segment in sealed}

    def live(self) -> bool:
        return being_recorded(self.directory)

    def marks(self) -> list[EventView]:
        """The moments that the recorder marked, in their order."""
        recording = self.recording()
        every = self.memory.answers(
            recording.segments, "marks", lambda segment: recording.events_of(segment, [INCIDENT])
        )
        return [mark for marks in every for mark in marks]

    def losses(self) -> list[LossView]:
        """Everything that was lost."""
        recording = self.recording()
        every = self.memory.answers(recording.segments, "losses", recording.losses_of)
        return [loss for losses in every for loss in losses]
