"""Spool the rows of one file on their way to the timeline, split into the segments that they belong to.

The samples of a large file don't fit in memory, and several files cover the same minute: the rows of each file are
written to a spool as Arrow streams, one set per segment, and the timeline is assembled from all spools.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from exhume.interop.importers.form import (
    CORES,
    IDLE_MODE,
    LOG,
    MODES,
    SAMPLES,
    FileSummary,
    I64Array,
    LeftOutLog,
    SampleBatch,
    StackBook,
)
from exhume.model.clock import MILLIS, NANOS
from exhume.model.tables import Columns, Events, Losses, to_columns
from exhume.store.write.writer import to_batch

# Number of samples to buffer before some are written.
_HELD = 400_000
_FAR_NS = 2 * 86_400 * NANOS
MOST_CORES = 8192
# Counts per core and second, by mode: not a table of a recording, but the source of its derived metrics.
STATES = "states"
_STATES = pa.schema(
    [("second", pa.int64()), ("cpu", pa.uint16())]
    + [(f"{mode}_us", pa.float64()) for mode in MODES]
    + [("busy", pa.int64()), ("quiet", pa.int64())]
)
_LATEST = (1 << 63) - 2**40


class Spool:
    """Takes the rows of one file, in any order of time. Parts of a file that are read separately have a number each."""

    def __init__(self, directory: Path, segment_s: int, part: int = 0) -> None:
        self._directory = directory
        self._segment_ns = segment_s * NANOS
        self._held: defaultdict[int, list[dict[str, I64Array]]] = defaultdict(list)
        self._held_rows = 0
        self._pieces = part << 32
        self._processes: dict[int, tuple[int | None, int | None, str]] = {}
        self.spans: dict[str, tuple[int, int]] = {}
        self.rows: dict[str, int] = {}
        self.cpus: set[int] = set()
        #: Samples whose time is far from all others, or whose core number is impossible.
        self.odd_samples = 0

    def add_samples(self, batch: SampleBatch, book: StackBook, comms: list[str]) -> None:
        """Add samples; those of an idle core are counted but not kept."""
        batch = self._near(batch)
        if not len(batch):
            return
        modes = book.modes(batch.stack)
        self._cover(SAMPLES, batch.time)
        self.rows[SAMPLES] = self.rows.get(SAMPLES, 0) + len(batch)
        self.cpus.update(np.unique(batch.cpu).tolist())
        self._count(batch, modes)
        busy = modes != IDLE_MODE
        segment = batch.time // self._segment_ns
        columns = {
            "time_ms": batch.time // MILLIS,
            **{name: getattr(batch, name) for name in ("cpu", "pid", "tid", "comm", "stack", "weight_us")},
        }
        for number in np.unique(segment).tolist():
            chosen = busy & (segment == number)
            if chosen.any():
                self._held[number].append({name: column[chosen] for name, column in columns.items()})
                self._held_rows += int(chosen.sum())
        if self._held_rows > _HELD:
            # Files are mostly in order of time: keep the newest segment, which will get more samples.
            for number in sorted(self._held)[:-1] or list(self._held):
                self._write_samples(number, book, comms)

    def _near(self, batch: SampleBatch) -> SampleBatch:
        """Drop samples with an impossible time or core: a single one would make the recording span years."""
        if not len(batch):
            return batch
        kept = (np.abs(batch.time - np.median(batch.time)) <= _FAR_NS) & (batch.cpu < MOST_CORES)
        if kept.all():
            return batch
        self.odd_samples += int(np.count_nonzero(~kept))
        return SampleBatch(*(getattr(batch, name)[kept] for name in SampleBatch.__slots__))

    def finish(self, book: StackBook, comms: list[str]) -> None:
        """Write the buffered rows."""
        for number in sorted(self._held):
            self._write_samples(number, book, comms)

    def note_process(self, pid: int, ppid: int | None, start: int | None, comm: str) -> None:
        """Describe a process as it is from this time on."""
        self._processes[pid] = (ppid, start, comm)

    def add_cores(self, columns: Mapping[str, Any]) -> None:
        """Add measured metrics: rows of the table cpu."""
        time = np.asarray(columns["time"], np.int64)
        if not len(time):
            return
        span = np.asarray(columns["span_ms"], np.int64) * MILLIS
        self._cover(CORES, time)
        self._cover(CORES, time + span)
        self.cpus.update(np.unique(columns["cpu"]).tolist())
        self._add("cpu", CORES, time, columns)

    def add_events(self, events: Iterable[Events]) -> None:
        """Add log lines."""
        events = list(events)
        if events:
            columns = to_columns("events", events)
            time = np.array(columns["time"], np.int64)
            self._cover(LOG, time)
            self._add("events", LOG, time, columns)

    def add_losses(self, losses: Iterable[Losses]) -> None:
        losses = list(losses)
        if losses:
            columns = to_columns("losses", losses)
            self._add("losses", "losses", np.array(columns["time"], np.int64), columns)

    def add_forks(self, times: I64Array) -> None:
        """Count new processes and threads per second into the table node."""
        if len(times):
            seconds, counts = np.unique(times // NANOS, return_counts=True)
            span = np.full(len(seconds), 1000)
            self._add("node", "forks", seconds * NANOS, {"time": seconds * NANOS, "span_ms": span, "forks": counts})

    def _add(self, table: str, family: str, time: I64Array, columns: Columns) -> None:
        self.rows[family] = self.rows.get(family, 0) + len(time)
        segment = time // self._segment_ns
        for number in np.unique(segment).tolist():
            chosen = np.flatnonzero(segment == number)
            part = {name: _taken(values, chosen) for name, values in columns.items()}
            batch = to_batch(table, part)
            if batch is not None:
                self._write(number, table, batch)

    def _cover(self, family: str, time: I64Array) -> None:
        first, last = int(time.min()), int(time.max())
        if first < 0 or last > _LATEST:
            raise OverflowError("a time before 1970 or beyond 2262")
        known = self.spans.get(family)
        self.spans[family] = (first, last) if known is None else (min(first, known[0]), max(last, known[1]))

    def _count(self, batch: SampleBatch, modes: I64Array) -> None:
        second = batch.time // NANOS
        key = (second - second.min()) * 65536 + batch.cpu
        distinct, which = np.unique(key, return_inverse=True)
        columns: dict[str, Any] = {
            "second": distinct // 65536 + second.min(),
            "cpu": (distinct % 65536).astype(np.uint16),
        }
        for number, mode in enumerate(MODES):
            weights = np.where(modes == number, batch.weight_us, 0)
            columns[f"{mode}_us"] = np.bincount(which, weights=weights, minlength=len(distinct))
        columns["busy"] = np.bincount(which[modes != IDLE_MODE], minlength=len(distinct))
        columns["quiet"] = np.bincount(which[modes == IDLE_MODE], minlength=len(distinct))
        segment = columns["second"] * NANOS // self._segment_ns
        for number in np.unique(segment).tolist():
            chosen = segment == number
            self._write(number, STATES, pa.RecordBatch.from_pydict({n: c[chosen] for n, c in columns.items()}, _STATES))

    def _write_samples(self, number: int, book: StackBook, comms: list[str]) -> None:
        parts = self._held.pop(number)
        columns: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        rows = len(columns["time_ms"])
        self._held_rows -= rows
        used = np.unique(columns["stack"])
        stacks = [book.stacks[place] for place in used.tolist()]
        frames = {frame.id: frame for stack in stacks for frame in stack}
        self._write_rows(
            number,
            "frames",
            {
                "frame": list(frames),
                **{name: [getattr(frame, name) for frame in frames.values()] for name in ("kind", "module", "name")},
            },
        )
        self._write_rows(
            number,
            "stacks",
            {
                "stack": book.ids(used),
                "frames": [[frame.id for frame in stack] for stack in stacks],
            },
        )
        self._write_rows(number, "processes", self._described(columns, comms))
        columns["stack"] = book.ids(columns["stack"])
        columns["comm"] = pa.array(comms, pa.string()).take(pa.array(columns["comm"]))
        self._write_rows(number, "samples", columns)

    def _described(self, columns: Mapping[str, Any], comms: list[str]) -> Columns:
        """Build a row for each sampled process."""
        order = np.lexsort((columns["tid"] != columns["pid"], columns["pid"]))
        pids, first = np.unique(columns["pid"][order], return_index=True)
        places = order[first]
        rows = []
        start = int(columns["time_ms"].min()) * MILLIS
        for pid, comm in zip(pids.tolist(), columns["comm"][places].tolist(), strict=True):
            ppid, began, name = self._processes.get(pid, (None, None, comms[comm]))
            rows.append((start, pid, ppid, began, name))
        names = ("time", "pid", "ppid", "start", "comm")
        return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))

    def _write_rows(self, number: int, table: str, columns: Columns) -> None:
        batch = to_batch(table, columns)
        if batch is not None:
            self._write(number, table, batch)

    def _write(self, number: int, table: str, batch: pa.RecordBatch) -> None:
        place = self._directory / str(number)
        place.mkdir(parents=True, exist_ok=True)
        self._pieces += 1
        path = str(place / f"{table}.{self._pieces}.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
            stream.write_batch(batch)


@dataclass(slots=True)
class Intake:
    """Where a reader puts the contents of one file."""

    spool: Spool
    summary: FileSummary
    left_out: LeftOutLog = field(default_factory=LeftOutLog)


def _taken(values: Any, chosen: I64Array) -> Any:
    if isinstance(values, np.ndarray):
        return values[chosen]
    return [values[place] for place in chosen.tolist()]


def spooled_segments(directory: Path) -> list[int]:
    """The segments that a file has rows for."""
    return sorted(map(int, os.listdir(directory))) if directory.is_dir() else []  # noqa: PTH208


def spooled_rows(directory: Path, number: int) -> Iterator[tuple[str, pa.Table]]:
    """Yield the rows of one file for a segment, each with the name of its table."""
    place = directory / str(number)
    if place.is_dir():
        for path in sorted(place.iterdir(), key=lambda each: int(each.name.split(".")[1])):
            with pa.memory_map(str(path)) as file:
                yield path.name.split(".")[0], pa.ipc.open_stream(file).read_all()
