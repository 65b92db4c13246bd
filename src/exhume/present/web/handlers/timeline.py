"""The heatmap of cores x time, one cell of it, and when a frame ran."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import MILLIS, Window
from exhume.present.web.core_grid import Pooled, pool_measure, pool_samples
from exhume.present.web.handle import RecordingHandle
from exhume.present.web.params import CellParams, CoresParams, FrameTimesParams
from exhume.present.web.query import BoundQuery, ms, window_of
from exhume.present.web.reply import Refusal, Reply, framed, json_reply
from exhume.present.web.schemas import CellShape, State, TopThread
from exhume.store.read.core_grid import GAP, LONGEST_ROW_NS, STATES, columns_for
from exhume.store.read.profile import ProfileFilter
from exhume.store.read.stacks import SAMPLED_STATES

# A byte holds half percents and less; the last value means that nothing was recorded.
FULL, UNRECORDED = 250, 255
SAMPLED_MEASURES = ("busy", *SAMPLED_STATES)
TOP_THREADS = 5


def cores(handle: RecordingHandle, params: CoresParams) -> Reply:
    """Cores x time of a measure; with a filter, the share of each core's time in matching samples."""
    query = BoundQuery.of(handle, params)
    if not query.filter.looks_at_samples:
        pooled = pool_measure(handle, query.window, params.cells, params.measure)
        return _heatmap(pooled, params.cells, params.measure, query.cpus)
    if params.measure not in SAMPLED_MEASURES:
        measures = ", ".join(SAMPLED_MEASURES)
        raise Refusal(422, f"a filter selects samples, which have {measures}, not {params.measure}")
    state = None if params.measure == "busy" else params.measure
    return _matching(query.with_filter(replace(query.filter, state=state)), params.cells, params.measure)


def frame_times(handle: RecordingHandle, params: FrameTimesParams) -> Reply:
    """When a frame was on a core: the share of each core's time in stacks that hold it."""
    query = BoundQuery.of(handle, params)
    if params.kind_of_frame == "comm":
        wanted = replace(query.filter, comm=params.name)
    else:
        wanted = replace(query.filter, frame=(params.kind_of_frame, params.module or "", params.name))
    return _matching(query.with_filter(wanted), params.cells, "busy")


def _matching(query: BoundQuery, cells: int, measure: str) -> Reply:
    query.check_samples("a filter reads every sample")
    pooled = pool_samples(query.handle, query.window, cells, query.filter)
    return _heatmap(pooled, cells, "matching" if measure == "busy" else measure, query.cpus)


def _heatmap(pooled: Pooled, cells: int, measure: str, cpus: frozenset[int] | None) -> Reply:
    """Pooled cells as framed numbers."""
    lines = [i for i, cpu in enumerate(pooled.cpus) if cpus is None or cpu in cpus]
    values, states = pooled.values[lines], pooled.states[lines]
    scaled = np.minimum(values.astype(np.int32) * FULL // 1000, FULL)
    # A value above zero is drawn, however small.
    scaled = np.where((values > 0) & (scaled == 0), 1, scaled)
    header = {
        "since": ms(pooled.window.since),
        "until": ms(pooled.window.until),
        "cells": cells,
        "cpus": [pooled.cpus[i] for i in lines],
        "measure": measure,
        "full": FULL,
        "unrecorded": UNRECORDED,
        "states": list(STATES),
    }
    return framed(
        header,
        np.where(values == GAP, UNRECORDED, scaled).astype(np.uint8),
        np.where(states == GAP, UNRECORDED, states).astype(np.uint8),
    )


def cell(handle: RecordingHandle, params: CellParams) -> Reply:
    """One cell of the heatmap: all states of its worst second, and the threads that ran then."""
    return json_reply(_cell_shape(handle, params))


def _cell_shape(handle: RecordingHandle, params: CellParams) -> CellShape:
    cpu = params.cpu
    recording = handle.recording()
    window = window_of(handle, params.at, params.at + params.span)
    reaching = Window(window.since - LONGEST_ROW_NS, window.until)
    rows = recording.read("cpu", reaching, [*columns_for("wait"), "wall"], [cpu])
    starts, lengths = rows.column("wall").to_numpy(), rows.column("span_ms").to_numpy().astype(np.int64) * MILLIS
    inside = (starts + lengths > window.since) & (starts < window.until)
    empty = CellShape(
        cpu=cpu, since=ms(window.since), until=ms(window.until), states=[], wait_ns=None, top=[], samples=0
    )
    if not inside.any():
        return empty
    rows = rows.filter(pa.array(inside))
    worst = rows.slice(int(np.argmax(_measure_of(rows, params.measure))), 1).to_pylist()[0]
    second = Window(worst["wall"], worst["wall"] + max(1, worst["span_ms"]) * MILLIS)
    states = {state: worst[state] + (worst["nice"] if state == "user" else 0) for state in STATES}
    profile = recording.profile(second, ProfileFilter(frozenset([cpu])))
    return CellShape(
        cpu=cpu,
        since=ms(second.since),
        until=ms(second.until),
        states=[State(name=name, permille=value) for name, value in states.items()],
        wait_ns=worst["wait_ns"],
        top=_top(recording.samples(second, ProfileFilter(frozenset([cpu])), ["pid", "comm", "weight_us"])),
        samples=profile.samples,
    )


def _measure_of(rows: pa.Table, measure: str) -> Any:
    numbers = {name: pc.fill_null(rows.column(name), 0).to_numpy().astype(np.int64) for name in rows.schema.names}
    if measure == "busy":
        return 1000 - numbers["idle"] - numbers["iowait"]
    if measure == "wait":
        return numbers["wait_ns"]
    return numbers[measure] + (numbers["nice"] if measure == "user" else 0)


def _top(found: Iterable[tuple[Any, pa.Table]]) -> list[TopThread]:
    sums: dict[tuple[str, int], int] = {}
    for _, rows in found:
        threads = zip(
            rows.column("comm").to_pylist(),
            rows.column("pid").to_pylist(),
            rows.column("weight_us").to_pylist(),
            strict=True,
        )
        for comm, pid, weight in threads:
            sums[comm, pid] = sums.get((comm, pid), 0) + weight
    total = sum(sums.values()) or 1
    ranked = sorted(sums.items(), key=lambda each: -each[1])[:TOP_THREADS]
    return [TopThread(comm=comm, pid=pid, share=round(weight / total, 4)) for (comm, pid), weight in ranked]
