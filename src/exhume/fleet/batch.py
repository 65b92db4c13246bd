"""Batches: what a node sends. Rows of several tables, column by column, as gzipped JSON.

JSON rather than Arrow, because most batches are one minute: an Arrow schema of 36 columns alone is three times the
size of the minute (one kilobyte), and its reader trusts offsets chosen by the sender. The type and bounds of every
value are checked here before anything is stored. Times are microseconds since 1970. Unknown columns are ignored (a
newer node), missing columns are null (an older one).
"""

import hashlib
import json
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from exhume.fleet.schema import MAX_KEY_BYTES, MAX_NODE_BYTES, MAX_VALUE_BYTES, TABLES, VERSION, LakeTable

Columns = Mapping[str, Sequence[Any]]

# More than a week of minutes, which is more than any node sends in one batch.
MAX_ROWS = 20_000
MAX_BODY_BYTES = 4 << 20
# Twice the largest possible size of that many rows; as Python values it can take up to 25 times as much ("{}," is a
# dict).
MAX_DECODED_BYTES = 16 << 20
# Columns that the hub fills in; a sender cannot set them.
_OF_HUB = ("node", "received_at", "clock_off_s")
_TEXT_BYTES = {"key": MAX_KEY_BYTES, "value": MAX_VALUE_BYTES, "finding": 64 << 10, "summary": 4096, "reason": 4096}
_OTHER_TEXT_BYTES = 400
# 2000 to 2100, in microseconds.
_EARLIEST_US, _LATEST_US = 946_684_800_000_000, 4_102_444_800_000_000
_LARGEST_FLOAT = 3.4e38
_SPOOL = re.compile(r"[0-9a-f]{16}")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]*")


class BadBatch(ValueError):
    """Input that is not a batch, or a batch that cannot be stored; the message says why."""


class TooLarge(BadBatch):
    """A batch that exceeds the allowed size when unpacked."""


class BadVersion(BadBatch):
    """A batch of a later version: it can be stored once this exhume is upgraded."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one node. `spool` and `seq` number the batches of the node: each number is stored once."""

    node: str
    spool: str
    seq: int
    tables: Mapping[str, Columns]
    ignored: tuple[str, ...] = field(default=(), compare=False)

    @property
    def rows(self) -> int:
        return sum(rows_of(TABLES[name], columns) for name, columns in self.tables.items())

    def encode(self) -> bytes:
        known = {"version": VERSION, "node": self.node, "spool": self.spool, "seq": self.seq, "tables": self.tables}
        # Without a timestamp in the gzip header, so that equal batches have equal bytes.
        packer = zlib.compressobj(6, zlib.DEFLATED, 31)
        return packer.compress(json.dumps(known, separators=(",", ":")).encode()) + packer.flush()


def digest_of(body: bytes) -> str:
    """A digest that distinguishes a batch from a different one with the same number."""
    return hashlib.sha256(body).hexdigest()[:32]


def rows_of(table: LakeTable, columns: Columns) -> int:
    return len(columns[table.time])


def is_node_name(name: str) -> bool:
    """Whether a text is a valid node name: a host name, or one that an operator chose."""
    return len(name) <= MAX_NODE_BYTES and _NODE.fullmatch(name) is not None


def decode(body: bytes, most_bytes: int = MAX_DECODED_BYTES) -> Batch:
    """Parse and validate a batch. Raises BadBatch."""
    known = _parse(_unpack(body, most_bytes))
    version, node, spool, seq, tables = (known.get(name) for name in ("version", "node", "spool", "seq", "tables"))
    if type(version) is not int or version < 1:
        raise BadBatch("not a batch of exhume: it has no version")
    if version > VERSION:
        raise BadVersion(f"a batch of version {version}; this exhume reads version {VERSION}: upgrade the hub")
    if not isinstance(node, str) or not is_node_name(node):
        raise BadBatch("its node is not the name of one")
    if not isinstance(spool, str) or not _SPOOL.fullmatch(spool) or type(seq) is not int or not 0 <= seq < 1 << 62:
        raise BadBatch("it has no number")
    if not isinstance(tables, dict):
        raise BadBatch("it has no tables")
    ignored: list[str] = []
    checked: dict[str, Columns] = {}
    for name, columns in tables.items():
        if name in TABLES:
            checked[name] = _checked(TABLES[name], columns, ignored)
        else:
            ignored.append(str(name)[:MAX_KEY_BYTES])
    batch = Batch(node, spool, seq, checked, tuple(ignored))
    if batch.rows > MAX_ROWS:
        raise BadBatch(f"it has {batch.rows:,} rows, more than {MAX_ROWS:,}")
    return batch


def to_arrow(
    table: LakeTable, columns: Columns, node: str, received_us: int | None = None, clock_off_s: float | None = None
) -> pa.Table:
    """Checked rows with all columns of their table, including those that the hub fills in."""
    joined = JoinedRows(table)
    joined.add(columns, node, received_us, clock_off_s)
    return joined.to_arrow()


class JoinedRows:
    """Checked rows of many batches as one table: converting each batch to Arrow separately would take most of the
    time."""

    def __init__(self, table: LakeTable) -> None:
        self._table, self.rows = table, 0
        self._columns: dict[str, list[Any]] = {each.name: [] for each in table.schema}

    def add(self, columns: Columns, node: str, received_us: int | None, clock_off_s: float | None) -> None:
        rows = rows_of(self._table, columns)
        nothing = [None] * rows
        known: dict[str, Sequence[Any]] = {
            **columns,
            "node": [node] * rows,
            "received_at": [received_us] * rows,
            "clock_off_s": [clock_off_s] * rows,
        }
        for name, values in self._columns.items():
            values.extend(known.get(name, nothing))
        self.rows += rows

    def to_arrow(self) -> pa.Table:
        schema = self._table.schema
        return pa.Table.from_arrays([_array(self._columns[each.name], each.type) for each in schema], schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    # JSON has a single number type; Arrow refuses integers in a float column if they would be rounded.
    if pa.types.is_floating(kind):
        values = [value if value is None else float(value) for value in values]
    return pa.array(values, kind)


def _unpack(body: bytes, most: int) -> bytes:
    unpacker = zlib.decompressobj(31)
    try:
        content = unpacker.decompress(body, most)
    except zlib.error as error:
        raise BadBatch("not gzipped JSON") from error
    if unpacker.unconsumed_tail:
        raise TooLarge(f"it takes more than {most >> 20} MiB unpacked")
    if not unpacker.eof or unpacker.unused_data:
        raise BadBatch("it is cut off, or more follows it")
    return content


def _parse(content: bytes) -> dict[str, Any]:
    try:
        known = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadBatch("not gzipped JSON") from error
    if not isinstance(known, dict):
        raise BadBatch("not a batch of exhume")
    return known


def _checked(table: LakeTable, columns: Any, ignored: list[str]) -> Columns:
    if not isinstance(columns, dict) or not isinstance(columns.get(table.time), list):
        raise BadBatch(f"{table.name} has no column {table.time}")
    rows = rows_of(table, columns)
    for name in table.required:
        if name not in columns and name not in _OF_HUB:
            raise BadBatch(f"{table.name} has no column {name}")
    checks = _checks(table)
    kept: dict[str, Sequence[Any]] = {}
    for name, values in columns.items():
        check = checks.get(name)
        if check is None:
            ignored.append(f"{table.name}.{str(name)[:MAX_KEY_BYTES]}")
            continue
        if not isinstance(values, list) or len(values) != rows:
            raise BadBatch(f"{table.name}.{name} has not one value a row")
        if not all(map(check, values)):
            raise BadBatch(f"{table.name}.{name} has a value that is not {table.schema.field(name).type}, or too large")
        kept[name] = values
    return kept


_Check = Callable[[Any], bool]
_known_checks: dict[str, dict[str, _Check]] = {}


def _checks(table: LakeTable) -> dict[str, _Check]:
    if table.name not in _known_checks:
        _known_checks[table.name] = {
            each.name: _optional(_check_of(each)) if each.nullable else _check_of(each)
            for each in table.schema
            if each.name not in _OF_HUB
        }
    return _known_checks[table.name]


def _optional(check: _Check) -> _Check:
    return lambda value: value is None or check(value)


def _check_of(column: pa.Field) -> _Check:
    kind = column.type
    if pa.types.is_string(kind):
        most = _TEXT_BYTES.get(column.name, _OTHER_TEXT_BYTES)
        return lambda value: type(value) is str and _is_text(value, most)
    if pa.types.is_timestamp(kind):
        return lambda value: type(value) is int and _EARLIEST_US <= value < _LATEST_US
    if pa.types.is_integer(kind):
        bits = kind.bit_width
        signed = pa.types.is_signed_integer(kind)
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return lambda value: type(value) is int and least <= value <= most
    # JSON integers can have any length.
    return lambda value: (
        type(value) in (float, int) and -_LARGEST_FLOAT < value < _LARGEST_FLOAT and math.isfinite(value)
    )


def _is_text(value: str, most: int) -> bool:
    """Whether a text is acceptable; one with an unpaired surrogate is not valid Unicode."""
    if value.isascii():
        return len(value) <= most
    try:
        return len(value.encode()) <= most
    except UnicodeEncodeError:
        return False
