"""Query parameters bound to a recording: the window clamped to it, the filter with the containers that it names."""

from dataclasses import dataclass, replace

from exhume.model.clock import MILLIS, Window
from exhume.present.web.handle import RecordingHandle
from exhume.present.web.params import MAX_CORES, FilterParams
from exhume.present.web.reply import Refusal
from exhume.store.format.schema import UnreadableFile
from exhume.store.read.profile import ProfileFilter, check_stack_regex
from exhume.store.read.reader import count_rows
from exhume.store.read.recording import Recording

MAX_SAMPLES = 200_000_000
# No window over so few segments holds too many samples: the footers of their files need not be read.
_FEW_SEGMENTS = 120


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """The part of a recording that a request is about."""

    handle: RecordingHandle
    recording: Recording
    window: Window
    filter: ProfileFilter

    @classmethod
    def of(cls, handle: RecordingHandle, params: FilterParams) -> "BoundQuery":
        """Raises RecordingError where there is no recording, UsageError for a bad regular expression."""
        if params.stack:
            check_stack_regex(params.stack)
        container = params.container or None
        wanted = ProfileFilter(
            cpus=core_numbers(params.cpus) if params.cpus else None,
            comm=params.comm or None,
            pid=params.pid,
            stack_regex=params.stack or None,
            container=container,
            pod=params.pod or None,
            leaf=params.kind,
            container_ids=handle.containers_named(container) if container else (),
        )
        return cls(handle, handle.recording(), window_of(handle, params.since, params.until), wanted)

    @property
    def cpus(self) -> frozenset[int] | None:
        return None if self.filter.cpus is None else frozenset(self.filter.cpus)

    def with_filter(self, wanted: ProfileFilter) -> "BoundQuery":
        """The same query with another filter."""
        return replace(self, filter=wanted)

    def check_samples(self, why: str, max_samples: int = MAX_SAMPLES) -> None:
        """Refuse a window that holds more samples than one answer may read."""
        segments = self.recording.holding(self.window)
        if len(segments) <= _FEW_SEGMENTS:
            return
        samples = 0
        for segment in segments:
            try:
                samples += count_rows(segment, "samples")
            except UnreadableFile:
                continue
            if samples > max_samples:
                raise Refusal(413, f"{why}, and this time holds over {max_samples:,}: choose a shorter one")


def window_of(handle: RecordingHandle, since: int | None, until: int | None) -> Window:
    """A window given in milliseconds, clamped to the recording; an end that is missing is the recording's."""
    span = handle.span()
    first = span.since if since is None else since * MILLIS
    last = span.until if until is None else until * MILLIS
    # Clamped as Python integers: a browser's latest date in nanoseconds exceeds 64 bits.
    first, last = (min(max(moment, span.since), span.until) for moment in (first, last))
    return Window(first, max(first, last))


def core_numbers(text: str) -> frozenset[int]:
    """`0,3-7` -> the numbers; those that no machine has are left out."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = sorted((min(int(first[:9]), MAX_CORES), min(int((last or first)[:9]), MAX_CORES)))
        found.update(range(low, min(high + 1, MAX_CORES)))
    return frozenset(found)


def ms(wall: int) -> int:
    """Wall nanoseconds as milliseconds."""
    return wall // MILLIS
