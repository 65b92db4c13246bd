"""Rows and recorders for the tests of the store."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from exhume.model.clock import MILLIS, NANOS, Tick
from exhume.model.facts import RecordingFacts
from exhume.store.read.recording import Recording
from exhume.store.write.writer import SegmentWriter

BOOT_ID = "1f0c5a9e" + "0" * 24
FACTS = RecordingFacts(
    node="node-1", boot_id=BOOT_ID, cores=2, kernel="6.8.0", arch="x86_64", event_source="cpu-clock", rate_hz=97
)
# A wall clock at a full minute, and the monotonic clock at that moment.
WALL = 1_780_000_020 * NANOS // (60 * NANOS) * 60 * NANOS
MONO = 5_000 * NANOS
OFFSET = WALL - MONO


def tick_at(index: int, *, nanos: int = NANOS, offset: int = OFFSET, start: int = MONO) -> Tick:
    begin = start + index * nanos
    return Tick(index, begin, begin + nanos, begin + nanos + offset)


def recorder(directory: Path, segment_s: int = 60, **limits: Any) -> SegmentWriter:
    return SegmentWriter(directory, FACTS, **{"max_bytes": None, "max_age_s": None, **limits}, segment_s=segment_s)


def cpu_rows(tick: Tick, cores: int = 2, **states: int) -> dict[str, Any]:
    """A row a core; states are permille, the rest is idle."""
    shares = {"user": 0, "nice": 0, "system": 0, "irq": 0, "softirq": 0, "iowait": 0, "steal": 0, "guest": 0, **states}
    shares["idle"] = 1000 - sum(shares.values())
    return {
        "time": np.full(cores, tick.start),
        "cpu": np.arange(cores),
        "span_ms": np.full(cores, tick.nanos // MILLIS),
        **{name: np.full(cores, value) for name, value in shares.items()},
    }


def sample_rows(tick: Tick, samples: Iterable[tuple[int, int, str, int]], weight_us: int = 10_000) -> dict[str, Any]:
    """Samples as (cpu, pid, comm, stack), a millisecond apart from the tick's start."""
    samples = list(samples)
    return {
        "time_ms": [tick.start // MILLIS + i for i in range(len(samples))],
        "cpu": [cpu for cpu, _, _, _ in samples],
        "pid": [pid for _, pid, _, _ in samples],
        "tid": [pid for _, pid, _, _ in samples],
        "comm": [comm for _, _, comm, _ in samples],
        "stack": [stack for _, _, _, stack in samples],
        "weight_us": [weight_us] * len(samples),
    }


def loss_row(tick: Tick, count: int) -> dict[str, Any]:
    return {"time": [tick.start], "source": ["test"], "kind": ["lost"], "count": [count], "text": ["for a test"]}


def rows_of(recording: Recording, table: str, *arguments: Any) -> list[tuple[Any, ...]]:
    """Rows as tuples, in an order of their own, so that two sets of rows can be compared."""
    found = recording.read(table, *arguments)
    names = [name for name in found.schema.names if name != "wall"]
    return as_tuples(names, found.select(names).to_pydict())


def as_tuples(names: list[str], columns: dict[str, Any]) -> list[tuple[Any, ...]]:
    rows = zip(*(columns[name] for name in names), strict=True)
    return sorted((tuple(_plain(value) for value in row) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | np.ndarray) else value


def seconds(since: float, until: float) -> Iterator[int]:
    """Bounds of a window, in seconds after WALL."""
    yield WALL + round(since * NANOS)
    yield WALL + round(until * NANOS)


def record_noise(writer: SegmentWriter, ticks: range, samples: int = 400) -> None:
    """Record ticks with samples that can hardly be compressed; the core says by `system` which tick it was."""
    for index in ticks:
        tick = tick_at(index)
        writer.append("cpu", cpu_rows(tick, cores=1, system=index % 1000))
        writer.append(
            "samples", sample_rows(tick, [(0, i, f"c{i * 7919 % 104729}", i * 2**40) for i in range(samples)])
        )
        writer.commit(tick)


def recorded_ticks(directory: Path) -> list[int]:
    return sorted(Recording.open(directory).read("cpu", None, ["system"]).column("system").to_pylist())
