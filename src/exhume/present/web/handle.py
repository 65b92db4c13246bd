"""The recording that a worker serves, a bounded cache of data read from its sealed segments, and the part of the
recording that a request selects."""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.errors import RecordingError
from exhume.model.tables import INCIDENT
from exhume.present.web.params import NOT_COMPARED, CpusParams, FilterParams, Refusal
from exhume.procfs.cpulist import parse_cpulist
from exhume.store.format.names import SegmentName
from exhume.store.format.schema import UnreadableFile
from exhume.store.read.events import EventView, LossView
from exhume.store.read.index import Segment, Skipped
from exhume.store.read.profile import ProfileFilter, check_stack_regex
from exhume.store.read.progress import reader_threads, track
from exhume.store.read.reader import count_rows
from exhume.store.read.recording import RecordedPod, Recording, merge_pods

MAX_BYTES = 12 << 20
# Assumed size of a cached value without `nbytes`.
_SMALL_BYTES = 500
# From this many segments on, they are read in threads, and in chunks of this size.
_MANY = _TOGETHER = 8
# While idle, a worker reads the names in this many segments, so many at a time.
_MAX_WARMED, _STEP = 1440, 6
# Listing the directory is not free: requests within this time share one listing.
REFRESH_S = 0.5
MAX_SAMPLES = 200_000_000
# Up to this many segments cannot hold too many samples, so the footers of their files need not be read.
_FEW_SEGMENTS = 120
_MISSING = object()

_Value = TypeVar("_Value")


class SegmentCache:
    """A cache of values by segment and query, with LRU eviction."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        #: The total size of the values, as far as it is known.
        self.nbytes = 0
        self._values: OrderedDict[tuple[SegmentName, Hashable], Any] = OrderedDict()

    def get(self, segments: Sequence[Segment], query: Hashable, load: Callable[[Segment], _Value]) -> list[_Value]:
        """The value of each segment; `load` reads those that are not cached. Reports progress, and raises Cancelled if
        the job is cancelled."""
        found = [self._values.get((segment.name, query), _MISSING) for segment in segments]
        for segment, value in zip(segments, found, strict=True):
            if value is not _MISSING:
                self._values.move_to_end((segment.name, query))
        missing = [place for place, value in enumerate(found) if value is _MISSING]
        loaded = _load([segments[place] for place in missing], load)
        for place, value in zip(missing, loaded, strict=True):
            found[place] = value
            key = (segments[place].name, query)
            if segments[place].sealed and key not in self._values:
                self._values[key] = value
                self.nbytes += _size(value)
        while self.nbytes > self._max_bytes and len(self._values) > 1:
            _, evicted = self._values.popitem(last=False)
            self.nbytes -= _size(evicted)
        return found


def _load(segments: list[Segment], load: Callable[[Segment], _Value]) -> list[_Value]:
    if len(segments) < _MANY:
        return [load(segment) for segment in track(segments)]
    with reader_threads() as threads:
        # In chunks: handing a single segment to a thread takes as long as reading an overview.
        parts = [segments[place : place + _TOGETHER] for place in range(0, len(segments), _TOGETHER)]
        loaded = threads.map(lambda part: [load(segment) for segment in part], parts)
        values = chain.from_iterable(loaded)
        return [next(values) for _ in track(segments)]


def _size(value: object) -> int:
    return int(getattr(value, "nbytes", 0)) + _SMALL_BYTES


class RecordingHandle:
    """Provides the current state of the recording, to one thread. While there is no recording, every request lists the
    directory again."""

    def __init__(self, directory: Path, other: "RecordingHandle | None" = None) -> None:
        self.directory = directory
        self._other = other
        self.cache = SegmentCache()
        self._recording: Recording | None = None
        self._listed_at = 0.0

    def recording(self) -> Recording:
        """The recording. Raises RecordingError if there is none yet."""
        if self._recording is None:
            self._recording = Recording.open(self.directory)
            self._recording.cache_stacks()
            self._listed_at = time.monotonic()
        elif time.monotonic() - self._listed_at >= REFRESH_S:
            self._recording.refresh()
            self._listed_at = time.monotonic()
        return self._recording

    @property
    def compared(self) -> bool:
        """Whether there is another recording to compare this one with."""
        return self._other is not None

    def other(self) -> "RecordingHandle":
        """The recording to compare with. Raises Refusal if there is none."""
        if self._other is None:
            raise Refusal(404, NOT_COMPARED)
        return self._other

    def span(self) -> Window:
        """The recorded time span; empty if nothing is recorded."""
        try:
            return self.recording().span() or Window(0, 0)
        except RecordingError:
            return Window(0, 0)

    def window(self, since: int | None, until: int | None) -> Window:
        """A window given in milliseconds, clamped to the recording; a missing bound is that of the recording."""
        span = self.span()
        first = span.since if since is None else since * MILLIS
        last = span.until if until is None else until * MILLIS
        # Clamped as Python integers: the latest date of a browser exceeds 64 bits in nanoseconds.
        first, last = (min(max(moment, span.since), span.until) for moment in (first, last))
        return Window(first, max(first, last))

    def damaged(self) -> list[Skipped]:
        """The files found to be unreadable so far."""
        return [] if self._recording is None else self._recording.damaged

    def note_damaged(self, files: Collection[Skipped]) -> None:
        """Record files that other workers could not read."""
        if files:
            with suppress(RecordingError):
                self.recording().note_damaged(files)

    def of_all_segments(self, query: Hashable, compute: Callable[[], _Value]) -> _Value:
        """A value computed from the whole recording, cached while the recording doesn't change."""
        recording = self.recording()
        if not recording.segments or not recording.sealed:
            return compute()
        first, last = recording.segments[0], recording.segments[-1]
        key = ("all", len(recording.segments), first.name, query)
        return self.cache.get([last], key, lambda _: compute())[0]

    def container_names(self) -> dict[str, str]:
        """Container names by id, from the whole recording: a name may have been logged hours earlier."""

        def merge() -> dict[str, str]:
            return {number: name for each in self._container_names(recording.segments) for number, name in each.items()}

        recording = self.recording()
        return self.of_all_segments("container names", merge)

    def _container_names(self, segments: Sequence[Segment]) -> list[dict[str, str]]:
        return self.cache.get(segments, "container names", self.recording().container_names_of)

    def pods(self) -> dict[str, RecordedPod]:
        """Names and owners of pods by their uids, from the whole recording."""
        recording = self.recording()
        return self.of_all_segments(
            "pods", lambda: merge_pods(self.cache.get(recording.segments, "pods", recording.pods_of))
        )

    def marks(self) -> list[EventView]:
        """The incident marks of the recorder, in time order."""
        recording = self.recording()
        marks = self.cache.get(recording.segments, "marks", lambda segment: recording.events_of(segment, [INCIDENT]))
        return [mark for each in marks for mark in each]

    def losses(self) -> list[LossView]:
        """All recorded losses."""
        recording = self.recording()
        return [loss for each in self.cache.get(recording.segments, "losses", recording.losses_of) for loss in each]

    def warm_up(self) -> Iterator[None]:
        """Open the recording, load the stacks of its last second (first calls take about three times as long, and a
        node runs the same code minute after minute), and then the names of containers, in steps of milliseconds."""
        with suppress(RecordingError):
            recording = self.recording()
            span = recording.span()
            if span is not None:
                last_second = Window(span.until - NANOS, span.until)
                recording.profile(last_second)
                recording.read("processes", last_second, ["time", "pid"])
            yield
            segments = recording.segments[-_MAX_WARMED:]
            for place in range(0, len(segments), _STEP):
                self._container_names(segments[place : place + _STEP])
                yield


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """The part of a recording that a request selects: the clamped window, and the filter with resolved containers."""

    handle: RecordingHandle
    recording: Recording
    window: Window
    filter: ProfileFilter

    @classmethod
    def of(cls, handle: RecordingHandle, params: FilterParams) -> "BoundQuery":
        """Resolve the parameters of a request. Raises RecordingError without a recording, UsageError for a bad regular
        expression."""
        if params.stack:
            check_stack_regex(params.stack)
        container = params.container or None
        named = handle.container_names().items() if container else ()
        wanted = ProfileFilter(
            cpus=cpus_of(params),
            comm=params.comm or None,
            pid=params.pid,
            stack_regex=params.stack or None,
            container=container,
            pod=params.pod or None,
            leaf=params.kind,
            container_ids=tuple(sorted(number for number, name in named if name.startswith(container or ""))),
        )
        return cls(handle, handle.recording(), handle.window(params.since, params.until), wanted)

    @property
    def cpus(self) -> frozenset[int] | None:
        return None if self.filter.cpus is None else frozenset(self.filter.cpus)

    def check_samples(self, why: str, max_samples: int = MAX_SAMPLES) -> None:
        """Refuse a window with more samples than one request may read."""
        segments = self.recording.holding(self.window)
        if len(segments) <= _FEW_SEGMENTS:
            return
        samples = 0
        for segment in segments:
            with suppress(UnreadableFile):
                samples += count_rows(segment, "samples")
            if samples > max_samples:
                raise Refusal(413, f"{why}, and this time holds over {max_samples:,}: choose a shorter one")


def cpus_of(params: CpusParams) -> frozenset[int] | None:
    """The requested cores; None for all. Raises Refusal for a malformed list of cores."""
    try:
        return frozenset(parse_cpulist(params.cpus)) if params.cpus else None
    except ValueError as error:
        raise Refusal(422, f"cpus: {error}") from None


def ms(wall: int) -> int:
    """Wall nanoseconds as milliseconds."""
    return wall // MILLIS
