"""Cores x cells of a window, pooled from the seconds of each segment.

A sealed segment never changes, so its seconds are computed once for each query (a measure, or a filter) and cached.
Pooling keeps the greatest value, so one bad second on one core is seen at every zoom.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.present.web.handle import RecordingHandle
from exhume.store.format.overview import MEASURE as OVERVIEW
from exhume.store.format.overview import MOST_PERMILLE, STATE_BITS, Piece, Scores, read_overview, seconds_of
from exhume.store.format.schema import UnreadableFile
from exhume.store.read.core_grid import GAP, CoreGrid, columns_for
from exhume.store.read.index import Segment
from exhume.store.read.profile import ProfileFilter
from exhume.store.read.reader import Request, read_segment
from exhume.store.read.recording import Recording
from exhume.store.read.samples import moments_of_samples

_ALWAYS = Window(0, 1 << 62)
# Pieces from which on they are joined, unless the joined time is longer than theirs by this factor.
_MANY, _MAX_SPARSE = 30, 3


@dataclass(frozen=True, slots=True)
class Pooled:
    """Cores x cells of a window: `values` in permille (GAP: not recorded) and the state that took most."""

    window: Window
    cpus: list[int]
    values: npt.NDArray[np.int16]
    states: npt.NDArray[np.int16]


def pool_measure(handle: RecordingHandle, window: Window, cells: int, measure: str) -> Pooled:
    """A measure of the cpu table."""
    recording = handle.recording()
    if window.nanos < cells * NANOS:
        return _exact(recording.cores(window, cells, measure))
    segments = recording.holding(window)
    load = partial(_measured, measure=measure, columns=columns_for(measure))
    return _pool(handle.cache.get(segments, measure, load), window, cells)


def pool_samples(handle: RecordingHandle, window: Window, cells: int, wanted: ProfileFilter) -> Pooled:
    """The share of each core's time in samples that match a filter."""
    recording = handle.recording()
    if window.nanos < cells * NANOS:
        found = _exact_samples(recording, window, cells, wanted)
    else:
        load = partial(_matching, recording=recording, wanted=wanted, min_cores=recording.facts.cores)
        found = _pool(handle.cache.get(recording.holding(window), wanted, load), window, cells)
    return _of_recorded_cores(found, pool_measure(handle, window, cells, "busy"))


def _pool(pieces: list[Piece | None], window: Window, cells: int) -> Pooled:
    known = [piece for piece in pieces if piece is not None]
    pooled = np.full((max((len(piece.scores) for piece in known), default=0), cells), GAP, np.int16)
    for piece in _join(known):
        _pool_into(pooled, piece, window)
    return _split(window, pooled)


def _join(pieces: list[Piece]) -> list[Piece]:
    """Many pieces as one, which is pooled several times as fast; as they are where that would be mostly empty."""
    if len(pieces) < _MANY:
        return pieces
    first = min(piece.first for piece in pieces)
    last = max(piece.first + piece.scores.shape[1] for piece in pieces)
    if last - first > _MAX_SPARSE * sum(piece.scores.shape[1] for piece in pieces):
        return pieces
    scores = np.full((max(len(piece.scores) for piece in pieces), last - first), GAP, np.int16)
    for piece in pieces:
        cores, seconds = piece.scores.shape
        place = scores[:cores, piece.first - first : piece.first - first + seconds]
        np.maximum(place, piece.scores, out=place)
    return [Piece(first, scores)]


def _measured(segment: Segment, measure: str, columns: list[str]) -> Piece | None:
    if measure == OVERVIEW and segment.sealed:
        overview = read_overview(segment.path, segment.name)
        if overview is not None:
            return overview
    try:
        rows = read_segment(segment, Request("cpu", None, columns))
    except UnreadableFile as error:
        rows = error.rows
    return None if rows is None else seconds_of(segment.name, rows, measure)


def _matching(segment: Segment, recording: Recording, wanted: ProfileFilter, min_cores: int) -> Piece | None:
    columns = ["cpu", "weight_us"]
    found = moments_of_samples(recording.samples_in([segment], _ALWAYS, wanted, columns))
    span = segment.name.span
    moments = [*([span.since, span.until - 1] if not span.empty else []), *_ends(found.walls)]
    if not moments:
        return None
    first, seconds = min(moments) // NANOS, max(moments) // NANOS - min(moments) // NANOS + 1
    cores = max(min_cores, int(found.cpus.max(initial=-1)) + 1)
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


def _of_recorded_cores(found: Pooled, recorded: Pooled) -> Pooled:
    """Only the cpu table says whether a core without samples was idle, offline or absent."""
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
    found = moments_of_samples(recording.samples(window, wanted, ["cpu", "weight_us"]))
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
