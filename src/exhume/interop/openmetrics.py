"""Write per-second metrics as OpenMetrics text with timestamps, for `promtool tsdb create-blocks-from openmetrics` and
similar tools: the states of every core, and the metrics of the node."""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exhume.model.clock import NANOS

Floats = npt.NDArray[np.float64]

STATES = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "idle")
# Columns of the table node, by kind; all others are counts over the row's interval, shown as rates.
_STALLS = ("psi_cpu_some", "psi_memory_some", "psi_memory_full", "psi_io_some", "psi_io_full")
_KIBIBYTES = (
    *("mem_total", "mem_free", "mem_available", "cached", "dirty", "writeback", "shmem", "slab_reclaimable"),
    *("slab_unreclaimable", "percpu", "kernel_stack", "swap_total", "swap_free"),
)
_LEVELS = (
    *("running", "blocked", "load1", "dentries", "dentries_unused", "dentries_negative", "inodes", "mounts"),
    *("conntrack", "conntrack_max", "net_namespaces"),
)
_KEYS = ("time", "wall", "span_ms")


def render_openmetrics(cores: pa.Table, node: pa.Table) -> str:
    """Render rows of the tables cpu and node with `wall` (nanoseconds), in order of time."""
    return "".join((*_cores(cores), *_node(node), "# EOF\n"))


def _cores(rows: pa.Table) -> Iterator[str]:
    cpus = rows.column("cpu").to_numpy()
    places = {cpu: np.flatnonzero(cpus == cpu) for cpu in np.unique(cpus).tolist()}
    walls = rows.column("wall").to_numpy()
    if places:
        yield _header("exhume_core_state_ratio", "ratio", "Share of the second that the core spent in the state.")
    shares = {state: rows.column(state).to_numpy() / 1000 for state in STATES}
    for cpu, at in places.items():
        for state in STATES:
            labels = f'{{cpu="{cpu}",state="{state}"}}'
            yield from _points("exhume_core_state_ratio", labels, walls[at], shares[state][at])
    waits = _per_second(rows, "wait_ns") / NANOS
    if np.isfinite(waits).any():
        name, about = "exhume_core_run_queue_wait_ratio", "Time that threads waited for the core, for each second."
        yield _header(name, "ratio", about)
        for cpu, at in places.items():
            yield from _points(name, f'{{cpu="{cpu}"}}', walls[at], waits[at])


def _node(rows: pa.Table) -> Iterator[str]:
    walls = rows.column("wall").to_numpy()
    for column in rows.schema.names:
        if column in _KEYS:
            continue
        name, unit, values = f"exhume_node_{column}", "", _numbers(rows, column)
        if column in _STALLS:
            name, unit, values = f"{name}_ratio", "ratio", _per_second(rows, column) / 1e6
        elif column in _KIBIBYTES:
            name, unit, values = f"{name}_bytes", "bytes", values * 1024
        elif column not in _LEVELS:
            name, values = f"{name}_per_second", _per_second(rows, column)
        if np.isfinite(values).any():
            yield _header(name, unit, f"Column {column} of the table node.")
            yield from _points(name, "", walls, values)


def _header(name: str, unit: str, about: str) -> str:
    unit_line = f"# UNIT {name} {unit}\n" if unit else ""
    return f"# TYPE {name} gauge\n{unit_line}# HELP {name} {about}\n"


def _points(name: str, labels: str, walls: npt.NDArray[np.int64], values: Floats) -> Iterator[str]:
    last = -1
    for wall, value in zip(walls.tolist(), values.tolist(), strict=True):
        # Unknown values are omitted. Timestamps of a series must increase, but a clock that was set back yields some of
        # them twice.
        if not math.isnan(value) and wall > last:
            last = wall
            yield f"{name}{labels} {value:.12g} {wall // NANOS}.{wall % NANOS // 1_000_000:03d}\n"


def _numbers(rows: pa.Table, column: str) -> Floats:
    """A column as floats; NaN for missing values."""
    found: Floats = rows.column(column).cast(pa.float64()).to_numpy()
    return found


def _per_second(rows: pa.Table, column: str) -> Floats:
    spans: Floats = np.maximum(1, rows.column("span_ms").to_numpy()) / 1000
    return _numbers(rows, column) / spans
