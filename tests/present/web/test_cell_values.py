"""What is said of a cell, in the heatmap, by `/api/cell` and in the terminal, is one value."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.parts import examples
from tests.present.web.wire import heat
from tests.store.store_rows import MONO, cpu_rows, recorder, tick_at

from exhume.model.clock import MILLIS
from exhume.model.tables import is_held
from exhume.present.cores import worst_cell
from exhume.present.web.handle import RecordingHandle
from exhume.present.web.handlers.timeline import cell, cores, pool_measure
from exhume.present.web.params import CellParams, CoresParams
from exhume.present.web.schemas import Reply
from exhume.store.read.core_grid import CELL_STATES, MEASURES, UNUSUAL_MEASURES
from exhume.store.read.core_seconds import decode_unusual

CORES = 2
DRAWN = ("system", "softirq", "steal", "user")


@st.composite
def ticks(draw: st.DrawFn) -> list[tuple[int, list[dict[str, int]], int]]:
    """Ticks: their length in milliseconds, the states of each core, and how long tasks waited."""
    found = []
    for _ in range(draw(st.integers(2, 14))):
        states = []
        for _ in range(CORES):
            system = draw(st.sampled_from([0, 100, 474, 960, 1000]))
            softirq = draw(st.integers(0, 1000 - system))
            steal = draw(st.sampled_from([0, 0, 50, 500])) * (1000 - system - softirq) // 1000
            user = draw(st.integers(0, 1000 - system - softirq - steal))
            states.append({"system": system, "softirq": softirq, "steal": steal, "user": user})
        found.append((draw(st.sampled_from([1000, 1000, 1000, 990, 1010, 2500])), states, draw(st.integers(0, 3000))))
    return found


def write(directory: Path, drawn: list[tuple[int, list[dict[str, int]], int]], begin_ms: int) -> None:
    writer = recorder(directory, segment_s=7)
    since = begin_ms
    for index, (millis, states, wait) in enumerate(drawn):
        tick = tick_at(0, nanos=millis * MILLIS, start=MONO + since * MILLIS)
        since += millis
        rows = cpu_rows(tick, CORES)
        for name in DRAWN:
            rows[name] = np.array([each[name] for each in states])
        rows["idle"] = 1000 - sum(rows[name] for name in DRAWN)
        # The kernel does not always say how long tasks waited.
        writer.append("cpu", {**rows, "wait_ns": [None if index % 4 == 3 else wait * MILLIS] * CORES})
        writer.commit(tick)
    writer.close()


def answer(reply: Reply) -> Any:
    """A handler's reply, as the readers of answers take it."""
    return SimpleNamespace(status_code=200, content=reply.body, text="")


@pytest.mark.slow
@examples(20)
@given(
    drawn=ticks(),
    begin_ms=st.integers(0, 999),
    measure=st.sampled_from(MEASURES),
    seconds_a_cell=st.integers(1, 5),
    cpu=st.integers(0, CORES - 1),
)
def test_a_cell_has_the_value_that_the_heatmap_draws(drawn, begin_ms, measure, seconds_a_cell, cpu) -> None:
    with TemporaryDirectory() as place:
        write(Path(place), drawn, begin_ms)
        handle = RecordingHandle(Path(place))
        span = handle.span()
        cells = max(1, int(span.seconds / seconds_a_cell))
        header, values, states = heat(answer(cores(handle, CoresParams(cells=cells, measure=measure))))
        total = header["until"] - header["since"]
        line = header["cpus"].index(cpu) if cpu in header["cpus"] else None
        for column in range(cells) if line is not None else ():
            # As the page cuts them: whole milliseconds, both ends rounded up.
            edges = [header["since"] + -(-at * total // cells) for at in (column, column + 1)]
            params = CellParams(at=edges[0], span=edges[1] - edges[0], cpu=cpu, measure=measure)
            answered = json.loads(cell(handle, params).body)
            value = int(values[line, column])
            if value == header["unrecorded"]:
                assert answered["value"] is None
                continue
            assert (answered["value"], answered["state"]) == (value, header["states"][states[line, column]])
            shown = {each["name"]: each["permille"] for each in answered["states"]}
            if measure == "busy" or measure in CELL_STATES[:6]:
                assert shown[answered["state"]] == value
            elif measure in UNUSUAL_MEASURES and answered["state"] != "wait":
                kernel = sum(shown[state] for state in ("system", "irq", "softirq"))
                assert not decode_unusual(measure, value).stall_ms or is_held(kernel, shown["steal"])
        pooled = pool_measure(handle, span, cells, measure).to_grid(measure)
        worst = worst_cell(pooled)
        if worst is not None:
            ranks = np.where(values == header["unrecorded"], -1, values * np.array(header["weights"])[states])
            assert ranks.max() == ranks[header["cpus"].index(worst.cpu)].max()
            assert worst.value == values[header["cpus"].index(worst.cpu)][int(np.argmax(ranks.max(axis=0)))]
