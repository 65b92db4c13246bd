"""The heatmap of cores x time, one cell of it, and when a frame ran.

Cells are pooled from the seconds of each segment. A sealed segment never changes, so its seconds are computed once for
each query (a measure, or a filter) and cached. Pooling keeps the greatest value, so one bad second on one core is seen
at every zoom.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.present.web.handle import BoundQuery, RecordingHandle, ms
from exhume.present.web.params import CellParams, CoresParams, FrameTimesParams, Refusal
from exhume.present.web.schemas import CellShape, CoresHeader, Reply, framed, json_reply
from exhume.store.read.core_grid import (
    GAP,
    LONGEST_ROW_NS,
    MOST_PERMILLE,
    OVERVIEW_MEASURE,
    STATE_BITS,
    STATES,
    Piece,
    Scores,
    columns_for,
    read_overview,
    seconds_of,
)
from exhume.store.read.index import Segment
from exhume.store.read.profile import ProfileFilter, moments_of_samples
from exhume.store.read.reader import Request, read_available
from exhume.store.read.recording import Recording
from exhume.store.read.stacks import SAMPLED_STATES

# A byte holds half percents and less; the last value means that nothing was recorded.
FULL, UNRECORDED = 250, 255
SAMPLED_MEASURES = ("busy", *SAMPLED_STATES)
TOP_THREADS = 5
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


def cores(handle: RecordingHandle, params: CoresParams) -> Reply:
    """Cores x time of a measure; with a filter, the share of each core's time in matching samples."""
    query = BoundQuery.of(handle, params)
    if not query.filter.looks_at_samples:
        pooled = pool_measure(handle, query.window, params.cells, params.measure)
        return _heatmap(pooled, params.cells, params.measure, query.cpus)
    if params.measure not in SAMPLED_MEASURES:
        measures = ", ".join(SAMPLED_MEASURES)
        raise Refusal(422, f"a filter selects samples, which have {measures}, not {params.measure}")
    if params.measure == "busy":
        return _matching_samples(query, query.filter, params.cells, "matching")
    return _matching_samples(query, replace(query.filter, state=params.measure), params.cells, params.measure)


def frame_times(handle: RecordingHandle, params: FrameTimesParams) -> Reply:
    """When a frame was on a core: the share of each core's time in stacks that hold it."""
    query = BoundQuery.of(handle, params)
    if params.kind_of_frame == "comm":
        wanted = replace(query.filter, comm=params.name)
    else:
        wanted = replace(query.filter, frame=(params.kind_of_frame, params.module or "", params.name))
    return _matching_samples(query, wanted, params.cells, "matching")


def _matching_samples(query: BoundQuery, wanted: ProfileFilter, cells: int, measure: str) -> Reply:
    """The share of each core's time in samples that match a filter."""
    query.check_samples("a filter reads every sample")
    recording, window = query.recording, query.window
    if window.nanos < cells * NANOS:
        found = _exact_samples(recording, window, cells, wanted)
    else:
        load = partial(_matching, recording=recording, wanted=wanted, min_cores=recording.facts.cores)
        found = _pool(query.handle.cache.get(recording.holding(window), wanted, load), window, cells)
    recorded = pool_measure(query.handle, window, cells, "busy")
    return _heatmap(_of_recorded_cores(found, recorded), cells, measure, query.cpus)


def _heatmap(pooled: Pooled, cells: int, measure: str, cpus: frozenset[int] | None) -> Reply:
    """Pooled cells as framed numbers."""
    lines = [i for i, cpu in enumerate(pooled.cpus) if cpus is None or cpu in cpus]
    values, states = pooled.values[lines], pooled.states[lines]
    scaled = np.minimum(values.astype(np.int32) * FULL // 1000, FULL)
    # A value above zero is drawn, however small.
    scaled = np.where((values > 0) & (scaled == 0), 1, scaled)
    header: CoresHeader = {
        "since": ms(pooled.window.since),
        "until": ms(pooled.window.until),
        "cells": cells,
        "cpus": [pooled.cpus[i] for i in lines],
        "measure": measure,
        "full": FULL,
        "unrecorded": UNRECORDED,
        "states": list(STATES),
    }
    arrays = (np.where(values == GAP, UNRECORDED, scaled), np.where(states == GAP, UNRECORDED, states))
    return framed(header, *(array.astype(np.uint8).tobytes() for array in arrays))


def pool_measure(handle: RecordingHandle, window: Window, cells: int, measure: str) -> Pooled:
    """A measure of the cpu table."""
    recording = handle.recording()
    if window.nanos < cells * NANOS:
        grid = recording.cores(window, cells, measure)
        values = np.where(grid.values == GAP, GAP, np.minimum(grid.values, MOST_PERMILLE)).astype(np.int16)
        return Pooled(grid.window, grid.cpus, values, grid.dominant.astype(np.int16))
    load = partial(_measured, measure=measure, columns=columns_for(measure))
    return _pool(handle.cache.get(recording.holding(window), measure, load), window, cells)


def _measured(segment: Segment, measure: str, columns: list[str]) -> Piece | None:
    if measure == OVERVIEW_MEASURE and segment.sealed:
        overview = read_overview(segment.path, segment.name)
        if overview is not None:
            return overview
    rows = read_available(segment, Request("cpu", None, columns))
    return None if rows is None else seconds_of(segment.name, rows, measure)


def _matching(segment: Segment, recording: Recording, wanted: ProfileFilter, min_cores: int) -> Piece | None:
    found = moments_of_samples(recording.samples_in([segment], _ALWAYS, wanted, ["cpu", "weight_us"]))
    span = segment.name.span
    ends = [] if span.empty else [span.since, span.until - 1]
    seconds_seen = np.concatenate([found.walls, np.array(ends, np.int64)]) // NANOS
    if not len(seconds_seen):
        return None
    first = int(seconds_seen.min())
    seconds = int(seconds_seen.max()) - first + 1
    cores = max(min_cores, int(found.cpus.max(initial=-1)) + 1)
    place = found.cpus * seconds + (found.walls // NANOS - first)
    taken = np.bincount(place, found.weights_us, cores * seconds).reshape(cores, seconds)
    return Piece(first, _permille(taken, NANOS))


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
    values[[place[cpu] for cpu in recorded.cpus]] = np.where(recorded.values == GAP, GAP, 0)
    mine = [i for i, cpu in enumerate(found.cpus) if cpu in place]
    lines = [place[found.cpus[i]] for i in mine]
    values[lines] = np.maximum(values[lines], np.where(found.values[mine] > 0, found.values[mine], GAP))
    return Pooled(found.window, cpus, values, np.where(values == GAP, GAP, 0).astype(np.int16))


def _pool(pieces: list[Piece | None], window: Window, cells: int) -> Pooled:
    """The greatest second of each cell; a second counts in the cell in which it begins."""
    known = [piece for piece in pieces if piece is not None]
    pooled = np.full((max((len(piece.scores) for piece in known), default=0), cells), GAP, np.int16)
    for piece in _join(known):
        begin = (piece.first + np.arange(piece.scores.shape[1], dtype=np.int64)) * NANOS - window.since
        inside = (begin > -NANOS) & (begin < window.nanos)
        if not inside.any():
            continue
        # In milliseconds: months in thousands of cells stay within 64 bits.
        cell = np.clip(begin[inside] // MILLIS * cells // (window.nanos // MILLIS), 0, cells - 1)
        starts = np.flatnonzero(np.diff(cell, prepend=-1))
        greatest = np.maximum.reduceat(piece.scores[:, inside], starts, axis=1)
        lines, where = len(piece.scores), cell[starts]
        pooled[:lines, where] = np.maximum(pooled[:lines, where], greatest)
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


def _split(window: Window, scores: Scores) -> Pooled:
    seen = np.flatnonzero((scores != GAP).any(axis=1))
    scores = scores[seen]
    gaps = scores == GAP
    values, states = (np.where(gaps, GAP, part) for part in (scores >> STATE_BITS, scores & ((1 << STATE_BITS) - 1)))
    return Pooled(window, seen.tolist(), values.astype(np.int16), states.astype(np.int16))


def cell(handle: RecordingHandle, params: CellParams) -> Reply:
    """One cell of the heatmap: all states of its worst second, and the threads that ran then."""
    recording, window = handle.recording(), handle.window(params.at, params.at + params.span)
    reaching = Window(window.since - LONGEST_ROW_NS, window.until)
    rows = recording.read("cpu", reaching, [*columns_for("wait"), "wall"], [params.cpu])
    starts, lengths = rows.column("wall").to_numpy(), rows.column("span_ms").to_numpy().astype(np.int64) * MILLIS
    rows = rows.filter(pa.array((starts + lengths > window.since) & (starts < window.until)))
    shape: CellShape = {
        "cpu": params.cpu,
        "since": ms(window.since),
        "until": ms(window.until),
        "states": [],
        "wait_ns": None,
        "top": [],
        "samples": 0,
    }
    if not rows.num_rows:
        return json_reply(shape)
    worst = rows.slice(int(np.argmax(_measure_of(rows, params.measure))), 1).to_pylist()[0]
    second = Window(worst["wall"], worst["wall"] + max(1, worst["span_ms"]) * MILLIS)
    ran: Counter[tuple[str, int]] = Counter()
    for _, samples in recording.samples(second, ProfileFilter(frozenset([params.cpu])), ["pid", "comm", "weight_us"]):
        shape["samples"] += samples.num_rows
        for row in samples.to_pylist():
            ran[row["comm"], row["pid"]] += row["weight_us"]
    states = {state: worst[state] + (worst["nice"] if state == "user" else 0) for state in STATES}
    shape["since"], shape["until"] = ms(second.since), ms(second.until)
    shape["states"] = [{"name": name, "permille": value} for name, value in states.items()]
    shape["wait_ns"] = worst["wait_ns"]
    shape["top"] = [
        {"comm": comm, "pid": pid, "share": round(weight / (ran.total() or 1), 4)}
        for (comm, pid), weight in ran.most_common(TOP_THREADS)
    ]
    return json_reply(shape)


def _measure_of(rows: pa.Table, measure: str) -> Any:
    numbers = {name: pc.fill_null(rows.column(name), 0).to_numpy().astype(np.int64) for name in rows.schema.names}
    if measure == "busy":
        return 1000 - numbers["idle"] - numbers["iowait"]
    if measure == "wait":
        return numbers["wait_ns"]
    return numbers[measure] + (numbers["nice"] if measure == "user" else 0)
