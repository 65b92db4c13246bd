"""Pool the seconds of cores into cells, and compute how unusual a second is.

Three measures describe it. `stall` is how long a core has been held without a pause when the second ends: by the kernel
(system, irq and softirq together, see `is_held`), or by tasks that waited for it for at least HELD_PERMILLE of every
second. `deviation` is how far the kernel's share lies above the core's own recent normal, the median of the preceding
segments. `unusual` is the stall if there is one, otherwise the deviation, drawn fainter than any stall. What is normal
for a core is not a stall on it: on a node with more tasks than cores tasks always wait, and a core that serves a
network card may always be close to full of softirqs, and now and then full of them for seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.store.read.core_grid import (
    CELL_STATES,
    GAP,
    HELD,
    HELD_CORE,
    OVERVIEW_MEASURES,
    STATE_BITS,
    WAITED,
    CoreGrid,
    Piece,
    Scores,
    columns_for,
    read_overview,
    seconds_of,
)
from exhume.store.read.index import Segment
from exhume.store.read.reader import Request

# A core's normal is taken from this many preceding segments: ten minutes of recording.
NORMAL_SEGMENTS = 10
# A stall of ten seconds has the greatest strength; in `unusual`, deviations use the lower half of the scale.
STALL_UNIT_MS = 10
# Longer stalls are drawn equally strong: the value means `at least`.
LONGEST_STALL_S = 40
_STALL = 1000 // STALL_UNIT_MS
_UNUSUAL_STALL = _STALL // 2
UNUSUAL_FLOOR = 500
# How far the kernel's share must be above the core's normal to show in `unusual`.
LEAST_DEVIATION = 150
# It must also be this many median absolute deviations of the core above normal: four times the standard deviation of
# normal noise. A cell of a long view shows the worst of many seconds, and half of all seconds lie above their median:
# without these two thresholds every cell would have a colour.
LEAST_SPREADS = 6
_STATE = (1 << STATE_BITS) - 1
_WAIT = CELL_STATES.index("wait")
# How many pieces are processed together: enough to be fast, few enough to use little memory.
_TOGETHER = 30
# At this many pieces they are joined, unless the joined time exceeds the sum of theirs by this factor.
_MANY, _MAX_SPARSE = 30, 3

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Pooled:
    """Cores x cells of a window: `values` in permille (GAP: not recorded) and the state that reached each."""

    window: Window
    cpus: list[int]
    values: npt.NDArray[np.int16]
    states: npt.NDArray[np.int16]

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.states.nbytes

    def to_grid(self, measure: str) -> CoreGrid:
        return CoreGrid(self.window, measure, self.cpus, self.values.astype(np.int32), self.states.astype(np.int8))


@dataclass(frozen=True, slots=True)
class HeldPiece:
    """The HELD seconds of a segment, and for each core their median (with WAITED if tasks mostly waited) and their
    median absolute deviation."""

    piece: Piece
    middle: Scores
    spread: Scores

    @property
    def nbytes(self) -> int:
        return self.piece.nbytes + self.middle.nbytes + self.spread.nbytes


@dataclass(frozen=True, slots=True)
class Unusual:
    """The decoded value of one of UNUSUAL_MEASURES: how long the core was held, or how far it is above its normal."""

    stall_ms: int
    deviation_permille: int


def decode_unusual(measure: str, value: int) -> Unusual:
    """Decode a value that `unusual_seconds` computed."""
    if measure == "stall":
        return Unusual(value * STALL_UNIT_MS, 0)
    if measure == "deviation":
        return Unusual(0, value)
    if value < UNUSUAL_FLOOR:
        return Unusual(0, value * 2)
    return Unusual((value - UNUSUAL_FLOOR) * STALL_UNIT_MS * 2, 0)


def read_piece(segment: Segment, measure: str, read: Callable[[Segment, Request], pa.Table | None]) -> Piece | None:
    """Read the seconds of a segment: from its overview if that has the measure, else from its rows."""
    if measure in OVERVIEW_MEASURES and segment.sealed:
        overview = read_overview(segment.path, segment.name, measure)
        if overview is not None:
            return overview
    rows = read(segment, Request("cpu", None, columns_for(measure)))
    return None if rows is None or not rows.num_rows else seconds_of(segment.name, rows, measure)


def read_held(segment: Segment, read: Callable[[Segment, Request], pa.Table | None]) -> HeldPiece | None:
    """Read the HELD seconds of a segment and compute their medians."""
    piece = read_piece(segment, HELD, read)
    if piece is None:
        return None
    recorded = piece.scores != GAP
    kernel = np.where(recorded, (piece.scores & (WAITED - 1)) >> STATE_BITS, GAP).astype(np.int16)
    waited = ((piece.scores & WAITED) != 0) & recorded
    usual = waited.sum(axis=1) * 2 > recorded.sum(axis=1)
    middle = _median(kernel)
    spread = _median(np.where(recorded, np.abs(kernel - middle[:, np.newaxis]), GAP).astype(np.int16))
    return HeldPiece(piece, np.where(usual & (middle != GAP), middle | WAITED, middle).astype(np.int16), spread)


def whole_seconds(window: Window) -> Window:
    """The window extended to whole seconds: all segments that hold a second decide which row it shows."""
    return Window(window.since // NANOS * NANOS, -(-window.until // NANOS) * NANOS)


def with_normal(segments: Sequence[Segment], held: Sequence[Segment]) -> list[Segment]:
    """The segments that hold a window, and the preceding ones that its normal is taken from: a second is then equally
    unusual in a view of minutes and in one of the whole recording."""
    if not held:
        return []
    names = {segment.name for segment in held}
    places = [place for place, segment in enumerate(segments) if segment.name in names]
    return list(segments[max(0, places[0] - NORMAL_SEGMENTS) : places[-1] + 1])


def unusual_seconds(pieces: Sequence[HeldPiece | None], measure: str) -> list[Piece]:
    """Compute one of UNUSUAL_MEASURES for each second, as permille and state; `decode_unusual` decodes the permille."""
    held = sorted((held for held in pieces if held is not None), key=lambda held: held.piece.first)
    if not held:
        return []
    alone = without_overlaps([each.piece for each in held])
    known = [replace(each, piece=piece) for each, piece in zip(held, alone, strict=True)]
    cores = max(len(held.middle) for held in known)
    normal, spread = _normals(known, cores)
    found: list[Piece] = []
    before: tuple[int, Ints, Ints] | None = None
    for begin, end in _stretches(known):
        first = known[begin].piece.first
        scores, usual, usual_spread = _dense(known[begin:end], normal[begin:end], spread[begin:end], cores)
        gaps = scores == GAP
        scores = np.where(gaps, 0, scores)
        kernel, waited = (scores & (WAITED - 1)) >> STATE_BITS, (scores & WAITED) != 0
        deviation = np.maximum(kernel - (usual & (WAITED - 1)), 0)
        held_by_kernel = (scores & HELD_CORE) != 0
        if measure == "unusual":
            waited &= (usual & WAITED) == 0
            held_by_kernel &= deviation >= LEAST_DEVIATION
            deviation[deviation < np.maximum(LEAST_DEVIATION, LEAST_SPREADS * usual_spread)] = 0
        carried = _carried(before, first, cores)
        by_kernel, by_wait = (_runs(each, carry) for each, carry in zip((held_by_kernel, waited), carried, strict=True))
        before = first, by_kernel, by_wait
        run, state = np.maximum(by_kernel, by_wait), np.where(by_wait > by_kernel, _WAIT, scores & _STATE)
        values = _values(measure, run, deviation)
        found.append(Piece(first, np.where(gaps, GAP, values << STATE_BITS | state).astype(np.int16)))
    return found


def without_overlaps(pieces: Sequence[Piece | None]) -> list[Piece]:
    """Pieces of the cpu table in time order, with each second in only one of them: the row that begins in a second
    counts, not the row of the preceding segment that extends into it."""
    known = sorted((piece for piece in pieces if piece is not None), key=lambda piece: piece.first)
    for place, (piece, after) in enumerate(pairwise(known)):
        shared = min(piece.first + piece.scores.shape[1] - after.first, after.scores.shape[1])
        if shared > 0:
            scores, cores = piece.scores.copy(), min(len(piece.scores), len(after.scores))
            begin = after.first - piece.first
            over = scores[:cores, begin : begin + shared]
            over[after.scores[:cores, :shared] != GAP] = GAP
            known[place] = Piece(piece.first, scores)
    return known


def _values(measure: str, run: Ints, deviation: npt.NDArray[np.int16]) -> Ints:
    run = np.minimum(run, LONGEST_STALL_S)
    if measure == "stall":
        return run * _STALL
    if measure == "deviation":
        return deviation.astype(np.int32)
    values: Ints = np.where(run > 0, UNUSUAL_FLOOR + run * _UNUSUAL_STALL, deviation // 2)
    return values


def _median(values: Scores) -> Scores:
    """The lower median of the values that are not GAP, along the last axis; GAP if all are."""
    ordered = np.sort(values, axis=-1)
    gaps = (values == GAP).sum(axis=-1)
    place = np.minimum(gaps + np.maximum(values.shape[-1] - gaps - 1, 0) // 2, values.shape[-1] - 1)
    middle: Scores = np.take_along_axis(ordered, place[..., np.newaxis], axis=-1)[..., 0]
    return middle


def _normals(known: Sequence[HeldPiece], cores: int) -> tuple[Scores, Scores]:
    """Pieces x cores: the median of the preceding pieces' medians (the piece's own if there are none), and the same for
    the spreads. The first has WAITED if tasks mostly waited."""
    own, windows = _before([held.middle for held in known], cores)
    own_spread, spreads = _before([held.spread for held in known], cores)
    recorded = windows != GAP
    kernel = _median(np.where(recorded, windows & (WAITED - 1), GAP).astype(np.int16))
    waited = ((windows & WAITED) != 0) & recorded
    usual = waited.sum(axis=-1) * 2 > recorded.sum(axis=-1)
    normal = np.where(recorded.any(axis=-1), np.where(usual, kernel | WAITED, kernel), own)
    spread = np.where(recorded.any(axis=-1), _median(spreads), own_spread)
    # A core that is neither in the preceding pieces nor in this one has no normal, but it has no value either.
    return np.maximum(normal, 0).astype(np.int16), np.maximum(spread, 0).astype(np.int16)


def _before(columns: Sequence[Scores], cores: int) -> tuple[Scores, Scores]:
    """Pieces x cores of one number, and pieces x cores x the numbers of the preceding pieces."""
    own = np.full((len(columns), cores), GAP, np.int16)
    for place, column in enumerate(columns):
        own[place, : len(column)] = column
    padded = np.concatenate([np.full((NORMAL_SEGMENTS, cores), GAP, np.int16), own[:-1]])
    return own, np.lib.stride_tricks.sliding_window_view(padded, NORMAL_SEGMENTS, axis=0)


def _stretches(known: Sequence[HeldPiece]) -> list[tuple[int, int]]:
    """Ranges of pieces that closely follow one another."""
    found, begin = [], 0
    for place in range(1, len(known) + 1):
        last = known[place - 1].piece
        apart = place == len(known) or known[place].piece.first > last.first + last.scores.shape[1] + 60
        if apart or place - begin >= _TOGETHER:
            found.append((begin, place))
            begin = place
    return found


def _dense(part: Sequence[HeldPiece], normal: Scores, spread: Scores, cores: int) -> tuple[Scores, Scores, Scores]:
    """Cores x seconds of adjacent pieces, and the normal and spread for each second."""
    first = part[0].piece.first
    seconds = max(held.piece.first + held.piece.scores.shape[1] for held in part) - first
    scores = np.full((cores, seconds), GAP, np.int16)
    usual, usual_spread = np.zeros((cores, seconds), np.int16), np.zeros((cores, seconds), np.int16)
    for held, own, own_spread in zip(part, normal, spread, strict=True):
        lines, columns = held.piece.scores.shape
        place = slice(held.piece.first - first, held.piece.first - first + columns)
        np.maximum(scores[:lines, place], held.piece.scores, out=scores[:lines, place])
        usual[:, place], usual_spread[:, place] = own[:, np.newaxis], own_spread[:, np.newaxis]
    return scores, usual, usual_spread


def _carried(before: tuple[int, Ints, Ints] | None, first: int, cores: int) -> tuple[Ints, Ints]:
    """How many seconds each core had been held when a stretch begins, by the kernel and by waits."""
    if before is not None:
        place = first - 1 - before[0]
        if 0 <= place < before[1].shape[1]:
            return before[1][:, place], before[2][:, place]
    return np.zeros(cores, np.int32), np.zeros(cores, np.int32)


def _runs(held: npt.NDArray[np.bool_], carried: Ints) -> Ints:
    """How many seconds each core had been held without a pause at the end of each second."""
    runs = np.zeros(held.shape, np.int32)
    lines, columns = np.nonzero(held)
    if len(lines):
        begins = np.ones(len(lines), np.bool_)
        begins[1:] = (lines[1:] != lines[:-1]) | (columns[1:] != columns[:-1] + 1)
        starts = np.flatnonzero(begins)
        start = np.repeat(starts, np.diff(starts, append=len(lines)))
        earlier = np.where(columns[start] == 0, carried[lines], 0)
        runs[lines, columns] = np.arange(len(lines)) - start + 1 + earlier
    return runs


def pool_seconds(pieces: Sequence[Piece | None], window: Window, cells: int) -> Pooled:
    """The greatest second of each cell; a second counts in the cell in which it begins. Cells shorter than a second
    show the second that covers them."""
    known = [piece for piece in pieces if piece is not None]
    pooled = np.full((max((len(piece.scores) for piece in known), default=0), cells), GAP, np.int16)
    if window.empty:
        return split_scores(window, pooled)
    fine = window.nanos < cells * NANOS
    for piece in _join(known):
        if fine:
            second = (window.since + np.arange(cells, dtype=np.int64) * window.nanos // cells) // NANOS - piece.first
            where = np.flatnonzero((second >= 0) & (second < piece.scores.shape[1]))
            greatest = piece.scores[:, second[where]]
        else:
            begin = (piece.first + np.arange(piece.scores.shape[1], dtype=np.int64)) * NANOS - window.since
            inside = (begin > -NANOS) & (begin < window.nanos)
            if not inside.any():
                continue
            # In milliseconds, so that months in thousands of cells stay within 64 bits.
            cell = np.clip(begin[inside] // MILLIS * cells // (window.nanos // MILLIS), 0, cells - 1)
            starts = np.flatnonzero(np.diff(cell, prepend=-1))
            greatest = np.maximum.reduceat(piece.scores[:, inside], starts, axis=1)
            where = cell[starts]
        lines = len(piece.scores)
        pooled[:lines, where] = np.maximum(pooled[:lines, where], greatest)
    return split_scores(window, pooled)


def strongest_second(
    pieces: Sequence[Piece | None], cpu: int, cell: Window, *, first: bool
) -> tuple[int, int, int] | None:
    """The second that gave a cell of `pool_seconds` its value, with that value and its state; None if nothing was
    recorded. The `first` cell of a window also includes the second that began before it."""
    found: tuple[int, int] | None = None
    begin, end = -(-(cell.since - NANOS + 1 if first else cell.since) // NANOS), -(-cell.until // NANOS)
    if begin >= end:
        # No second begins in the cell: use the one that covers it.
        begin, end = cell.since // NANOS, cell.since // NANOS + 1
    for piece in pieces:
        if piece is None or cpu >= len(piece.scores):
            continue
        scores = piece.scores[cpu, max(0, begin - piece.first) : max(0, end - piece.first)]
        if not len(scores):
            continue
        place = int(np.argmax(scores))
        if scores[place] != GAP and (found is None or scores[place] > found[1]):
            found = max(begin, piece.first) + place, int(scores[place])
    return None if found is None else (found[0], found[1] >> STATE_BITS, found[1] & _STATE)


def _join(pieces: list[Piece]) -> list[Piece]:
    """Join many pieces into one, which is pooled several times as fast; leave them if it would be mostly empty."""
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


def split_scores(window: Window, scores: Scores) -> Pooled:
    """Split scores into values and states, for the cores that were recorded."""
    seen = np.flatnonzero((scores != GAP).any(axis=1))
    scores = scores[seen]
    gaps = scores == GAP
    values, states = (np.where(gaps, GAP, part) for part in (scores >> STATE_BITS, scores & _STATE))
    return Pooled(window, seen.tolist(), values.astype(np.int16), states.astype(np.int16))
