"""DuckDB in this process; and the part of the work that an engine elsewhere does on some of the files."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pads

from exhume.fleet.engines import Answer, EngineError
from exhume.fleet.engines.files import LakeFiles
from exhume.fleet.queries import Query

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Rows that don't fit are spilled next to the system's temporary files.
MEMORY = "2GB"
_MISSING = "the report needs DuckDB: pip install 'exhume[fleet]'"
# Damaged footers and pages, a file that is gone, a value that is not of its column's type, too large a page.
_REASON = 160


class LocalEngine:
    """DuckDB in this process, on all cores."""

    name = "local"

    def __init__(self, threads: int | None = None) -> None:
        """Raises EngineError."""
        self._connection = connect(threads or len(os.sched_getaffinity(0)))

    def run(self, asked: Sequence[tuple[Query, LakeFiles]]) -> list[Answer]:
        return [self._run(query, files) for query, files in asked]

    def _run(self, query: Query, files: LakeFiles) -> Answer:
        parts, unread = select(self._connection, query, files)
        return Answer(merge(self._connection, query, parts, query.order), unread)

    def close(self) -> None:
        self._connection.close()


def connect(threads: int) -> "DuckDBPyConnection":
    """A connection to a database in memory. Raises EngineError without DuckDB."""
    try:
        import duckdb
    except ImportError:
        raise EngineError(_MISSING) from None
    config: dict[str, Any] = {
        "threads": threads,
        "memory_limit": MEMORY,
        "preserve_insertion_order": False,
        # The lake's files are not ours: nothing that they hold may load code.
        "autoinstall_known_extensions": False,
    }
    return duckdb.connect(":memory:", config=config)


def select(
    connection: "DuckDBPyConnection", query: Query, files: LakeFiles
) -> tuple[list[pa.Table], tuple[tuple[str, str], ...]]:
    """The query's parts for these files. Where some can't be read, the others are read without them. Raises LakeError,
    NoData where it is the lake that can't be."""
    import duckdb

    if not len(files):
        return [], ()
    try:
        return [_select(connection, query, files)], ()
    except (duckdb.Error, pa.ArrowException, OSError, ValueError) as error:
        files.lake.check()
        if len(files) == 1:
            reason = " ".join(str(error).split())[:_REASON]
            return [], ((files.paths[0], reason),)
    middle = len(files) // 2
    halves = [select(connection, query, each) for each in (files.part(0, middle), files.part(middle, len(files)))]
    return [part for parts, _ in halves for part in parts], tuple(each for _, unread in halves for each in unread)


def _select(connection: "DuckDBPyConnection", query: Query, files: LakeFiles) -> pa.Table:
    if files.lake.directory is not None:
        listed = ", ".join(_quoted(path) for path in files.paths)
        source = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
    else:
        # DuckDB's own readers of object stores would have to be downloaded; Arrow's are here.
        system = files.lake.filesystem
        schemas = [pads.ParquetFileFormat().inspect(path, system) for path in files.paths]
        united = pa.unify_schemas(schemas, promote_options="permissive")
        connection.register("remote", pads.dataset(list(files.paths), united, "parquet", system))
        source = "remote"
    known = {name for name, *_ in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
    columns = ", ".join(_column(query, name, name in known) for name in query.columns)
    return _arrow(connection, f"WITH rows AS (SELECT {columns} FROM {source}) {query.select}")


def _column(query: Query, name: str, known: bool) -> str:
    """A column with the type that the table has now; null in files of before it was added."""
    kind = _sql_type(query.table.schema.field(name).type)
    return f'TRY_CAST("{name}" AS {kind}) AS "{name}"' if known else f'NULL::{kind} AS "{name}"'


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "TIMESTAMPTZ"
    return _SQL_TYPES[str(kind)]


_SQL_TYPES = {
    "string": "VARCHAR",
    "float": "FLOAT",
    "double": "DOUBLE",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "bool": "BOOLEAN",
}


def merge(connection: "DuckDBPyConnection", query: Query, parts: list[pa.Table], order: str = "") -> pa.Table:
    """One part of several, in an order if it is the last."""
    if not parts:
        # The columns of an answer without rows.
        empty = query.table.schema.empty_table().select(list(query.columns))
        connection.register("nothing", empty)
        columns = ", ".join(_column(query, name, True) for name in query.columns)
        parts = [_arrow(connection, f"WITH rows AS (SELECT {columns} FROM nothing) {query.select}")]
    connection.register("gathered", pa.concat_tables(parts, promote_options="permissive"))
    return _arrow(connection, f"WITH parts AS (SELECT * FROM gathered) SELECT * FROM ({query.merge}) {order}")


def ordered(connection: "DuckDBPyConnection", query: Query, merged: list[pa.Table]) -> pa.Table:
    """The answer: merged parts that have no node in common, in the query's order."""
    connection.register("gathered", pa.concat_tables(merged, promote_options="permissive"))
    return _arrow(connection, f"SELECT * FROM gathered {query.order}")


def _arrow(connection: "DuckDBPyConnection", sql: str) -> pa.Table:
    return connection.sql(sql).to_arrow_table()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
