"""A few rows become the same message that Arrow writes for them, byte by byte."""

import io
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.model.tables import TABLES, columns_of
from exhume.store.format.schema import schema_of
from exhume.store.write.few_rows import MOST_ROWS, message_of
from exhume.store.write.writer import _encode, to_batch

_RANGES = {
    **{f"uint{bits}": st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    **{f"int{bits}": st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (32, 64)},
    "float64": st.floats(allow_nan=False),
    "string": st.text(st.characters(codec="utf-8"), max_size=12),
    "list<uint64>": st.lists(st.integers(0, 2**64 - 1), max_size=9),
}


@st.composite
def few_rows_of_a_table(draw: st.DrawFn) -> tuple[str, dict[str, list[Any]]]:
    table, count = draw(st.sampled_from(sorted(TABLES))), draw(st.integers(1, 5) | st.integers(6, 70))
    columns: dict[str, list[Any]] = {}
    for column in columns_of(table):
        values = _RANGES[column.kind]
        if column.nullable and draw(st.booleans()):
            if draw(st.booleans()):
                continue
            values = st.none() | values
        columns[column.name] = draw(st.lists(values, min_size=count, max_size=count))
    return table, columns


@given(few_rows_of_a_table())
def test_the_message_is_the_one_of_arrow(given_rows: tuple[str, dict[str, list[Any]]]) -> None:
    table, columns = given_rows
    message = message_of(table, columns, _encode)
    assert message is not None
    batch = to_batch(table, columns)
    assert batch is not None and message.data == _encode(table, batch)
    assert message.num_rows == batch.num_rows
    stream = io.BytesIO(schema_of(table).serialize().to_pybytes() + message.data)
    assert pa.ipc.open_stream(stream).read_all().to_batches()[0].equals(batch)


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_number_of_rows_of_every_table(table: str) -> None:
    # Without a missing value, and with one in the first or the last row.
    for count, gap in product([1, 7, 8, 9, 64, 65, MOST_ROWS], [None, 0, -1]):
        _check_rows(table, count, gap)


def _check_rows(table: str, count: int, gap: int | None) -> None:
    columns: dict[str, list[Any]] = {}
    for number, column in enumerate(columns_of(table)):
        cells: list[Any] = [(number + place) % 100 for place in range(count)]
        if column.kind == "string":
            cells = ["\u00fc" * cell for cell in cells]
        elif column.kind == "list<uint64>":
            cells = [[cell] * cell for cell in cells]
        if gap is not None and column.nullable:
            cells[gap] = None
        columns[column.name] = cells
    message = message_of(table, columns, _encode)
    batch = to_batch(table, columns)
    assert message is not None and batch is not None and message.data == _encode(table, batch), (count, gap)


def test_arrays_are_taken_as_they_are() -> None:
    columns = {
        "time_ms": np.array([1, 2]),
        "cpu": np.array([0, 1], np.uint16),
        "pid": np.array([3, 4], np.int32),
        "tid": np.array([3, 4], np.int32),
        "comm": np.array(["one", "zwei \u00fc"], object),
        "stack": np.array([2**64 - 1, 0], np.uint64),
        "weight_us": np.array([5, 6], np.uint32),
    }
    message = message_of("samples", columns, _encode)
    batch = to_batch("samples", columns)
    assert message is not None and batch is not None and message.data == _encode("samples", batch)


@pytest.mark.parametrize("name", [b"bytes", 1, None, "\udc80"], ids=["bytes", "a number", "missing", "a surrogate"])
def test_text_that_is_none_is_left_to_arrow(name: object) -> None:
    assert message_of("frames", {"frame": [1], "kind": ["user"], "module": ["m"], "name": [name]}, _encode) is None


@pytest.mark.parametrize("frames", [[None], [-1], [2**64], ["1"], None, 1], ids=repr)
def test_lists_that_do_not_fit_are_left_to_arrow(frames: object) -> None:
    assert message_of("stacks", {"stack": [1], "frames": [frames]}, _encode) is None


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"time": [], "wall": []},
        {"time": [1], "wall": [1, 2]},
        {"time": [1], "wall": [None]},
        {"time": [1]},
        {"time": [1], "wall": [1.5]},
        {"time": [1], "wall": [2**63]},
        {"time": [1], "wall": ["1"]},
        {"time": [1], "wall": [1], "other": [1]},
        {"time": [1], "wall": (1,)},
        {"time": [1] * (MOST_ROWS + 1), "wall": [1] * (MOST_ROWS + 1)},
    ],
)
def test_what_does_not_fit_is_left_to_arrow(columns: dict[str, Any]) -> None:
    assert message_of("anchors", columns, _encode) is None


def test_another_layout_than_expected_is_left_to_arrow() -> None:
    def swapped(table: str, batch: pa.RecordBatch) -> bytes:
        message = _encode(table, batch)
        return message[:-16] + message[-8:] + message[-16:-8]

    def longer(table: str, batch: pa.RecordBatch) -> bytes:
        return _encode(table, batch) + bytes(8)

    assert message_of("anchors", {"time": [1], "wall": [2]}, swapped) is None
    assert message_of("anchors", {"time": [1], "wall": [2]}, longer) is None
