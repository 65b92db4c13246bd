"""Few rows of numbers become the same message that Arrow writes for them, byte by byte."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.model.tables import TABLES, columns_of
from exhume.store.format.schema import schema_of
from exhume.store.write import few_rows
from exhume.store.write.few_rows import MOST_ROWS, message_of
from exhume.store.write.writer import _encode, to_batch

NUMBERS = ("cpu", "sampling", "node", "self", "softnet", "anchors")
_RANGES = {
    **{f"uint{bits}": st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    **{f"int{bits}": st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (32, 64)},
    "float64": st.floats(allow_nan=False),
}


@st.composite
def rows_of_numbers(draw: st.DrawFn) -> tuple[str, dict[str, list[Any]]]:
    table, count = draw(st.sampled_from(NUMBERS)), draw(st.integers(1, 5))
    columns: dict[str, list[Any]] = {}
    for column in columns_of(table):
        values = _RANGES[column.kind]
        if column.nullable and draw(st.booleans()):
            if draw(st.booleans()):
                continue
            values = st.none() | values
        columns[column.name] = draw(st.lists(values, min_size=count, max_size=count))
    return table, columns


@given(rows_of_numbers())
def test_the_message_is_the_one_of_arrow(given_rows: tuple[str, dict[str, list[Any]]]) -> None:
    table, columns = given_rows
    message = message_of(table, columns, _encode)
    assert message is not None
    batch = to_batch(table, columns)
    assert message.data == _encode(table, batch)
    assert message.num_rows == batch.num_rows
    stream = io.BytesIO(schema_of(table).serialize().to_pybytes() + message.data)
    assert pa.ipc.open_stream(stream).read_all().to_batches()[0].equals(batch)


def test_tables_with_text_are_left_to_arrow() -> None:
    left = {table for table in TABLES if any(column.kind == "string" for column in columns_of(table))}
    assert {"events", "samples"} <= left
    for table in left:
        assert message_of(table, {"time": [1]}, _encode) is None


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


def test_another_body_than_expected_is_left_to_arrow() -> None:
    few_rows._shape.cache_clear()
    try:

        def swapped(table: str, batch: pa.RecordBatch) -> bytes:
            message = _encode(table, batch)
            return message[:-16] + message[-8:] + message[-16:-8]

        assert message_of("anchors", {"time": [1], "wall": [2]}, swapped) is None
    finally:
        few_rows._shape.cache_clear()
