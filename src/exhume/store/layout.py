"""How each table lies in its Parquet file: row groups, sort order, encodings, compression."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# Row groups keep the order of time, so that a reader of five seconds decodes one or two of them, and a sealer holds
# only one in memory.
ROW_GROUP_ROWS = 131_072


@dataclass(frozen=True, slots=True)
class Layout:
    """`sort` orders the rows inside a row group; `delta` and `split` name the columns with those encodings, `plain` the
    ones without a dictionary."""

    sort: tuple[str, ...] = ()
    delta: tuple[str, ...] = ("time",)
    split: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ("time",)
    level: int = 3
    extra: dict[str, Any] = field(default_factory=dict)

    def writer_options(self, schema: pa.Schema) -> dict[str, Any]:
        """Keyword arguments for pyarrow's ParquetWriter."""
        names = set(schema.names)
        encodings = {name: "DELTA_BINARY_PACKED" for name in self.delta if name in names}
        encodings |= {name: "BYTE_STREAM_SPLIT" for name in self.split if name in names}
        outside = set(encodings) | set(self.plain)
        return {
            "compression": "zstd",
            "compression_level": self.level,
            "use_dictionary": [_leaf(schema, name) for name in schema.names if name not in outside],
            "column_encoding": encodings or None,
            "write_statistics": [name for name in self.statistics if name in names],
            # Parquet's own types say all that is needed; a second copy of the schema costs a kilobyte a file.
            "store_schema": False,
            "data_page_size": 8 << 20,
            "dictionary_pagesize_limit": 4 << 20,
        }


def _leaf(schema: pa.Schema, name: str) -> str:
    return f"{name}.list.element" if pa.types.is_list(schema.field(name).type) else name


_LAYOUTS = {
    "samples": Layout(sort=("cpu", "time_ms"), delta=("time_ms",), statistics=("time_ms",)),
    "stacks": Layout(plain=("stack",), statistics=()),
    "frames": Layout(sort=("module", "name"), plain=("frame",), statistics=()),
}
_DEFAULT = Layout()


def layout_of(table: str) -> Layout:
    return _LAYOUTS.get(table, _DEFAULT)


def arrange(table: str, rows: pa.Table) -> pa.Table:
    """The rows of one row group in the order in which they are stored."""
    sort = layout_of(table).sort
    if not sort:
        return rows
    # Not Table.sort_by: it imports pyarrow's query engine, which weighs more than the rest of the sealer.
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in sort]))
