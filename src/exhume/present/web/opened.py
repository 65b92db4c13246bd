"""The recording that the page shows: opened once, looked at again while it grows, shared by all requests."""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path

from exhume.model.errors import RecordingError
from exhume.model.events import INCIDENT
from exhume.model.window import Window
from exhume.present.web.per_segment import PerSegment
from exhume.present.web.readers import Readers
from exhume.present.web.seconds import SecondGrids
from exhume.store.format.names import SegmentName
from exhume.store.read.events import EventView, LossView
from exhume.store.read.index import Segment
from exhume.store.read.recording import Recording
from exhume.store.write.lock import being_recorded

# Looking at the directory costs a listing: requests that come together share one.
LOOK_EVERY_S = 0.5
# Between looking at the files of one segment, which takes half a millisecond, and of the next.
LOOK_PAUSE_S = 0.002


class Opened:
    """Hands out the recording as it is now. A directory that holds none yet is looked at again by every request."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.readers = Readers()
        self.memory = PerSegment(self.readers)
        self.seconds = SecondGrids(self.memory)
        self._lock = threading.Lock()
        self._recording: Recording | None = None
        self._looked = 0.0
        self._looked_at: set[SegmentName] = set()
        self._losses: dict[SegmentName, list[LossView]] = {}

    def recording(self) -> Recording:
        """Raises RecordingError, with a sentence, where there is nothing to show yet."""
        with self._lock:
            if self._recording is None:
                self._recording = Recording.open(self.directory)
                self._recording.remember_stacks()
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
        """Begin to read what the first view shows, while the server and the browser are still starting. To be called
        while there are no other threads; `start_readers` has to follow."""
        with suppress(RecordingError):
            self.seconds.prepare(self.recording().segments, "busy")

    def start_readers(self) -> None:
        """Fork the processes that answer: once everything that they need is loaded, and while there are no threads."""
        self.readers.start()
        self.memory.take_prepared()

    def look_at_files(self, stop: threading.Event) -> None:
        """Find the files that can't be read, each once, and slowly: nobody waits for it, and all that is answered goes
        through this process."""
        recording = self.recording()
        sealed = [segment for segment in recording.segments if segment.sealed]
        for segment in sealed:
            if segment.name not in self._looked_at:
                recording.look_at_files(segment)
                if stop.wait(LOOK_PAUSE_S):
                    return
        self._looked_at = {segment.name for segment in sealed}

    def live(self) -> bool:
        return being_recorded(self.directory)

    def container_names(self) -> dict[str, str]:
        """The name of each container that ever had one told, by its id: that may have been hours before."""
        segments = self.recording().segments
        every = self.memory.answers(segments, "container names", partial(_container_names_of, self.directory))
        return {number: name for names in every for number, name in names.items()}

    def containers_named(self, beginning: str) -> tuple[str, ...]:
        """The ids of the containers whose name begins like that."""
        return tuple(sorted(number for number, name in self.container_names().items() if name.startswith(beginning)))

    def marks(self) -> list[EventView]:
        """The moments that the recorder marked, in their order."""
        every = self.memory.answers(self.recording().segments, "marks", partial(_marks_of, self.directory))
        return [mark for marks in every for mark in marks]

    def losses(self) -> list[LossView]:
        """Everything that was lost. Few segments have anything to tell, so that no other process is asked: the first
        view waits for this."""
        recording = self.recording()
        known = self._losses
        every = {
            segment: known[segment.name] if segment.name in known else recording.losses_of(segment)
            for segment in recording.segments
        }
        self._losses = {segment.name: losses for segment, losses in every.items() if segment.sealed}
        return [loss for losses in every.values() for loss in losses]


@lru_cache(maxsize=8)
def opened_at(directory: Path) -> Opened:
    """The recording as the process that is asked sees it: what it has read once it remembers."""
    return Opened(directory)


def _marks_of(directory: Path, segments: Sequence[Segment]) -> list[list[EventView]]:
    recording = opened_at(directory).recording()
    return [recording.events_of(segment, [INCIDENT]) for segment in segments]


def _container_names_of(directory: Path, segments: Sequence[Segment]) -> list[dict[str, str]]:
    recording = opened_at(directory).recording()
    return [recording.container_names_of(segment) for segment in segments]
