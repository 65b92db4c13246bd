"""Rows of made-up ticks for the metrics, and the values that come of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exhume.model.clock import NANOS, Tick
from exhume.model.facts import MissingSource, RecordingFacts
from exhume.model.tables import Columns, Events, Losses, to_columns
from exhume.present.metrics.observer import MetricsObserver
from exhume.procfs.host import Host

BEGIN = 1_000 * NANOS
STATES = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "guest", "idle")


def facts(missing: Sequence[str] = ()) -> RecordingFacts:
    sources = [MissingSource(name, "made up") for name in missing]
    return RecordingFacts("node-17", "b" * 32, 4, "6.1.0", "x86_64", "cpu-clock", 97, sources, exhume_version="1.2.3")


def tick(index: int, seconds: float = 1.0) -> Tick:
    start = BEGIN + int(index * NANOS)
    return Tick(index, start, start + int(seconds * NANOS), 1_700_000_000 * NANOS + index * NANOS)


def cpu(*cores: Mapping[str, int], wait_ns: Sequence[int | None] | None = None) -> Columns:
    """Cores with the shares that are given, in permille; the rest is idle."""
    columns: dict[str, Any] = {"cpu": np.arange(len(cores), dtype=np.uint16)}
    for state in STATES[:-1]:
        columns[state] = np.array([core.get(state, 0) for core in cores], np.uint16)
    columns["idle"] = np.array([1000 - sum(core.values()) for core in cores], np.uint16)
    if wait_ns is not None:
        columns["wait_ns"] = list(wait_ns)
    return columns


def threads(*rows: tuple[str, int, int | None]) -> Columns:
    """Per-core kernel threads: the name, the time that it waited, and the number of its turns."""
    comms, waits, slices = zip(*rows, strict=True)
    cores = [int(comm.partition("/")[2]) for comm in comms]
    return {"comm": comms, "cpu": cores, "run_ns": [0] * len(rows), "wait_ns": waits, "slices": slices}


def events(*rows: Events) -> Columns:
    return to_columns("events", rows)


class Watched:
    """A metrics observer, and its values by sample name and labels."""

    def __init__(self, host: Host | None = None, missing: Sequence[str] = ()) -> None:
        self.now = BEGIN
        self.observer = MetricsObserver(facts(missing), lambda: 3, host or Host(), lambda: self.now)
        self._index = -1

    def tick(self, losses: Sequence[Losses] = (), /, *, seconds: float = 1.0, **rows: Columns) -> "Watched":
        self._index += 1
        this = tick(self._index, seconds)
        self.now = this.end
        self.observer.observe(this, {table: [columns] for table, columns in rows.items()}, losses)
        return self

    def ticks(self, count: int) -> "Watched":
        """So many ticks in which nothing happens."""
        for _ in range(count):
            self.tick()
        return self

    def values(self, name: str) -> dict[tuple[str, ...], float]:
        return {
            labels: value
            for family, series in self.observer.read()
            if family.sample == name
            for labels, value in series
        }

    def value(self, name: str, *labels: str) -> float | None:
        return self.values(name).get(labels)
