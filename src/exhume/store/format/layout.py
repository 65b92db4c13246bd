"""Layout of each table in its Parquet file: row groups, sort order, encodings, compression.

Measured on a minute of 96 busy cores (222,000 samples of 11,000 stacks), in bytes per sample:

samples   sorted by thread and time 4.0, by core and time 5.0, by time 6.3, by stack 6.2: a thread keeps its process,
          its command and mostly its core, so those columns compress to almost nothing. Delta encoding for numbers that
          grow along that order, a dictionary for the rest (stack hashes don't compress: a dictionary stores each once
          per row group). zstd level 9 saves 4% over level 3 for a fifth more time.
stacks    sorted by their frames and stored plain 1.16, in a dictionary 1.31, unsorted 1.36: adjacent stacks share
          their roots, and zstd works best on whole runs of eight-byte hashes.
frames    sorted by name with DELTA_BYTE_ARRAY 0.47, unsorted 0.69.
overview  in a dictionary 10,900 bytes with LZ4 and 9,500 with zstd, which takes twice as long to decode; with byte
          stream split 12,900 and 9,800. Opening a Parquet file and finding the column takes longer than any of these.
others    delta for every integer and a dictionary for text: a tenth to a third smaller than dictionaries alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# Not pyarrow.compute: on import it documents and wraps each of Arrow's 300 functions, which takes a tenth of the
# recorder's start-up time. These are the same functions, called by name. Methods like Table.take import it too.
from pyarrow._compute import ArraySortOptions, SortOptions, call_function

# Row groups are in time order, so a reader of five seconds decodes one or two of them, and the sealer holds only one in
# memory.
ROW_GROUP_ROWS = 131_072

_DELTA = "DELTA_BINARY_PACKED"


@dataclass(frozen=True, slots=True)
class Layout:
    """How a table is stored. `sort` is the order inside a row group. Columns listed in `encodings` use that encoding,
    the others a dictionary. `statistics` lists the columns whose minimum and maximum each row group records."""

    encodings: Mapping[str, str]
    sort: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()
    compression: str = "zstd"
    level: int | None = 3

    def writer_options(self, schema: pa.Schema) -> dict[str, Any]:
        """Keyword arguments for pyarrow's ParquetWriter."""

        def leaf(name: str) -> str:
            return f"{name}.list.element" if pa.types.is_list(schema.field(name).type) else name

        return {
            "compression": self.compression,
            "compression_level": self.level,
            "column_encoding": {leaf(name): encoding for name, encoding in self.encodings.items()} or None,
            "use_dictionary": [name for name in schema.names if name not in self.encodings] or False,
            "write_statistics": list(self.statistics) or False,
            # Parquet's own types are sufficient; a second copy of the schema costs a kilobyte per file.
            "store_schema": False,
            # One page per column and row group: no reader reads less than that.
            "data_page_size": 8 << 20,
            "dictionary_pagesize_limit": 4 << 20,
            # A CRC-32 per page: 0.1% of the bytes.
            "write_page_checksum": True,
        }


_LAYOUTS = {
    "samples": Layout(
        encodings={"time_ms": _DELTA, "pid": _DELTA, "tid": _DELTA},
        sort=("tid", "time_ms"),
        statistics=("time_ms",),
        level=9,
    ),
    "stacks": Layout(encodings={"stack": "PLAIN", "frames": "PLAIN"}, level=9),
    "frames": Layout(encodings={"frame": "PLAIN", "name": "DELTA_BYTE_ARRAY"}, sort=("name",), level=9),
    "overview": Layout(encodings={"second": _DELTA, "cpu": _DELTA}, compression="lz4", level=None),
}


def layout_of(table: str, schema: pa.Schema) -> Layout:
    found = _LAYOUTS.get(table)
    if found is not None:
        return found
    encodings = {column.name: _DELTA for column in schema if pa.types.is_integer(column.type)}
    encodings |= {column.name: "PLAIN" for column in schema if pa.types.is_floating(column.type)}
    return Layout(encodings, statistics=("time",) if "time" in schema.names else ())


def arrange(table: str, rows: pa.Table) -> pa.Table:
    """Sort the rows of one row group into their storage order."""
    if table == "stacks":
        return call_function("take", [rows, _by_frames(rows.column("frames").combine_chunks())])
    sort = layout_of(table, rows.schema).sort
    if not sort:
        return rows
    # Not Table.sort_by: it imports pyarrow's query engine, which uses more memory than the rest of the sealer.
    order = call_function("sort_indices", [rows], SortOptions([(name, "ascending") for name in sort]))
    return call_function("take", [rows, order])


def _by_frames(stacks: pa.ListArray) -> pa.Array:
    """The order that places stacks with the same root next to each other."""
    if isinstance(stacks, pa.ChunkedArray):
        stacks = stacks.chunk(0)
    frames = call_function("list_flatten", [stacks]).to_numpy()
    lengths = call_function("list_value_length", [stacks]).to_numpy(zero_copy_only=False)
    return order_by_prefix(frames, lengths)


def order_by_prefix(values: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> pa.Array:
    """The order that places lists with the same beginning next to each other; the lists are concatenated in `values`.
    They are compared as bytes: any order with this property will do."""
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    bounds *= values.itemsize
    content = pa.py_buffer(np.ascontiguousarray(values))
    keys = pa.Array.from_buffers(pa.large_binary(), len(lengths), [None, pa.py_buffer(bounds), content])
    return call_function("array_sort_indices", [keys], ArraySortOptions())
