"""The tables of the lake: their columns, partitioning and row keys. docs/fleet.md describes each column and is checked
against this.

Columns are only ever added, and nullable: files of several versions coexist, and readers unite them by name. Times are
UTC, by the clock of the node; `received_at` and `clock_off_s` are set by the hub, null without one.
"""

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

# The version of a batch and of the meaning of a file; adding a column does not change it.
VERSION = 1

INSTANT = pa.timestamp("us", tz="UTC")
# Enforced by the hub as well: a value is a name or a number, never a file.
MAX_NODE_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES = 253, 200, 200
# States of the busiest core; "" if no core was busy.
STATES = ("user", "system", "softirq", "irq", "iowait", "steal")
# From this offset on a node's clock counts as wrong; delays of transport and of the end of a minute are well below it.
CLOCK_OFF_S = 300.0


@dataclass(frozen=True)
class LakeTable:
    """One table. `time` determines a row's partition (a date, and the hour if `hourly`); `key` identifies the row;
    `changing` are numbers that differ from row to row and are not worth a dictionary."""

    name: str
    schema: pa.Schema
    time: str
    key: tuple[str, ...]
    hourly: bool = False
    changing: tuple[str, ...] = ()

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The columns that exist in every version and are never null."""
        return tuple(field.name for field in self.schema if not field.nullable)


def _schema(required: dict[str, pa.DataType], nullable: dict[str, pa.DataType]) -> pa.Schema:
    by_hub = {"received_at": INSTANT, "clock_off_s": pa.float32()}
    return pa.schema(
        [pa.field(name, kind, nullable=False) for name, kind in required.items()]
        + [pa.field(name, kind) for name, kind in (nullable | by_hub).items()]
    )


_TEXT, _SHARE, _COUNT = pa.string(), pa.float32(), pa.uint16()

SUMMARIES = LakeTable(
    "summaries",
    _schema(
        {"node": _TEXT, "minute": INSTANT, "boot_id": _TEXT},
        {
            "uptime_s": pa.float32(),
            "cores": pa.uint16(),
            "covered_s": pa.float32(),
            "busiest_core": pa.uint16(),
            "busiest_share": _SHARE,
            "busiest_state": _TEXT,
            "busy_share": _SHARE,
            "kernel_share": _SHARE,
            "stall_s": pa.float32(),
            "longest_stall_s": pa.float32(),
            "ksoftirqd_wait_s": pa.float32(),
            "runqueue_wait_s": pa.float32(),
            "pressure_cpu": _SHARE,
            "pressure_memory": _SHARE,
            "pressure_io": _SHARE,
            "memcgs_tracked": pa.uint32(),
            "memcgs_dying": pa.uint32(),
            "cgroups_made": pa.uint32(),
            "cgroups_leaked": pa.uint32(),
            "nic_timeouts": _COUNT,
            "nic_resets": _COUNT,
            "throttled_s": pa.float32(),
            "reclaim_share": _SHARE,
            "unit_restarts": _COUNT,
            "container_restarts": _COUNT,
            "oom_kills": _COUNT,
            "incidents": _COUNT,
            "cost_per_zombie_us": pa.float32(),
            "lost_s": pa.float32(),
            "recorder_cpu": _SHARE,
            "dropped_minutes": pa.uint32(),
        },
    ),
    time="minute",
    key=("node", "minute", "boot_id"),
    hourly=True,
    changing=("minute", "uptime_s", "received_at"),
)

ATTRIBUTES = LakeTable(
    "attributes",
    _schema({"node": _TEXT, "at": INSTANT, "key": _TEXT}, {"value": _TEXT}),
    time="at",
    key=("node", "at", "key"),
)

INCIDENTS = LakeTable(
    "incidents",
    _schema(
        {"node": _TEXT, "at": INSTANT, "id": _TEXT},
        {
            "until": INSTANT,
            "cause": _TEXT,
            "severity": _TEXT,
            "confidence": pa.float32(),
            "core": pa.int32(),
            "function": _TEXT,
            "process": _TEXT,
            "culprit": _TEXT,
            "leaker": _TEXT,
            "lost_core_s": pa.float32(),
            "summary": _TEXT,
            "finding": _TEXT,
            "bundle": _TEXT,
        },
    ),
    time="at",
    key=("node", "id"),
)

JOBS = LakeTable(
    "jobs",
    _schema(
        {"node": _TEXT, "at": INSTANT, "job": _TEXT},
        {"kind": _TEXT, "reason": _TEXT, "source": _TEXT, "member": _TEXT},
    ),
    time="at",
    # One node, the head of a cluster, may report the failures of all members of a job.
    key=("node", "at", "job", "kind", "member"),
)

TABLES = {table.name: table for table in (SUMMARIES, ATTRIBUTES, INCIDENTS, JOBS)}
# Not a table: incident bundles, bundles/node=<hash>/<id>.exhume.zip.
BUNDLES = "bundles"
