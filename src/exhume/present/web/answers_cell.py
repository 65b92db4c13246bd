"""One cell of the heatmap: the worst second in it, and who ran then."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from starlette.responses import Response

from exhume.model.clock import MILLIS
from exhume.model.window import Window
from exhume.present.web.asked import ms, window_of
from exhume.present.web.framed import modelled
from exhume.present.web.opened import Opened, opened_at
from exhume.present.web.shapes import CellShape, State, TopThread
from exhume.store.read.core_grid import LONGEST_ROW_NS, STATES, columns_for
from exhume.store.read.profile import ProfileFilter

TOP_THREADS = 5


def cell(directory: Path, at: int, cpu: int, span: int, measure: str) -> Response:
    return modelled(_cell_shape(opened_at(directory), at, cpu, span, measure))


def _cell_shape(here: Opened, at: int, cpu: int, span: int, measure: str) -> CellShape:
    recording = here.recording()
    window = window_of(here, at, at + span)
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
    worst = rows.slice(int(np.argmax(_measure_of(rows, measure))), 1).to_pylist()[0]
    second = Window(worst["wall"], worst["wall"] + max(1, worst["span_ms"]) * MILLIS)
    states = {state: worst[state] + (worst["nice"] if state == "user" else 0) for state in STATES}
    profile = recording.profile(second, ProfileFilter(frozenset([cpu])))
    return CellShape(
        cpu=cpu,
        since=ms(second.since),
        until=ms(second.until),
        states=[State(name=name, permille=value) for name, value in states.items()],
        wait_ns=worst["wait_ns"],
        top=_top(recording.selected(second, ProfileFilter(frozenset([cpu])), ["pid", "comm", "weight_us"])),
        samples=profile.samples,
    )


def _measure_of(rows: pa.Table, measure: str) -> Any:
    numbers = {name: pc.fill_null(rows.column(name), 0).to_numpy().astype(np.int64) for name in rows.schema.names}
    if measure == "busy":
        return 1000 - numbers["idle"] - numbers["iowait"]
    if measure == "wait":
        return numbers["wait_ns"]
    return numbers[measure] + (numbers["nice"] if measure == "user" else 0)


def _top(found: Any) -> list[TopThread]:
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
