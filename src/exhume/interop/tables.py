"""Write rows of any table as Parquet, Arrow (an IPC file) or CSV, in parts."""

from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

# Separates frames in a CSV cell, as CSV has no lists.
_SEPARATOR = ";"


def write_tables(form: str, parts: Iterable[pa.Table], schema: pa.Schema, sink: BinaryIO) -> int:
    """Write parts of a table with this schema; return the number of rows."""
    written = 0
    flat = pa.schema([_flat_field(field) for field in schema]) if form == "csv" else schema
    with _WRITERS[form](sink, flat) as writer:
        for part in parts:
            rows = pa.Table.from_arrays([_flat(each) for each in part.columns], schema=flat) if form == "csv" else part
            writer.write_table(rows)
            written += part.num_rows
    return written


_WRITERS: dict[str, Callable[[BinaryIO, pa.Schema], Any]] = {
    "parquet": lambda sink, schema: pyarrow.parquet.ParquetWriter(sink, schema, compression="zstd"),
    "arrow": pa.ipc.new_file,
    "csv": pyarrow.csv.CSVWriter,
}


def _flat_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.string()) if pa.types.is_list(field.type) else field


def _flat(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_list(column.type):
        return column
    whole = column.combine_chunks()
    # Names of Java types contain the separator.
    values = pc.replace_substring(whole.flatten().cast(pa.string()), _SEPARATOR, ":")
    return pc.binary_join(pa.ListArray.from_arrays(_offsets(whole), values), _SEPARATOR)


def _offsets(lists: pa.ListArray) -> pa.Array:
    """The offsets of lists, rebased to 0, whichever slice of another array they are."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
