"""The heatmap of cores x time, one cell of it, and the times at which a frame ran.

Cells are pooled from the seconds of each segment. A sealed segment never changes, so its seconds are computed once per
query (a measure, or a filter) and cached. Pooling keeps the maximum, so one bad second on one core is visible at every
zoom level.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from exhume.model.clock import NANOS, Window
from exhume.present.web.handle import BoundQuery, RecordingHandle, ms
from exhume.present.web.params import CellParams, CoresParams, FrameTimesParams, Refusal
from exhume.present.web.schemas import CellShape, CoresHeader, Reply, framed, json_reply
from exhume.store.read.core_grid import (
    CELL_STATES,
    GAP,
    HELD,
    LONGEST_ROW_NS,
    MOST_PERMILLE,
    STATE_BITS,
    STATES,
    UNUSUAL_MEASURES,
    Piece,
    Scores,
    columns_for,
    greatest_row,
    row_window,
    weights_of,
)
from exhume.store.read.core_seconds import (
    Pooled,
    pool_seconds,
    read_held,
    read_piece,
    split_scores,
    strongest_second,
    unusual_seconds,
    whole_seconds,
    with_normal,
    without_overlaps,
)
from exhume.store.read.index import Segment
from exhume.store.read.profile import ProfileFilter, moments_of_samples
from exhume.store.read.reader import read_available
from exhume.store.read.recording import Recording
from exhume.store.read.stacks import SAMPLED_STATES

# Two bytes hold a cell at full precision; the highest value means that nothing was recorded.
FULL, UNRECORDED = 1000, 65_535
SAMPLED_MEASURES = ("busy", *SAMPLED_STATES)
TOP_THREADS = 5
_ALWAYS = Window(0, 1 << 62)


def cores(handle: RecordingHandle, params: CoresParams) -> Reply:
    """A measure as cores x time; with a filter, the share of each core's time in matching samples."""
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
    """When a frame ran: the share of each core's time in stacks that contain it."""
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
        found = pool_seconds(query.handle.cache.get(recording.holding(window), wanted, load), window, cells)
    recorded = pool_measure(query.handle, window, cells, "busy")
    return _heatmap(_of_recorded_cores(found, recorded), cells, measure, query.cpus)


def _heatmap(pooled: Pooled, cells: int, measure: str, cpus: frozenset[int] | None) -> Reply:
    """The pooled cells as a framed binary response."""
    lines = [i for i, cpu in enumerate(pooled.cpus) if cpus is None or cpu in cpus]
    values, states = pooled.values[lines], pooled.states[lines]
    header: CoresHeader = {
        "since": ms(pooled.window.since),
        "until": ms(pooled.window.until),
        "cells": cells,
        "cpus": [pooled.cpus[i] for i in lines],
        "measure": measure,
        "full": FULL,
        "unrecorded": UNRECORDED,
        "states": list(CELL_STATES),
        "weights": weights_of(measure),
    }
    numbers = np.where(values == GAP, UNRECORDED, values.astype(np.int32)).astype("<u2")
    return framed(header, numbers.tobytes(), np.where(states == GAP, 0, states).astype(np.uint8).tobytes())


def pool_measure(handle: RecordingHandle, window: Window, cells: int, measure: str) -> Pooled:
    """Pool a measure of the cpu table."""
    if window.nanos < cells * NANOS and measure not in UNUSUAL_MEASURES:
        grid = handle.recording().cores(window, cells, measure)
        values = np.where(grid.values == GAP, GAP, np.minimum(grid.values, MOST_PERMILLE)).astype(np.int16)
        return Pooled(grid.window, grid.cpus, values, grid.dominant.astype(np.int16))
    if window == handle.span():
        # Every page asks for this first.
        query = ("pooled", window, cells, measure)
        return handle.of_all_segments(query, lambda: pool_seconds(_pieces(handle, window, measure), window, cells))
    return pool_seconds(_pieces(handle, window, measure), window, cells)


def _pieces(handle: RecordingHandle, window: Window, measure: str) -> Sequence[Piece | None]:
    """The seconds of a measure in the segments of a window."""
    recording = handle.recording()
    held = [] if window.empty else recording.holding(whole_seconds(window))
    if measure not in UNUSUAL_MEASURES:
        return without_overlaps(
            handle.cache.get(held, measure, partial(read_piece, measure=measure, read=read_available))
        )
    segments = with_normal(recording.segments, held)
    return unusual_seconds(handle.cache.get(segments, HELD, partial(read_held, read=read_available)), measure)


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
    """Cells shorter than a second, computed from the samples themselves."""
    if window.empty:
        return split_scores(window, np.zeros((0, cells), np.int16))
    found = moments_of_samples(recording.samples(window, wanted, ["cpu", "weight_us"]))
    cores = max(recording.facts.cores, int(found.cpus.max(initial=-1)) + 1)
    place = found.cpus * cells + (found.walls - window.since) * cells // window.nanos
    taken = np.bincount(place, found.weights_us, cores * cells).reshape(cores, cells)
    scores = _permille(taken, window.nanos / cells)
    for gap in recording.gaps(window):
        first, last = ((edge - window.since) * cells // window.nanos for edge in (gap.since, gap.until))
        scores[:, first:last] = GAP
    return split_scores(window, scores)


def _permille(taken_us: npt.NDArray[Any], nanos: float) -> Scores:
    """CPU time as permille of a duration, with the state bits left 0: samples have no dominant state."""
    part = np.minimum(taken_us * 1e6 / nanos, 1000).astype(np.int16)
    scores: Scores = part << STATE_BITS
    return scores


def _of_recorded_cores(found: Pooled, recorded: Pooled) -> Pooled:
    """Restrict cells to recorded cores: only the cpu table says whether a core without samples was idle, offline or
    absent."""
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


def cell(handle: RecordingHandle, params: CellParams) -> Reply:
    """One cell of the heatmap: its value and dominant state, all states of the second that produced the value, and the
    threads that ran then."""
    recording, window = handle.recording(), handle.window(params.at, params.at + params.span)
    shape: CellShape = {
        "cpu": params.cpu,
        "since": ms(window.since),
        "until": ms(window.until),
        "value": None,
        "state": None,
        "states": [],
        "wait_ns": None,
        "top": [],
        "samples": 0,
    }
    found = _cell_value(handle, window, params)
    if found is None:
        return json_reply(shape)
    within, shape["value"], state = found
    shape["state"] = CELL_STATES[state]
    measure = HELD if params.measure in UNUSUAL_MEASURES else params.measure
    reaching = Window(within.since - LONGEST_ROW_NS, within.until)
    rows = recording.read("cpu", reaching, [*columns_for(HELD), "wall"], [params.cpu])
    row = greatest_row(rows, measure, within)
    if row is None:
        return json_reply(shape)
    worst, second = rows.slice(row, 1).to_pylist()[0], row_window(rows, row)
    ran: Counter[tuple[str, int]] = Counter()
    for _, samples in recording.samples(second, ProfileFilter(frozenset([params.cpu])), ["pid", "comm", "weight_us"]):
        shape["samples"] += samples.num_rows
        for each in samples.to_pylist():
            ran[each["comm"], each["pid"]] += each["weight_us"]
    states = {state: worst[state] + (worst["nice"] if state == "user" else 0) for state in STATES}
    shape["since"], shape["until"] = ms(second.since), ms(second.until)
    shape["states"] = [{"name": name, "permille": value} for name, value in states.items()]
    shape["wait_ns"] = worst["wait_ns"]
    shape["top"] = [
        {"comm": comm, "pid": pid, "share": round(weight / (ran.total() or 1), 4)}
        for (comm, pid), weight in ran.most_common(TOP_THREADS)
    ]
    return json_reply(shape)


def _cell_value(handle: RecordingHandle, window: Window, params: CellParams) -> tuple[Window, int, int] | None:
    """The second that produced a cell's value, the value, and its state, consistent with what `cores` returns for that
    cell."""
    if window.empty:
        return None
    if window.nanos < NANOS and params.measure not in UNUSUAL_MEASURES:
        grid = handle.recording().cores(window, 1, params.measure)
        line = grid.cpus.index(params.cpu) if params.cpu in grid.cpus else None
        if line is None or grid.values[line, 0] == GAP:
            return None
        return window, min(int(grid.values[line, 0]), MOST_PERMILLE), int(grid.dominant[line, 0])
    first = window.since <= handle.span().since
    found = strongest_second(_pieces(handle, window, params.measure), params.cpu, window, first=first)
    if found is None:
        return None
    second, value, state = found
    return Window(second * NANOS, (second + 1) * NANOS), value, state
