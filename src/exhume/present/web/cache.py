"""A bounded cache of what was read from sealed segments, keyed by segment and query.

A sealed segment never changes, so nothing is read from it twice for one query. Segments that are still being written
are read each time.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from exhume.store.format.names import SegmentName
from exhume.store.read.index import Segment
from exhume.store.read.progress import reader_threads, track

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
