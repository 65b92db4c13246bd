"""A small lake, written by hand: thirty nodes in three zones, three hours over midnight, sick ones in zone b."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2026, 7, 14, 22, tzinfo=UTC)
HOURS = 3
NODES = [f"node-{i:02d}" for i in range(30)]
ZONES = ("a", "b", "c")
#: Sends attributes and no summaries.
SILENT = "node-silent"
TIMES = pa.timestamp("us", tz="UTC")
MINUTES = 5


def zone_of(node: str) -> str:
    return ZONES[NODES.index(node) % 3]


def is_sick(node: str) -> bool:
    return zone_of(node) == "b" and NODES.index(node) < 15


def ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def hour_at(i: int) -> datetime:
    return START + timedelta(hours=i)


@dataclass(frozen=True)
class Lake:
    """Where it is, and what is in it that tests look for."""

    directory: Path
    #: Node and id of the incident that has a bundle.
    with_bundle: tuple[str, str]

    def hour(self, i: int) -> int:
        return ms(hour_at(i))


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows as a file of the lake; times are those with a time zone."""
    table = pa.Table.from_pylist(list(rows))
    for i, part in enumerate(table.schema):
        if pa.types.is_timestamp(part.type):
            table = table.set_column(i, part.name, table.column(i).cast(TIMES))
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


def summary(node: str, minute: datetime, **values: Any) -> dict[str, Any]:
    return {"node": node, "minute": minute, "boot_id": "b", "longest_stall_s": 0.0, "incidents": 0, **values}


def minutes_of(node: str, hour: int) -> list[dict[str, Any]]:
    """The first minutes of an hour; in the second one sick nodes stall, in their third minute."""
    begin = hour_at(hour)
    rows = [
        summary(node, begin + timedelta(minutes=i), memcgs_dying=100 * hour + i, pressure_cpu=0.1)
        for i in range(MINUTES)
    ]
    if hour == 1 and is_sick(node):
        rows[2] |= {"longest_stall_s": 6.5, "incidents": 2}
        rows[3] |= {"incidents": 1}
    return rows


def write_lake(directory: Path, bundle: bytes) -> Lake:
    for i in range(HOURS):
        begin = hour_at(i)
        folder = directory / f"summaries/date={begin:%Y-%m-%d}/hour={begin:%H}"
        for part, nodes in (("n", NODES[:20]), ("m", NODES[20:])):
            write_rows(folder / f"{part}-1.parquet", [row for node in nodes for row in minutes_of(node, i)])
    attributes = [row for node in [*NODES, SILENT] for row in attributes_of(node)]
    write_rows(directory / "attributes/date=2026-07-14/all-1.parquet", attributes)
    changed = {"node": NODES[0], "at": hour_at(2) + timedelta(minutes=30), "key": "kernel", "value": "6.12"}
    gone = {"node": NODES[1], "at": hour_at(2) + timedelta(minutes=30), "key": "pool", "value": None}
    write_rows(directory / "attributes/date=2026-07-15/change-1.parquet", [changed, gone])
    sick = [node for node in NODES if is_sick(node)]
    incidents = [
        {
            "node": node,
            "id": f"i-{number}",
            "at": hour_at(1) + timedelta(minutes=2, seconds=number),
            "until": hour_at(1) + timedelta(minutes=2, seconds=number + 6),
            "cause": "zombie-memcgs" if number % 2 == 0 else "softirq-storm",
            "severity": "critical",
            "confidence": 0.9,
            "core": 3,
            "function": "mem_cgroup_nr_lru_pages",
            "summary": f"core 3 held for {number} s",
            "bundle": f"bundles/node=aa/i-{number}.exhume.zip" if number == 0 else None,
        }
        for number, node in enumerate(sick)
    ]
    write_rows(directory / "incidents/date=2026-07-14/i-1.parquet", incidents)
    # Sent twice, and one whose bundle leads out of the lake.
    late = {**incidents[0], "bundle": None}
    escape = {**incidents[1], "id": "i-escape", "node": NODES[2], "bundle": "bundles/../../etc/x.exhume.zip"}
    write_rows(directory / "incidents/date=2026-07-14/i-2.parquet", [late, escape])
    target = directory / "bundles/node=aa/i-0.exhume.zip"
    target.parent.mkdir(parents=True)
    target.write_bytes(bundle)
    return Lake(directory, (sick[0], "i-0"))


def attributes_of(node: str) -> list[dict[str, Any]]:
    at = hour_at(0) - timedelta(hours=5)
    zone = "a" if node == SILENT else zone_of(node)
    values = {"zone": zone, "kernel": "6.1", "pool": "p1", "serial": f"sn-{node}", "os": "Debian 12"}
    if zone == "c":
        del values["pool"]
    return [{"node": node, "at": at, "key": key, "value": value} for key, value in values.items()]
