"""Encode a few rows of numbers as an Arrow IPC stream message without building Arrow arrays.

Most tables get one or two rows per second, and Arrow takes far longer to build and serialise a batch of one row than to
copy it. Messages of the same shape (the number of rows, and which values are missing) differ only in their body, and
the body of a batch of numbers is the values one after another. Arrow therefore writes one template message per shape,
which is cached; the values of later messages are packed into its body. If Arrow's body does not have the expected
layout, Arrow writes all messages of that shape.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from exhume.model.tables import Columns, columns_of
from exhume.store.format.schema import schema_of

# The bitmap of the rows that have a value is a single 64-bit word.
MOST_ROWS = 64
_SHAPES_KEPT = 256
# struct format codes by column kind.
_CODES = {"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "int32": "i", "int64": "q", "float64": "d"}

# For each column, the bitmap of the rows that have a value, or None if all have one.
Gaps = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """Rows as an encapsulated message whose checksum is not set yet."""

    num_rows: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Shape:
    """The head that all messages of a shape share, and the packing of their body."""

    head: bytes
    body: struct.Struct


@dataclass(frozen=True, slots=True)
class _Columns:
    """A table's columns: their names, struct codes, and whether values may be missing."""

    names: tuple[str, ...]
    set_of_names: frozenset[str]
    codes: tuple[str, ...]
    nullable: tuple[bool, ...]


@cache
def _columns(table: str) -> _Columns | None:
    """Describe a table's columns; None if any of them is not numeric."""
    columns = columns_of(table)
    if not all(column.kind in _CODES for column in columns):
        return None
    names = tuple(column.name for column in columns)
    codes = tuple(_CODES[column.kind] for column in columns)
    return _Columns(names, frozenset(names), codes, tuple(column.nullable for column in columns))


def message_of(table: str, columns: Columns, encode: Callable[[str, pa.RecordBatch], bytes]) -> Message | None:
    """Encode the rows of a table; None if the fast path can't, or if they don't fit the table. `encode` has Arrow write
    a message."""
    known = _columns(table)
    if known is None or not columns:
        return None
    rows = len(next(iter(columns.values())))
    lists = list(map(columns.get, known.names))
    if not 0 < rows <= MOST_ROWS or not known.set_of_names >= columns.keys():
        return None
    gaps: list[int | None] = []
    flat: list[Any] = []
    for cells, nullable in zip(lists, known.nullable, strict=True):
        values = cells if type(cells) is list else _values(cells, rows)
        if len(values) != rows:
            return None
        if None not in values:
            gaps.append(None)
            flat += values
            continue
        if not nullable:
            return None
        gaps.append(sum(1 << place for place, value in enumerate(values) if value is not None))
        flat.append(gaps[-1])
        flat += [0 if value is None else value for value in values]
    shape = _shape(table, rows, tuple(gaps), encode)
    if shape is None:
        return None
    try:
        return Message(rows, shape.head + shape.body.pack(*flat))
    except struct.error:
        # Not a number, or out of range for the column's type.
        return None


def _values(column: Any, rows: int) -> list[Any]:
    """A column as a list, all None if it was left out. Empty if the type of the values needs closer inspection."""
    if column is None:
        return [None] * rows
    return column.tolist() if isinstance(column, np.ndarray) and column.dtype.kind in "iu" else []


@lru_cache(maxsize=_SHAPES_KEPT)
def _shape(table: str, rows: int, gaps: Gaps, encode: Callable[[str, pa.RecordBatch], bytes]) -> _Shape | None:
    """Build a shape from a message that Arrow writes; None if its body does not have the expected layout."""
    known = _columns(table)
    assert known is not None
    parts: list[str] = []
    flat: list[int] = []
    arrays: list[pa.Array] = []
    for number, (code, gap, field) in enumerate(zip(known.codes, gaps, schema_of(table), strict=True)):
        present = [gap is None or bool(gap >> place & 1) for place in range(rows)]
        # No two columns have the same values, so a body in a different order is detected.
        cells = _cells(present, number)
        arrays.append(pa.array([cell if here else None for cell, here in zip(cells, present, strict=True)], field.type))
        parts.append(("" if gap is None else "Q") + f"{rows}{code}" + f"{-rows * struct.calcsize(code) % 8}x")
        flat += cells if gap is None else [gap, *cells]
    body = struct.Struct("<" + "".join(parts))
    message = encode(table, pa.RecordBatch.from_arrays(arrays, schema=schema_of(table)))
    return _Shape(message[: -body.size], body) if message.endswith(body.pack(*flat)) else None


def _cells(present: Sequence[bool], number: int) -> list[int]:
    return [1 + (7 * number + place) % 126 if here else 0 for place, here in enumerate(present)]
