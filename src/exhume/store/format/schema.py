"""Arrow schemas of the tables, derived from the model, and the facts that every file carries."""

import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

import pyarrow as pa

from exhume.model.facts import FORMAT_VERSION, RecordingFacts
from exhume.model.tables import TABLES, columns_of

FACTS_KEY = b"exhume"
# The format that a file says it has, in the JSON of its facts.
FORMAT = re.compile(rb'"format_version":\s*(\d+)')

# Tables that explain others: each segment tells them again, and a row holds for its whole segment.
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


class UnreadableFile(Exception):
    """A file in the directory that can't be used; the message says why."""


@cache
def schema_of(table: str) -> pa.Schema:
    """The Arrow schema of a table, without metadata."""
    return pa.schema([pa.field(c.name, _TYPES[c.kind], nullable=c.nullable) for c in columns_of(table)])


@cache
def time_column(table: str) -> str | None:
    """The column that places a row in time: `time` in nanoseconds, `time_ms` in samples, none in stacks and frames."""
    names = {c.name for c in columns_of(table)}
    return next((name for name in ("time", "time_ms") if name in names), None)


def with_facts(schema: pa.Schema, facts: RecordingFacts) -> pa.Schema:
    return schema.with_metadata({FACTS_KEY: facts.to_json().encode()})


def facts_in(metadata: Mapping[bytes, bytes] | None) -> RecordingFacts:
    """The facts in a file's metadata. Raises UnreadableFile for foreign files and for newer formats."""
    text = (metadata or {}).get(FACTS_KEY)
    if text is None:
        raise UnreadableFile("not written by exhume")
    # Before anything else: a later format may tell its facts in other words.
    told = FORMAT.search(text)
    if told and int(told[1]) > FORMAT_VERSION:
        raise UnreadableFile(
            f"format {int(told[1])} is newer than this exhume reads (format {FORMAT_VERSION}); upgrade exhume"
        )
    try:
        return _parse_facts(text)
    except ValueError as error:
        raise UnreadableFile("not written by exhume") from error


# The files of a recording say the same words over and over.
_parse_facts = lru_cache(maxsize=16)(RecordingFacts.from_json)


def conform(found: pa.Table, table: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Give rows of another version today's columns (all, or the ones asked for): missing ones are null, unknown
    ones are left out."""
    wanted = _schema_of_columns(table, None if columns is None else tuple(columns))
    if found.schema.equals(wanted):
        return pa.Table.from_arrays(found.columns, names=wanted.names)
    return pa.table({field.name: _filled(found, field) for field in wanted})


@lru_cache(maxsize=256)
def _schema_of_columns(table: str, columns: tuple[str, ...] | None) -> pa.Schema:
    """The part of a table's schema that is asked for."""
    return pa.schema([field for field in schema_of(table) if columns is None or field.name in columns])


def _filled(found: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    place = found.schema.get_field_index(field.name)
    if place < 0:
        return pa.nulls(found.num_rows, field.type)
    column = found.column(place)
    same = column.type.equals(field.type) or pa.types.is_dictionary(column.type)
    return column if same else column.cast(field.type)


def known_table(name: str) -> bool:
    return name in TABLES
