"""DuckDB in this process; also the part of a query that a remote engine's task runs on some of the files."""

import errno
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as pads

from exhume.fleet.engines import Answer, EngineError
from exhume.fleet.engines.files import LakeFiles
from exhume.fleet.queries import Query

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Rows beyond this are spilled to the system's temporary directory; DuckDB's default is the current one.
MEMORY = "2GB"
# Files that one statement reads. DuckDB holds the footers of all of them (union_by_name), outside of MEMORY.
MOST_FILES = 4096
_MISSING = "the report needs DuckDB: pip install 'exhume[fleet]'"
# Maximum length of a reason: damaged footers and pages, missing files, values of the wrong type, oversized pages.
_REASON = 160


class LocalEngine:
    """DuckDB in this process, on all cores."""

    name = "local"

    def __init__(self, threads: int | None = None) -> None:
        """Connect to DuckDB. Raises EngineError."""
        self._closing = ExitStack()
        self._connection = self._closing.enter_context(connect(threads or len(os.sched_getaffinity(0))))

    def run(self, asked: Sequence[tuple[Query, LakeFiles]]) -> list[Answer]:
        return [self._run(query, files) for query, files in asked]

    def _run(self, query: Query, files: LakeFiles) -> Answer:
        parts, unread = select(self._connection, query, files)
        return Answer(merge(self._connection, query, parts, query.order), unread)

    def close(self) -> None:
        self._closing.close()


class OutOfMemory(EngineError):
    """A query needs more memory than it may take, and there is no room on the disk for the rest."""


@contextmanager
def connect(threads: int) -> "Iterator[DuckDBPyConnection]":
    """A connection to an in-memory database, which spills to a private directory. Raises EngineError if DuckDB is
    missing."""
    try:
        import duckdb
    except ImportError:
        raise EngineError(_MISSING) from None
    config: dict[str, Any] = {
        "threads": threads,
        "memory_limit": MEMORY,
        "preserve_insertion_order": False,
        # The lake's files are untrusted: nothing in them may load code.
        "autoinstall_known_extensions": False,
    }
    with _spill_directory() as config["temp_directory"], duckdb.connect(":memory:", config=config) as connection:
        yield connection


@contextmanager
def _spill_directory() -> Iterator[str]:
    """A directory that only this user can read; "", with which nothing is spilled, if none can be created."""
    try:
        directory = tempfile.TemporaryDirectory(prefix="exhume-", ignore_cleanup_errors=True)
    except OSError:
        yield ""
        return
    with directory as path:
        yield path


def select(
    connection: "DuckDBPyConnection", query: Query, files: LakeFiles
) -> tuple[list[pa.Table], tuple[tuple[str, str], ...]]:
    """Run the query on some files. Unreadable files are skipped and reported. Raises LakeError or NoData if the lake
    itself is unavailable."""
    import duckdb

    if not len(files):
        return [], ()
    size = MOST_FILES
    if len(files) <= MOST_FILES:
        try:
            return [_select(connection, query, files)], ()
        except OutOfMemory:
            # Half of the files may fit.
            if len(files) == 1:
                raise
        except (duckdb.Error, pa.ArrowException, OSError, ValueError) as error:
            files.lake.check()
            if len(files) == 1:
                reason = " ".join(str(error).split())[:_REASON]
                return [], ((files.paths[0], reason),)
        size = (len(files) + 1) // 2
    several = [select(connection, query, files.part(begin, begin + size)) for begin in range(0, len(files), size)]
    return [part for parts, _ in several for part in parts], tuple(each for _, unread in several for each in unread)


def _select(connection: "DuckDBPyConnection", query: Query, files: LakeFiles) -> pa.Table:
    if files.lake.directory is not None:
        listed = ", ".join(_quoted(path) for path in files.paths)
        source = f"read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
    else:
        # DuckDB's own object-store readers would have to be downloaded; Arrow's are installed.
        system = files.lake.filesystem
        schemas = [pads.ParquetFileFormat().inspect(path, system) for path in files.paths]
        united = pa.unify_schemas(schemas, promote_options="permissive")
        connection.register("remote", pads.dataset(list(files.paths), united, "parquet", system))
        source = "remote"
    known = {name for name, *_ in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
    columns = ", ".join(_column(query, name, name in known) for name in query.columns)
    return _arrow(connection, f"WITH rows AS (SELECT {columns} FROM {source}) {query.select}")


def _column(query: Query, name: str, known: bool) -> str:
    """A column with the type that the table has now; null in files older than the column."""
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
    """Merge several parts into one, ordered if it is the last step."""
    if not parts:
        # For an answer without rows, an empty table provides the columns.
        empty = query.table.schema.empty_table().select(list(query.columns))
        connection.register("nothing", empty)
        columns = ", ".join(_column(query, name, True) for name in query.columns)
        parts = [_arrow(connection, f"WITH rows AS (SELECT {columns} FROM nothing) {query.select}")]
    connection.register("gathered", pa.concat_tables(parts, promote_options="permissive"))
    return _arrow(connection, f"WITH parts AS (SELECT * FROM gathered) SELECT * FROM ({query.merge}) {order}")


def ordered(connection: "DuckDBPyConnection", query: Query, merged: list[pa.Table]) -> pa.Table:
    """The answer: merged parts with disjoint nodes, in the query's order."""
    connection.register("gathered", pa.concat_tables(merged, promote_options="permissive"))
    return _arrow(connection, f"SELECT * FROM gathered {query.order}")


def _arrow(connection: "DuckDBPyConnection", sql: str) -> pa.Table:
    import duckdb

    try:
        return connection.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        if isinstance(error, duckdb.OutOfMemoryException) or os.strerror(errno.ENOSPC) in str(error):
            raise OutOfMemory(
                f"the report needs more than {MEMORY} of memory, and the temporary directory has no room for the rest; "
                "free some there, or name another directory with TMPDIR"
            ) from None
        raise


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
