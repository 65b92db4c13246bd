"""Small lakes for tests: synthetic ones, and ones of a few rows."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from exhume.fleet.engines.local import LocalEngine
from exhume.fleet.report import FleetReport, report
from exhume.fleet.schema import TABLES
from exhume.lab.fleet import FleetPlan, FleetSummary, write_fleet
from exhume.model.clock import NANOS, Window

# A full hour.
UNTIL = int(datetime(2026, 3, 8, 12, tzinfo=UTC).timestamp()) * NANOS
DAY_NS = 86_400 * NANOS


def window(days: float) -> Window:
    return Window(UNTIL - int(days * DAY_NS), UNTIL)


def plan(nodes: int = 300, days: float = 1.0, **others: Any) -> FleetPlan:
    return FleetPlan(nodes, days, UNTIL, **others)


def planted(directory: Path, made: FleetPlan) -> FleetSummary:
    return write_fleet(directory, made)


def report_of(directory: Path | str, days: float = 1.0) -> FleetReport:
    engine = LocalEngine()
    try:
        return report(str(directory), window(days), engine)
    finally:
        engine.close()


def write_rows(
    lake: Path, table: str, rows: Iterable[Mapping[str, Any]], name: str = "a", leave: tuple[str, ...] = ()
) -> Path:
    """Rows (times in seconds before UNTIL) as one file, in the partition of the first; without some columns."""
    kind = TABLES[table]
    rows = [dict(each) for each in rows]
    for each in rows:
        for field in kind.schema:
            if pa.types.is_timestamp(field.type) and each.get(field.name) is not None:
                each[field.name] = datetime.fromtimestamp(UNTIL / NANOS - each[field.name], UTC)
    made = pa.Table.from_pylist(rows, kind.schema).drop_columns(list(leave))
    first: datetime = rows[0][kind.time]
    folder = lake / table / f"date={first:%Y-%m-%d}"
    if kind.hourly:
        folder /= f"hour={first:%H}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.parquet"
    pq.write_table(made, path, store_schema=False)
    return path


def minutes(node: str, *ago: float, **values: Any) -> list[dict[str, Any]]:
    """Minutes of a node, so many seconds before UNTIL."""
    return [
        {"node": node, "minute": each, "boot_id": f"{node}-1", "uptime_s": 900_000 - each, **values} for each in ago
    ]
