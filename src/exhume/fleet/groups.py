"""Groups of nodes in a lake, by a value of one of their attributes: `zone=us-east-1a`."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from exhume.fleet.compare import Side
from exhume.fleet.lake import SUFFIX, Lake
from exhume.fleet.schema import ATTRIBUTES
from exhume.model.errors import ExhumeError, NoData
from exhume.model.text import count

# Each node pushes all of its attributes once a day: older partitions would add only nodes that are gone.
_NEWEST_DAYS = 8
_COLUMNS = pa.schema(
    [
        pa.field("node", pa.string()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.string()),
        pa.field("value", pa.string()),
    ]
)
# The last row of each attribute counts, even if it is a removal.
_LATEST = """
CREATE TEMP TABLE latest AS
SELECT node, key, value FROM (
    SELECT node, key, arg_max({'value': value}, "at").value AS value FROM attributes GROUP BY node, key
) WHERE value IS NOT NULL
"""
_MEMBERS = "SELECT count(DISTINCT node) FROM latest WHERE key = ? AND value = ?"
_COUNTS = """
SELECT key, value, count(*) FROM latest
WHERE node IN (SELECT node FROM latest WHERE key = ? AND value = ?) GROUP BY key, value
"""
_KNOWN = "SELECT value, count(*) FROM latest WHERE key = ? GROUP BY value ORDER BY count(*) DESC, value LIMIT 8"


def parse_group(text: str) -> tuple[str, str]:
    """Parse `KEY=VALUE`; `instance-type` is accepted for `instance_type`."""
    key, _, value = text.partition("=")
    key = key.strip().lower()
    return {"instance-type": "instance_type"}.get(key, key), value.strip()


def read_groups(lake: str, groups: Sequence[str], endpoint: str | None = None) -> list[Side]:
    """Read the groups, with the number of their nodes that have each value of each attribute; `endpoint` as for
    `Lake.open`. Raises NoData for a group without nodes, naming the existing values."""
    try:
        import duckdb
    except ImportError:
        raise ExhumeError("groups of a lake need DuckDB: pip install 'exhume[fleet]'") from None
    try:
        with duckdb.connect() as connection:
            connection.register("attributes", _attributes(Lake.open(lake, endpoint, make=False)))
            connection.execute(_LATEST)
            return [_side(connection, lake, *parse_group(group)) for group in groups]
    except (OSError, pa.ArrowException, duckdb.Error) as error:
        reason = str(error).partition("\n")[0]
        raise ExhumeError(f"the lake {lake} can't be read: {reason}") from None


def _side(connection: Any, lake: str, key: str, value: str) -> Side:
    ((nodes,),) = connection.execute(_MEMBERS, [key, value]).fetchall()
    if not nodes:
        known = [str(row[0]) for row in connection.execute(_KNOWN, [key]).fetchall()]
        there = f"its nodes have {', '.join(known)}" if known else "no node has that attribute"
        raise NoData(f"{lake} has no node with {key}={value}; {there}")
    counts: dict[str, dict[str, int]] = {}
    for found, own, number in connection.execute(_COUNTS, [key, value]).fetchall():
        # Skip the key that the groups were selected by: it differs by definition.
        if found != key:
            counts.setdefault(found, {})[own] = number
    return Side(f"{key}={value}", counts, nodes, count(nodes, "node"))


def _attributes(lake: Lake) -> ds.Dataset:
    days = [each.base_name for each in lake.listed(ATTRIBUTES.name) if each.base_name.startswith("date=")]
    paths = [
        each.path
        for day in sorted(days)[-_NEWEST_DAYS:]
        for each in lake.listed(f"{ATTRIBUTES.name}/{day}", recursive=True)
        if each.base_name.endswith(SUFFIX) and not each.base_name.startswith((".", "_")) and each.size
    ]
    if not paths:
        raise NoData(f"{lake.uri} has no attributes of nodes; push some with exhume fleet push")
    return ds.dataset(paths, schema=_COLUMNS, format="parquet", filesystem=lake.filesystem)
