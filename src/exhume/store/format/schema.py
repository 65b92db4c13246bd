"""Arrow schemas of the tables, derived from the model; the facts that every file carries, and the checksum of each
message in a live file."""

import re
import zlib
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

import pyarrow as pa

from exhume.model.facts import FORMAT_VERSION, RecordingFacts
from exhume.model.tables import columns_of
from exhume.store.format.names import SegmentName

FACTS_KEY = b"exhume"
TABLE_KEY = b"exhume.table"
SEGMENT_KEY = b"exhume.segment"
# Key in the custom metadata of each message of a live file: the CRC-32 of the whole message, in hexadecimal. It is
# computed while the value is the placeholder below, which has the same length.
CHECKSUM_KEY = b"exhume.checksum"
UNSET_CHECKSUM = b"crc32:00000000"
# The format version in the JSON of a file's facts. A version with more digits than this is newer than ours anyway.
FORMAT = re.compile(rb'"format_version":\s*(\d{1,9})')

# Tables that other tables refer to: each segment repeats them, and a row is valid for its whole segment.
DIMENSIONS = ("frames", "stacks", "processes")

_TYPES: dict[str, pa.DataType] = {
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "list<uint64>": pa.list_(pa.field("element", pa.uint64(), nullable=False)),
}


# The kind of losses that counts rows dropped because the disk was full.
DISK_FULL = "disk-full"

# Why a file that exhume wrote can't be decoded.
DAMAGED = "truncated or damaged"

# Exceptions that Arrow, and Python's conversions of its values, raise for damaged bytes. OSError is among them because
# Arrow reports short reads that way.
DECODING_ERRORS = (
    pa.ArrowException,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)


class UnreadableFile(Exception):
    """A file in the directory that is wholly or partly unusable; the message says why. `rows` are the rows that can be
    used nevertheless."""

    def __init__(self, reason: str, rows: pa.Table | None = None) -> None:
        super().__init__(reason)
        self.rows = rows


def with_checksum(message: bytes) -> list[bytes | memoryview]:
    """Set the checksum of an encapsulated message; returns the message in pieces."""
    # The metadata precedes the rows, so text in a row that looks like the placeholder is not found instead.
    place = message.index(UNSET_CHECKSUM)
    whole = memoryview(message)
    return [whole[:place], _checksum(zlib.crc32(message)), whole[place + len(UNSET_CHECKSUM) :]]


def checksum_matches(message: memoryview, value: bytes) -> bool:
    """Whether the checksum of an encapsulated message matches its contents."""
    metadata_bytes = int.from_bytes(message[4:8], "little")
    place = bytes(message[: 8 + metadata_bytes]).find(value)
    if place < 0 or len(value) != len(UNSET_CHECKSUM):
        return False
    crc = zlib.crc32(UNSET_CHECKSUM, zlib.crc32(message[:place]))
    return _checksum(zlib.crc32(message[place + len(value) :], crc)) == value


def _checksum(crc: int) -> bytes:
    return b"crc32:%08x" % crc


@cache
def schema_of(table: str) -> pa.Schema:
    """The Arrow schema of a table, without metadata."""
    return pa.schema([pa.field(c.name, _TYPES[c.kind], nullable=c.nullable) for c in columns_of(table)])


@cache
def _required(table: str) -> tuple[str, ...]:
    return tuple(field.name for field in schema_of(table) if not field.nullable)


def check_schema(found: pa.Schema, table: str) -> None:
    """Raise UnreadableFile if a file can't hold rows of the table: a required column is missing, or a column has the
    wrong type."""
    if found.equals(schema_of(table)):
        return
    names = found.names
    for name in _required(table):
        if name not in names:
            raise UnreadableFile(f"{DAMAGED}: column {name} is missing")
    for wanted in schema_of(table):
        if wanted.name in names and not _fits(found.field(wanted.name).type, wanted.type):
            raise UnreadableFile(f"{DAMAGED}: column {wanted.name} is not {wanted.type}")


def check_required(rows: pa.RecordBatch | pa.Table, table: str) -> None:
    """Raise UnreadableFile if a required column has missing values."""
    for name in _required(table):
        place = rows.schema.get_field_index(name)
        if place >= 0 and rows.column(place).null_count:
            raise UnreadableFile(f"{DAMAGED}: column {name} has no value in some rows")


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type can be read as the other: another version may use a wider or narrower type."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if found.equals(wanted):
        return True
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return bool(found.value_type.equals(wanted.value_type))
    return any(kind(found) and kind(wanted) for kind in (pa.types.is_integer, pa.types.is_floating))


@cache
def time_column(table: str) -> str | None:
    """The column that places a row in time: `time` in nanoseconds, `time_ms` in samples, None in stacks and frames."""
    names = {c.name for c in columns_of(table)}
    return next((name for name in ("time", "time_ms") if name in names), None)


def with_facts(table: str, facts: RecordingFacts, segment: SegmentName) -> pa.Schema:
    """The schema of a table, with the metadata that its files carry."""
    own = {TABLE_KEY: table.encode(), SEGMENT_KEY: segment.identity}
    return schema_of(table).with_metadata({FACTS_KEY: facts.to_json().encode(), **own})


def facts_in(metadata: Mapping[bytes, bytes] | None, table: str, segment: SegmentName) -> RecordingFacts:
    """The facts in the metadata of a file that is in the place of a segment's table. Raises UnreadableFile for files
    that exhume did not write, for newer formats and for files of another table or segment."""
    metadata = metadata or {}
    text = metadata.get(FACTS_KEY)
    if text is None:
        raise UnreadableFile("not written by exhume")
    # Checked first: a later format may store its facts differently.
    version = FORMAT.search(text)
    if version and int(version[1]) > FORMAT_VERSION:
        raise UnreadableFile(
            f"format {int(version[1])} is newer than this exhume reads (format {FORMAT_VERSION}); upgrade exhume"
        )
    # Files written by earlier versions lack these keys.
    if metadata.get(TABLE_KEY, table.encode()) != table.encode():
        raise UnreadableFile("a file of another table")
    if metadata.get(SEGMENT_KEY, segment.identity) != segment.identity:
        raise UnreadableFile("a file of another segment")
    try:
        return _parse_facts(text)
    except ValueError as error:
        raise UnreadableFile("not written by exhume") from error


# All files of a recording have the same facts, so they are parsed once.
_parse_facts = lru_cache(maxsize=16)(RecordingFacts.from_json)


def conform(found: pa.Table, table: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Convert rows of another version to today's columns (all, or the requested ones): missing columns are null,
    unknown ones are dropped. Raises UnreadableFile if a required value is missing."""
    check_required(found, table)
    wanted = _schema_of_columns(table, None if columns is None else tuple(columns))
    if found.schema.equals(wanted):
        return pa.Table.from_arrays(found.columns, names=wanted.names)
    return pa.table({field.name: _filled(found, field) for field in wanted})


@lru_cache(maxsize=256)
def _schema_of_columns(table: str, columns: tuple[str, ...] | None) -> pa.Schema:
    """The requested part of a table's schema."""
    return pa.schema([field for field in schema_of(table) if columns is None or field.name in columns])


def _filled(found: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    place = found.schema.get_field_index(field.name)
    if place < 0:
        return pa.nulls(found.num_rows, field.type)
    column = found.column(place)
    same = column.type.equals(field.type) or pa.types.is_dictionary(column.type)
    return column if same else column.cast(field.type)
