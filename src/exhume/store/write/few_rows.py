"""Few rows of numbers as a message of an Arrow IPC stream, without making Arrow arrays of them.

Most tables get a row or a few each second, and Arrow takes far longer to build and serialise a batch of one row than to
copy it. Messages of one shape (the number of rows, and which values are missing) differ in their body alone, and the
body of numbers is the values one after the other. So Arrow writes one message of each shape, which is kept; later ones
get their values packed into its place. Where Arrow's body is not what is expected, Arrow writes all of them.
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

# A bitmap of the rows that have a value is one word.
MOST_ROWS = 64
_SHAPES_KEPT = 256
# By the kind of a column: struct's code.
_CODES = {"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "int32": "i", "int64": "q", "float64": "d"}

# For each column the bitmap of the rows that have a value, or None where all have.
Gaps = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """Rows as an encapsulated message whose checksum is unset."""

    num_rows: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Shape:
    """What all messages of a shape begin with, and how their body is packed."""

    head: bytes
    body: struct.Struct


@dataclass(frozen=True, slots=True)
class _Columns:
    """Names, codes, and whether they may be missing, of a table's columns."""

    names: tuple[str, ...]
    set_of_names: frozenset[str]
    codes: tuple[str, ...]
    nullable: tuple[bool, ...]


@cache
def _columns(table: str) -> _Columns | None:
    """None for a table that has other columns than numbers."""
    columns = columns_of(table)
    if not all(column.kind in _CODES for column in columns):
        return None
    names = tuple(column.name for column in columns)
    codes = tuple(_CODES[column.kind] for column in columns)
    return _Columns(names, frozenset(names), codes, tuple(column.nullable for column in columns))


def message_of(table: str, columns: Columns, encode: Callable[[str, pa.RecordBatch], bytes]) -> Message | None:
    """The rows of a table; None where that can't be done, or where they don't fit the table. `encode` has Arrow write a
    message."""
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
        # Not a number, or one beyond the column's type.
        return None


def _values(column: Any, rows: int) -> list[Any]:
    """A column as a list; one that was left out is missing in all rows. Empty where its type needs a closer look."""
    if column is None:
        return [None] * rows
    return column.tolist() if isinstance(column, np.ndarray) and column.dtype.kind in "iu" else []


@lru_cache(maxsize=_SHAPES_KEPT)
def _shape(table: str, rows: int, gaps: Gaps, encode: Callable[[str, pa.RecordBatch], bytes]) -> _Shape | None:
    """A shape, as Arrow writes it; None where the body is another one than it should be."""
    known = _columns(table)
    assert known is not None
    parts: list[str] = []
    flat: list[int] = []
    arrays: list[pa.Array] = []
    for number, (code, gap, field) in enumerate(zip(known.codes, gaps, schema_of(table), strict=True)):
        present = [gap is None or bool(gap >> place & 1) for place in range(rows)]
        # No two columns have the same values: a body in another order would be found out.
        cells = _cells(present, number)
        arrays.append(pa.array([cell if here else None for cell, here in zip(cells, present, strict=True)], field.type))
        parts.append(("" if gap is None else "Q") + f"{rows}{code}" + f"{-rows * struct.calcsize(code) % 8}x")
        flat += cells if gap is None else [gap, *cells]
    body = struct.Struct("<" + "".join(parts))
    message = encode(table, pa.RecordBatch.from_arrays(arrays, schema=schema_of(table)))
    return _Shape(message[: -body.size], body) if message.endswith(body.pack(*flat)) else None


def _cells(present: Sequence[bool], number: int) -> list[int]:
    return [1 + (7 * number + place) % 126 if here else 0 for place, here in enumerate(present)]
