"""Encode a few rows as an Arrow IPC stream message without building Arrow arrays.

Most tables get some rows per second, and Arrow takes far longer to build and serialise a batch of a few rows than to
copy it. Messages of one table differ only in their body, which is the buffers of the columns one after another, and in
some numbers of their head: how many rows and values there are, and where each buffer lies. Arrow therefore writes one
template message per table, and later messages are packed into its place. If Arrow's messages do not have the expected
layout, Arrow writes all messages of that table.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate, chain, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from exhume.model.tables import Columns, columns_of
from exhume.store.format.schema import schema_of

# With more rows Arrow is as fast.
MOST_ROWS = 128
_SHAPES_KEPT = 256
# struct format codes by column kind; text and lists have none.
_CODES = {"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "int32": "i", "int64": "q", "float64": "d"}
_LIST = "list<uint64>"
# The size of a buffer that differs from message to message of a shape: text, or the elements of lists.
_VARIABLE = -1
_NUMBER = struct.Struct("<q")
# Rows of the template: a number that is found only where it is meant.
_TEMPLATE_ROWS = 61


@dataclass(frozen=True, slots=True)
class Message:
    """Rows as an encapsulated message whose checksum is not set yet."""

    num_rows: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Columns:
    """A table's columns: their names, kinds, and whether values may be missing."""

    names: tuple[str, ...]
    set_of_names: frozenset[str]
    kinds: tuple[str, ...]
    nullable: tuple[bool, ...]
    has_lists: bool


@cache
def _columns(table: str) -> _Columns:
    columns = columns_of(table)
    names, kinds = tuple(column.name for column in columns), tuple(column.kind for column in columns)
    return _Columns(names, frozenset(names), kinds, tuple(column.nullable for column in columns), _LIST in kinds)


@dataclass(slots=True)
class _Body:
    """The values of a message: of each section the numbers, and the bytes that follow them (none after the last); how
    many values each column lacks, and how many elements its lists have in all."""

    sections: list[list[Any]]
    tails: list[bytes]
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Template:
    """The head of a table's messages, and where in it are the numbers that differ."""

    head: bytes
    rows_at: int
    nodes_at: int
    buffers_at: int
    size_at: int


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the messages with a number of rows and of missing values have in common: the head, with nothing in the
    buffers of variable size, the sizes of all buffers, and the packing of each section of the body."""

    head: bytes
    sizes: tuple[int, ...]
    sections: tuple[struct.Struct, ...]


def message_of(table: str, columns: Columns, encode: Callable[[str, pa.RecordBatch], bytes]) -> Message | None:
    """Encode the rows of a table; None if the fast path can't, or if they don't fit the table. `encode` has Arrow write
    a message."""
    if not columns:
        return None
    rows = len(next(iter(columns.values())))
    known = _columns(table)
    if not 0 < rows <= MOST_ROWS or not known.set_of_names >= columns.keys():
        return None
    template = _template(table, encode)
    if template is None:
        return None
    try:
        body = _body(known, columns, rows)
        return None if body is None else Message(rows, _packed(table, template, rows, body))
    except (struct.error, TypeError, UnicodeEncodeError):
        # Not of the column's type, or out of its range.
        return None


def _body(known: _Columns, columns: Columns, rows: int) -> _Body | None:
    flat: list[Any] = []
    sections, tails, missing = [flat], list[bytes](), list[int]()
    lengths: Iterable[int]
    for cells, kind, nullable in zip(map(columns.get, known.names), known.kinds, known.nullable, strict=True):
        values = cells if type(cells) is list else _values(cells, rows)
        if len(values) != rows:
            return None
        # Where a value must not be missing, packing fails if one is.
        gaps = values.count(None) if nullable else 0
        missing.append(gaps)
        if gaps:
            # Most columns with gaps have no value at all.
            few = gaps < rows
            present = sum(1 << place for place, value in enumerate(values) if value is not None) if few else 0
            flat.append(present.to_bytes(_bitmap_bytes(rows), "little"))
        if kind in _CODES:
            if gaps == rows:
                flat += [0] * rows
            else:
                flat += [0 if value is None else value for value in values] if gaps else values
            continue
        if gaps == rows:
            lengths, tail = repeat(0, rows), b""
        elif kind == _LIST:
            lengths = map(len, values)
            elements = list(chain.from_iterable(values))
            tail = struct.pack(f"<{len(elements)}Q", *elements)
        else:
            if gaps:
                values = ["" if value is None else value for value in values]
            text = "".join(values)
            tail = text.encode()
            lengths = map(len, values if len(tail) == len(text) else map(str.encode, values))
        flat += accumulate(lengths, initial=0)
        tails.append(tail)
        flat = []
        sections.append(flat)
    return _Body(sections, tails, tuple(missing))


def _values(column: Any, rows: int) -> list[Any]:
    """A column as a list, all None if it was left out. Empty if the type of the values needs closer inspection."""
    if column is None:
        return [None] * rows
    return column.tolist() if isinstance(column, np.ndarray) and column.dtype.kind in "iuO" else []


def _packed(table: str, template: _Template, rows: int, body: _Body) -> bytes:
    shape = _shape(table, template, rows, body.missing)
    if not body.tails:
        return shape.head + shape.sections[0].pack(*body.sections[0])
    head = bytearray(shape.head)
    lengths = [len(tail) for tail in body.tails]
    _place_buffers(head, template, shape.sizes, lengths)
    if _columns(table).has_lists:
        _place(head, template.nodes_at, _nodes(table, rows, body.missing, lengths))
    pieces: list[bytes | bytearray] = [head]
    for section, values, tail in zip(shape.sections, body.sections, (*body.tails, b""), strict=True):
        pieces += section.pack(*values), tail, bytes(-len(tail) & 7)
    return b"".join(pieces)


@lru_cache(maxsize=_SHAPES_KEPT)
def _shape(table: str, template: _Template, rows: int, missing: tuple[int, ...]) -> _Shape:
    sizes = tuple(_buffer_sizes(table, rows, missing))
    head = bytearray(template.head)
    _place(head, template.rows_at, [rows])
    _place(head, template.nodes_at, _nodes(table, rows, missing, [0] * len(missing)))
    _place_buffers(head, template, sizes, [0] * len(sizes))
    return _Shape(bytes(head), sizes, tuple(struct.Struct("<" + each) for each in _formats(table, rows, missing)))


def _formats(table: str, rows: int, missing: tuple[int, ...]) -> list[str]:
    """How the numbers of each section are packed: every buffer begins at a multiple of eight bytes."""
    sections = [""]
    for kind, gaps in zip(_columns(table).kinds, missing, strict=True):
        if gaps:
            size = _bitmap_bytes(rows)
            sections[-1] += f"{size}s{-size & 7}x"
        code = _CODES.get(kind)
        count = rows if code else rows + 1
        sections[-1] += f"{count}{code or 'i'}{-count * struct.calcsize(code or 'i') & 7}x"
        if not code:
            sections.append("")
    return sections


def _buffer_sizes(table: str, rows: int, missing: tuple[int, ...]) -> Iterator[int]:
    """The sizes of a batch's buffers (format/Columnar.rst of Arrow, "Listing of buffers for each layout")."""
    for kind, gaps in zip(_columns(table).kinds, missing, strict=True):
        yield _bitmap_bytes(rows) if gaps else 0
        if kind in _CODES:
            yield rows * struct.calcsize(_CODES[kind])
            continue
        yield (rows + 1) * 4
        if kind == _LIST:
            # The bitmap of the elements, none of which is missing.
            yield 0
        yield _VARIABLE


def _bitmap_bytes(rows: int) -> int:
    """The size of a bitmap of the rows that have a value."""
    return -(-rows // 8)


def _buffers(sizes: Iterable[int], lengths: Iterable[int]) -> list[int]:
    """Offset and size of each buffer, then the size of the body; `lengths` are those of the buffers of variable
    size."""
    at, pairs, of_tails = 0, list[int](), iter(lengths)
    for size in sizes:
        length = next(of_tails) if size == _VARIABLE else size
        pairs += at, length
        at += length + (-length & 7)
    return [*pairs, at]


def _nodes(table: str, rows: int, missing: Sequence[int], lengths: Iterable[int]) -> list[int]:
    """The number of values, and of missing ones, of each column and of the elements of its lists."""
    pairs, of_tails = list[int](), iter(lengths)
    for kind, gaps in zip(_columns(table).kinds, missing, strict=True):
        pairs += rows, gaps
        length = 0 if kind in _CODES else next(of_tails)
        if kind == _LIST:
            pairs += length // 8, 0
    return pairs


def _place_buffers(head: bytearray, template: _Template, sizes: Sequence[int], lengths: Iterable[int]) -> None:
    *pairs, size = _buffers(sizes, lengths)
    _place(head, template.buffers_at, pairs)
    _place(head, template.size_at, [size])


def _place(head: bytearray, at: int, numbers: Sequence[int]) -> None:
    struct.pack_into(f"<{len(numbers)}q", head, at, *numbers)


@cache
def _template(table: str, encode: Callable[[str, pa.RecordBatch], bytes]) -> _Template | None:
    """The template of a table, from a message that Arrow writes; None if other messages would differ from Arrow's."""
    known = _columns(table)
    columns = _example(table, _TEMPLATE_ROWS, with_gaps=True)
    body = _body(known, columns, _TEMPLATE_ROWS)
    assert body is not None
    lengths = [len(tail) for tail in body.tails]
    *buffers, size = _buffers(_buffer_sizes(table, _TEMPLATE_ROWS, body.missing), lengths)
    nodes = _nodes(table, _TEMPLATE_ROWS, body.missing, lengths)
    head = encode(table, _batch(table, columns))[:-size]
    spans = [_find(head, struct.pack(f"<{len(numbers)}q", *numbers)) for numbers in (nodes, buffers)]
    if None in spans:
        return None
    taken = [range(at, at + 8 * len(each)) for at, each in zip(spans, (nodes, buffers), strict=True) if at is not None]
    rows_at, size_at = (_find(head, _NUMBER.pack(number), taken) for number in (_TEMPLATE_ROWS, size))
    if rows_at is None or size_at is None:
        return None
    template = _Template(head, rows_at, taken[0].start, taken[1].start, size_at)
    for rows, with_gaps in ((1, False), (2, True), (_TEMPLATE_ROWS, True)):
        columns = _example(table, rows, with_gaps=with_gaps)
        body = _body(known, columns, rows)
        assert body is not None
        if _packed(table, template, rows, body) != encode(table, _batch(table, columns)):
            return None
    return template


def _find(head: bytes, wanted: bytes, taken: Sequence[range] = ()) -> int | None:
    """Where in a head some numbers are, besides the taken places; None unless there is one place. Numbers of 64 bits
    are at multiples of eight bytes in a message."""
    found = [
        at
        for at in range(0, len(head) - len(wanted) + 1, 8)
        if head.startswith(wanted, at) and not any(at in span for span in taken)
    ]
    return found[0] if len(found) == 1 else None


def _example(table: str, rows: int, *, with_gaps: bool) -> dict[str, list[Any]]:
    """Rows of which no two columns have the same values, so that a different order is detected."""
    known = _columns(table)
    columns: dict[str, list[Any]] = {}
    for number, (name, kind, nullable) in enumerate(zip(known.names, known.kinds, known.nullable, strict=True)):
        cells: list[Any] = [1 + (7 * number + place) % 126 for place in range(rows)]
        if kind == _LIST:
            cells = [[cell] * (cell % 3) for cell in cells]
        elif kind not in _CODES:
            cells = [str(cell) for cell in cells]
        columns[name] = [None, *cells[1:]] if nullable and with_gaps else cells
    return columns


def _batch(table: str, columns: Columns) -> pa.RecordBatch:
    schema = schema_of(table)
    return pa.RecordBatch.from_arrays([pa.array(columns[field.name], field.type) for field in schema], schema=schema)
