"""Any batches in = the same rows out: while live, after sealing, and after a crash."""

import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.parts import examples
from tests.store.store_rows import MONO, OFFSET, as_tuples, recorder, rows_of, tick_at

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.tables import TABLES, columns_of
from exhume.store.read.recording import Recording

WRITTEN = [table for table in TABLES if table != "anchors"]
UNIQUE = {"stacks": "stack", "frames": "frame"}

_RANGES = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{kind: st.integers(0, 2**bits - 1) for kind, bits in _RANGES.items()},
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    "list<uint64>": st.lists(st.integers(0, 2**64 - 1), max_size=6),
}
# Mostly inside the tick; sometimes long before it, as a kernel-log line that was read late.
_LATE = st.one_of(st.integers(0, NANOS - 1), st.integers(-3600 * NANOS, 5 * NANOS))


@st.composite
def batches(draw: st.DrawFn, table: str, start: int) -> dict[str, list[Any]]:
    count = draw(st.integers(1, 5))
    columns: dict[str, list[Any]] = {}
    for column in columns_of(table):
        if column.name == "time":
            columns["time"] = [start + draw(_LATE) for _ in range(count)]
        elif column.name == "time_ms":
            columns["time_ms"] = [(start + draw(_LATE)) // MILLIS for _ in range(count)]
        else:
            value = _VALUES[column.kind]
            value = st.none() | value if column.nullable else value
            columns[column.name] = [draw(value) for _ in range(count)]
    if draw(st.booleans()):
        left_out = [column.name for column in columns_of(table) if column.nullable]
        columns = {name: values for name, values in columns.items() if name not in left_out}
    return columns


@st.composite
def ticks_of_batches(draw: st.DrawFn) -> list[list[tuple[str, dict[str, list[Any]]]]]:
    """For each tick, the batches that are appended in it."""
    written: dict[str, set[int]] = {name: set() for name in UNIQUE}
    ticks = []
    for index in range(draw(st.integers(1, 7))):
        tick = []
        for table in draw(st.lists(st.sampled_from(WRITTEN), max_size=4)):
            columns = draw(batches(table, tick_at(index).start))
            key = UNIQUE.get(table)
            if key is not None:
                # A hash stands for one content: no two stacks have one name.
                fresh = [i for i, value in enumerate(columns[key]) if value not in columns[key][:i]]
                fresh = [i for i in fresh if columns[key][i] not in written[table]]
                written[table] |= set(columns[key])
                columns = {name: [values[i] for i in fresh] for name, values in columns.items()}
            tick.append((table, columns))
        ticks.append(tick)
    return ticks


def check(directory: Path, written: dict[str, list[tuple[Any, ...]]], state: str) -> None:
    recording = Recording.open(directory)
    for table, rows in written.items():
        expected = sorted(set(rows), key=repr) if table == "processes" else sorted(rows, key=repr)
        assert rows_of(recording, table) == expected, f"{table} {state}"
    assert recording.skipped == []


@pytest.mark.slow
@examples(30)
@given(ticks=ticks_of_batches(), segment_s=st.sampled_from([1, 2, 60]))
def test_any_batches_in_are_the_same_rows_out(ticks: list[list[Any]], segment_s: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        directory, crashed = Path(scratch) / "recording", Path(scratch) / "crashed"
        writer = recorder(directory, segment_s=segment_s)
        written: dict[str, list[tuple[Any, ...]]] = {table: [] for table in WRITTEN}
        for index, tick in enumerate(ticks):
            for table, columns in tick:
                writer.append(table, columns)
                count = len(next(iter(columns.values())))
                names = [column.name for column in columns_of(table)]
                whole = {name: columns.get(name, [None] * count) for name in names}
                written[table] += as_tuples(names, whole)
            writer.commit(tick_at(index))
            check(directory, _one_telling(written), "while live")
        if segment_s == 60:
            # Nothing is being sealed at this moment: what a killed recorder would leave behind.
            shutil.copytree(directory, crashed)
        writer.close()
        check(directory, _one_telling(written), "sealed")
        if segment_s == 60:
            recorder(crashed, segment_s=segment_s).close()
            check(crashed, _one_telling(written), "recovered")


def _one_telling(written: dict[str, list[tuple[Any, ...]]]) -> dict[str, list[tuple[Any, ...]]]:
    """Processes are recorded again and again; over a recording each comes once, as it was first recorded."""
    firsts: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in sorted(written["processes"], key=lambda row: (row[0], repr(row))):
        firsts.setdefault(row[1:], row)
    return {**written, "processes": list(firsts.values())}


@pytest.mark.slow
@examples(40)
@given(
    times=st.lists(st.integers(-5 * NANOS, 10 * NANOS), min_size=1, max_size=30),
    cuts=st.lists(st.integers(-6 * NANOS, 11 * NANOS), min_size=1, max_size=6),
    segment_s=st.sampled_from([2, 60]),
)
def test_neighbouring_windows_share_nothing_and_miss_nothing(times: list[int], cuts: list[int], segment_s: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        writer = recorder(Path(scratch), segment_s=segment_s)
        for index, time in enumerate(times):
            at = [MONO + time]
            writer.append("events", {"time": at, "source": ["t"], "kind": ["k"], "severity": ["info"], "text": ["x"]})
            sample = {"time_ms": [at[0] // MILLIS], "cpu": [0], "pid": [1], "tid": [1], "comm": ["c"], "stack": [1]}
            writer.append("samples", {**sample, "weight_us": [1]})
            writer.commit(tick_at(index))
        writer.close()
        recording = Recording.open(scratch)
        first, last = MONO - 10**4 * NANOS + OFFSET, MONO + 10**4 * NANOS + OFFSET
        bounds = [first, *sorted(MONO + cut + OFFSET for cut in cuts), last]
        windows = [Window(a, b) for a, b in pairwise(bounds)]
        for table, scale in (("events", 1), ("samples", MILLIS)):
            walls = [recording.read(table, window, ["wall"]).column("wall").to_pylist() for window in windows]
            for window, inside in zip(windows, walls, strict=True):
                assert all(window.contains(wall) for wall in inside)
            expected = sorted((MONO + time) // scale * scale + OFFSET for time in times)
            assert sorted(wall for inside in walls for wall in inside) == expected
        assert sum(recording.profile(window).samples for window in windows) == len(times)
