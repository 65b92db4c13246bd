"""Cores x seconds of whole segments, remembered: what every zoom of the heatmap is pooled from.

A sealed segment never changes, so its seconds are worked out once for each question (a measure, a filter). Pooling
keeps the greatest value, so one bad second on one core is seen at every zoom.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from exhume.model.clock import MILLIS, NANOS
from exhume.model.window import Window
from exhume.present.web.per_segment import PerSegment
from exhume.present.web.readers import Ask
from exhume.store.format.names import SegmentName
from exhume.store.format.overview import MEASURE as OVERVIEW
from exhume.store.format.overview import MOST_PERMILLE, STATE_BITS, Piece, Scores, read_overview, seconds_of
from exhume.store.format.schema import UnreadableFile
from exhume.store.read.core_grid import GAP, CoreGrid, columns_for
from exhume.store.read.index import Segment
from exhume.store.read.profile import ProfileFilter
from exhume.store.read.reader import Request, read_segment
from exhume.store.read.recording import Recording, remembering
from exhume.store.read.samples import moments_of_samples

# So many pieces are joined, for so many questions, where at most so much of the joined time is of none of them.
_MANY = 30
_MOST_JOINED = 6
_MOST_EMPTY = 3
_ALWAYS = Window(0, 1 << 62)


@dataclass(frozen=True, slots=True)
class Pooled:
    """Cores x cells of a window: `values` in permille (GAP: not recorded) and the state that took most."""

    window: Window
    cpus: list[int]
    values: npt.NDArray[np.int16]
    states: npt.NDArray[np.int16]


Make = Callable[[Sequence[Segment]], list[Piece | None]]


@dataclass(frozen=True, slots=True)
class _Pieces:
    """What is wanted of segments, and for whom."""

    question: Hashable
    make: Make
    ask: Ask | None


class SecondGrids:
    """Answers every zoom from pieces that are remembered, and from what they make joined."""

    def __init__(self, memory: PerSegment) -> None:
        self._memory = memory
        self._joined: OrderedDict[Hashable, tuple[frozenset[SegmentName], Piece]] = OrderedDict()
        self._lock = threading.Lock()

    def measured(
        self, recording: Recording, window: Window, cells: int, measure: str, ask: Ask | None = None
    ) -> Pooled:
        """A measure of the cpu table."""
        if window.nanos < cells * NANOS:
            return _exact(recording.cores(window, cells, measure))
        return self._pooled(
            recording.holding(window), window, cells, _Pieces(measure, partial(_measured_part, measure), ask)
        )

    def matching(
        self, recording: Recording, window: Window, cells: int, wanted: ProfileFilter, ask: Ask | None = None
    ) -> Pooled:
        """The part of each core's time that is in samples which the filter leaves."""
        if window.nanos < cells * NANOS:
            found = _exact_samples(recording, window, cells, wanted)
        else:
            make = partial(_matching_part, recording.directory, recording.facts.cores, wanted)
            found = self._pooled(recording.holding(window), window, cells, _Pieces(wanted, make, ask))
        return _of_cores_that_were_there(found, self.measured(recording, window, cells, "busy", ask))

    def _pooled(self, segments: list[Segment], window: Window, cells: int, wanted: "_Pieces") -> Pooled:
        pieces = self._pieces(segments, wanted)
        cores = max((len(piece.scores) for piece in pieces), default=0)
        pooled = np.full((cores, cells), GAP, np.int16)
        for piece in pieces:
            _pool_into(pooled, piece, window)
        return _split(window, pooled)

    def _pieces(self, segments: list[Segment], wanted: "_Pieces") -> list[Piece]:
        """The pieces of segments. Many that were asked for before come as one: pooling one is quicker than hundreds."""
        question = wanted.question
        sealed = frozenset(segment.name for segment in segments if segment.sealed)
        with self._lock:
            names, whole = self._joined.get(question, (frozenset[SegmentName](), None))
        if whole is not None and sealed <= names:
            segments = [segment for segment in segments if not segment.sealed]
        else:
            whole = None
        found = [
            piece for piece in self._memory.answers(segments, question, wanted.make, wanted.ask) if piece is not None
        ]
        if whole is not None:
            return [whole, *found]
        if len(found) < _MANY or len(sealed) < len(segments) or (joined := join(found)) is None:
            return found
        with self._lock:
            self._joined[question] = (sealed, joined)
            self._joined.move_to_end(question)
            while len(self._joined) > _MOST_JOINED:
                self._joined.popitem(last=False)
        return [joined]

    def prepare(self, segments: Sequence[Segment], measure: str) -> None:
        """Have the pieces of a measure read by processes of their own, while this one is still starting. Whoever asks
        for them meanwhile waits for them."""
        self._memory.prepare(segments, measure, partial(_measured_part, measure))


def join(pieces: Sequence[Piece]) -> Piece | None:
    """One piece of many; None where they lie so far apart that it would be mostly empty."""
    first = min(piece.first for piece in pieces)
    last = max(piece.first + piece.scores.shape[1] for piece in pieces)
    if last - first > _MOST_EMPTY * sum(piece.scores.shape[1] for piece in pieces):
        return None
    whole = np.full((max(len(piece.scores) for piece in pieces), last - first), GAP, np.int16)
    for piece in pieces:
        cores, seconds = piece.scores.shape
        place = whole[:cores, piece.first - first : piece.first - first + seconds]
        np.maximum(place, piece.scores, out=place)
    return Piece(first, whole)


def _measured_part(measure: str, segments: Sequence[Segment]) -> list[Piece | None]:
    columns = columns_for(measure)
    return [_measured(segment, measure, columns) for segment in segments]


def _measured(segment: Segment, measure: str, columns: list[str]) -> Piece | None:
    if measure == OVERVIEW and segment.sealed and (told := read_overview(segment.path, segment.name)) is not None:
        return told
    try:
        rows = read_segment(segment, Request("cpu", None, columns))
    except UnreadableFile as error:
        rows = error.rows
    return None if rows is None else seconds_of(segment.name, rows, measure)


def _matching_part(
    directory: Path, cores: int, wanted: ProfileFilter, segments: Sequence[Segment]
) -> list[Piece | None]:
    recording = remembering(directory)
    return [_matching(segment, wanted, recording, cores) for segment in segments]


def _matching(segment: Segment, wanted: ProfileFilter, recording: Recording, least_cores: int) -> Piece | None:
    columns = ["cpu", "weight_us"]
    found = moments_of_samples(recording.selected_in([segment], _ALWAYS, wanted, columns))
    span = segment.name.span
    moments = [*([span.since, span.until - 1] if not span.empty else []), *_ends(found.walls)]
    if not moments:
        return None
    first, seconds = min(moments) // NANOS, max(moments) // NANOS - min(moments) // NANOS + 1
    cores = max(least_cores, int(found.cpus.max(initial=-1)) + 1)
    place = found.cpus * seconds + (found.walls // NANOS - first)
    taken = np.bincount(place, found.weights_us, cores * seconds).reshape(cores, seconds)
    return Piece(first, _permille(taken, NANOS))


def _ends(walls: npt.NDArray[np.int64]) -> list[int]:
    return [int(walls.min()), int(walls.max())] if len(walls) else []


def _permille(taken_us: npt.NDArray[Any], nanos: float) -> Scores:
    """CPU time as part of a stretch; no state takes most of it."""
    part = np.minimum(taken_us * 1e6 / nanos, 1000).astype(np.int16)
    scores: Scores = part << STATE_BITS
    return scores


def _of_cores_that_were_there(found: Pooled, recorded: Pooled) -> Pooled:
    """Samples don't tell whether a core without any was idle, offline, or never there: the cpu table does."""
    matching = np.asarray(found.cpus, np.int64)[(found.values > 0).any(axis=1)]
    cpus = sorted({*recorded.cpus, *matching.tolist()})
    if not recorded.cpus or not cpus:
        return found
    values = np.full((len(cpus), found.values.shape[1]), GAP, np.int16)
    place = {cpu: line for line, cpu in enumerate(cpus)}
    there = [place[cpu] for cpu in recorded.cpus]
    values[there] = np.where(recorded.values == GAP, GAP, 0)
    mine = [i for i, cpu in enumerate(found.cpus) if cpu in place]
    lines = [place[found.cpus[i]] for i in mine]
    values[lines] = np.maximum(values[lines], np.where(found.values[mine] > 0, found.values[mine], GAP))
    return Pooled(found.window, cpus, values, np.where(values == GAP, GAP, 0).astype(np.int16))


def _exact(grid: CoreGrid) -> Pooled:
    values = np.where(grid.values == GAP, GAP, np.minimum(grid.values, MOST_PERMILLE)).astype(np.int16)
    return Pooled(grid.window, grid.cpus, values, grid.dominant.astype(np.int16))


def _exact_samples(recording: Recording, window: Window, cells: int, wanted: ProfileFilter) -> Pooled:
    """Cells of less than a second, from the samples themselves."""
    if window.empty:
        return _split(window, np.zeros((0, cells), np.int16))
    found = moments_of_samples(recording.selected(window, wanted, ["cpu", "weight_us"]))
    cores = max(recording.facts.cores, int(found.cpus.max(initial=-1)) + 1)
    place = found.cpus * cells + (found.walls - window.since) * cells // window.nanos
    taken = np.bincount(place, found.weights_us, cores * cells).reshape(cores, cells)
    scores = _permille(taken, window.nanos / cells)
    for gap in recording.gaps(window):
        first, last = ((edge - window.since) * cells // window.nanos for edge in (gap.since, gap.until))
        scores[:, first:last] = GAP
    return _split(window, scores)


def _pool_into(pooled: Scores, piece: Piece, window: Window) -> None:
    """The greatest second of each cell; a second counts in the cell in which it begins."""
    cells = pooled.shape[1]
    begin = (piece.first + np.arange(piece.scores.shape[1], dtype=np.int64)) * NANOS - window.since
    inside = (begin > -NANOS) & (begin < window.nanos)
    if not inside.any():
        return
    scores = piece.scores[:, inside]
    # In milliseconds: months in thousands of cells stay within 64 bits.
    cell = np.clip(begin[inside] // MILLIS * cells // (window.nanos // MILLIS), 0, cells - 1)
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    found = np.maximum.reduceat(scores, starts, axis=1)
    where = cell[starts]
    lines = len(scores)
    pooled[:lines, where] = np.maximum(pooled[:lines, where], found)


def _split(window: Window, scores: Scores) -> Pooled:
    seen = np.flatnonzero((scores != GAP).any(axis=1))
    scores = scores[seen]
    gaps = scores == GAP
    values = np.where(gaps, GAP, scores >> STATE_BITS).astype(np.int16)
    return Pooled(window, seen.tolist(), values, np.where(gaps, GAP, scores & ((1 << STATE_BITS) - 1)).astype(np.int16))
