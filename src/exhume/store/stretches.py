"""Which segments hold a window, of hundreds or thousands: asked several times by every question."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from exhume.model.clock import MILLIS
from exhume.model.window import Window
from exhume.store.index import Segment

Ints = npt.NDArray[np.int64]
_EARLIEST, _LATEST = -(1 << 62), 1 << 62


class Stretches:
    """The stretches of a list of segments as arrays, worked out once for the list."""

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments

    @cached_property
    def unsealed(self) -> list[Segment]:
        """Those that are still being written; their end is not known by their name."""
        return [segment for segment in self.segments if not segment.sealed]

    @cached_property
    def span(self) -> Window | None:
        """The wall time from the beginning of the first to the end of the last sealed segment; None without any."""
        spans = [span for segment in self.segments if not (span := segment.name.span).empty]
        return Window(min(span.since for span in spans), max(span.until for span in spans)) if spans else None

    @cached_property
    def _edges(self) -> tuple[Ints, Ints]:
        names = [segment.name for segment in self.segments]
        # A segment without a length may hold anything.
        first = [_EARLIEST if name.length_ms is None else (name.wall_ms - name.reach_ms) * MILLIS for name in names]
        last = [_LATEST if name.length_ms is None else name.span.until for name in names]
        return np.array([*map(_counted, first)], np.int64), np.array([*map(_counted, last)], np.int64)

    def holding(self, window: Window) -> list[Segment]:
        """The segments that may have rows in the window, as their names tell."""
        first, last = self._edges
        held = (first < min(_counted(window.until), _LATEST - 1)) & (max(_counted(window.since), _EARLIEST + 1) < last)
        return [self.segments[place] for place in np.flatnonzero(held).tolist()]


def _counted(wall: int) -> int:
    """A moment that 64 bits can count."""
    return min(max(wall, _EARLIEST), _LATEST)
