"""Recordings made to order: cores, stacks, counters and events of a few seconds, in the real format.

    scene = Scene(cores=4, seconds=40)
    scene.core(2, 20, 30, system=980)                      # permille, from second 20 to 30
    scene.stack(2, 20, 30, 0.97, "kubelet", 77, ["do_syscall_64", "memcg_stat_show", "mem_cgroup_iter"])
    scene.node(20, 30, forks=4_000)                        # per second
    recording = scene.write(tmp_path)

Frames are root first; a frame `libc.so:memcpy` is user code of that module, a bare name is the kernel's.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterator
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.facts import RecordingFacts
from exhume.store.format.names import SegmentName, boot_part
from exhume.store.read.recording import Recording
from exhume.store.write.seal import write_sealed
from exhume.store.write.writer import to_batch

MONO = 5_000 * NANOS
WALL = 1_780_000_020 * NANOS
RATE = 97
STATES = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "guest")


def at(second: float) -> int:
    """The wall time of a second of the scene."""
    return WALL + round(second * NANOS)


class _Sampled(NamedTuple):
    """A stack of a core, this often in each of the seconds."""

    since: int
    until: int
    count: int
    cpu: int
    pid: int
    comm: str
    stack: int


class Scene:
    """A node that idles, but for what a test adds."""

    def __init__(self, cores: int = 4, seconds: int = 40, *, wall: int = WALL, **facts: Any) -> None:
        """`wall`: when it begins; `at` and `window` are of one that begins as usual."""
        self.cores = cores
        self._wall = wall
        self.seconds = seconds
        self._facts = facts
        self._states: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
        self._node: dict[int, dict[str, Any]] = defaultdict(dict)
        self._rows: dict[int, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
        # Apart from the other rows: a large node has hundreds of thousands, too many for an object each.
        self._sampled: list[_Sampled] = []
        self._stacks: dict[tuple[str, ...], int] = {}
        self._without: set[str] = set()
        # By the second: for how long the row that begins there is; those without a row have no number.
        self._spans = dict.fromkeys(range(seconds), 1)

    @property
    def window(self) -> Window:
        return Window(at(0), at(self.seconds))

    def core(self, cpu: int, since: int, until: int, **states: int) -> "Scene":
        """Shares of a core in permille; also wait_ns, switches, net_rx, net_tx."""
        for second in range(since, until):
            self._states[cpu, second].update(states)
        return self

    def states(self, cpu: int, second: int) -> dict[str, int]:
        """What a core was asked to do in a second."""
        return self._states[cpu, second]

    def stack(  # noqa: PLR0917
        self, cpu: int, since: int, until: int, share: float, comm: str, pid: int, frames: list[str]
    ) -> "Scene":
        """So much of a core's time in a stack."""
        self._sampled.append(_Sampled(since, until, round(share * RATE), cpu, pid, comm, self.stack_of(frames)))
        return self

    def stack_of(self, frames: list[str]) -> int:
        """The number of a stack, for rows of samples."""
        return self._stacks.setdefault(tuple(frames), zlib.crc32("|".join(frames).encode()) + 1)

    def node(self, since: int, until: int, **values: Any) -> "Scene":
        """Columns of the node table: differences over a second, or levels."""
        for second in range(since, until):
            self._node[second].update(values)
        return self

    def row(self, table: str, second: float, **values: Any) -> "Scene":
        """Any row; its time is that of the second."""
        self._rows[int(second)][table].append({"at": second, **values})
        return self

    def event(self, second: float, kind: str, text: str, severity: str = "critical", **values: Any) -> "Scene":
        source = values.pop("source", "kernel-log")
        return self.row("events", second, source=source, kind=kind, severity=severity, text=text, **values)

    def pause(self, since: int, until: int, *, late: bool = False) -> "Scene":
        """Seconds without rows of cores and node: the recorder was away, or `late` and wrote one for them all."""
        for second in range(since, until):
            self._spans.pop(second, None)
        if late:
            self._spans[since] = until - since
        return self

    def without(self, *tables: str) -> "Scene":
        """Leave tables out, as where a source was missing."""
        self._without.update(tables)
        return self

    def write(self, directory: Path) -> Recording:
        facts = {
            "node": "node-1",
            "boot_id": "1f0c5a9e" + "0" * 24,
            "cores": self.cores,
            "kernel": "6.8.0",
            "arch": "x86_64",
            "event_source": "cpu-clock",
            "rate_hz": RATE,
            **self._facts,
        }
        tables: dict[str, list[dict[str, Any]]] = defaultdict(list)
        starts = [MONO + second * NANOS for second in range(self.seconds)]
        for second, start in enumerate(starts):
            if second in self._spans:
                span = self._spans[second] * 1000
                tables["node"].append({"time": start, "span_ms": span, **self._node[second]})
            for table, rows in self._rows[second].items():
                tables[table] += [_timed(table, row) for row in rows]
        ends = [start + NANOS for start in starts]
        written = [
            ("anchors", {"time": ends, "wall": [end + self._wall - MONO for end in ends]}),
            ("cpu", self._recorded(self._cpu(starts))),
            *self._sampled_tables(),
            *((table, _columns(rows)) for table, rows in tables.items()),
        ]
        batches: dict[str, list[pa.RecordBatch]] = defaultdict(list)
        for table, columns in written:
            batch = to_batch(table, columns) if table not in self._without else None
            if batch is not None:
                batches[table].append(batch)
        # At once as a sealed segment: to commit each second and to sync each file would take most of the time.
        directory.mkdir(parents=True, exist_ok=True)
        name = SegmentName(self._wall // MILLIS, boot_part(facts["boot_id"]), MONO // MILLIS)
        whole = {table: pa.Table.from_batches(each) for table, each in sorted(batches.items())}
        write_sealed(directory, name, RecordingFacts(**facts), whole)
        return Recording.open(directory)

    def _recorded(self, columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
        """The rows of cores without those of seconds that have none, each with its length."""
        seconds = [second for second in range(self.seconds) for _ in range(self.cores)]
        columns["span_ms"] = [self._spans.get(second, 0) * 1000 for second in seconds]
        kept = [second in self._spans for second in seconds]
        return {name: list(compress(column, kept)) for name, column in columns.items()}

    def _cpu(self, starts: list[int]) -> dict[str, list[Any]]:
        """The shares of all cores, second by second."""
        rows = len(starts) * self.cores
        columns: dict[str, list[Any]] = {
            "time": [start for start in starts for _ in range(self.cores)],
            "cpu": [*range(self.cores)] * len(starts),
            **{name: [0] * rows for name in (*STATES, "wait_ns")},
        }
        for (cpu, second), states in self._states.items():
            if cpu < self.cores and second < len(starts):
                for name, value in states.items():
                    columns.setdefault(name, [None] * rows)[second * self.cores + cpu] = value
        columns["idle"] = [1000 - sum(shares) for shares in zip(*(columns[name] for name in STATES), strict=True)]
        return columns

    def _sampled_tables(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Frames, stacks, and the samples of all stacks in the order of their seconds."""
        frames = {frame: zlib.crc32(frame.encode()) + 1 for stack in self._stacks for frame in stack}
        if frames and "samples" not in self._without:
            parts = {frame: frame.rpartition(":") for frame in frames}
            yield (
                "frames",
                {
                    "frame": list(frames.values()),
                    "kind": ["user" if parts[frame][0] else "kernel" for frame in frames],
                    "module": [parts[frame][0] for frame in frames],
                    "name": [parts[frame][2] for frame in frames],
                },
            )
            stacks = [[frames[frame] for frame in stack] for stack in self._stacks]
            yield "stacks", {"stack": list(self._stacks.values()), "frames": stacks}
        sampled = [each for each in self._sampled if each.count and each.since < min(each.until, self.seconds)]
        if not sampled:
            return
        lengths = [min(each.until, self.seconds) - each.since for each in sampled]
        second = np.concatenate(
            [np.repeat(np.arange(s.since, s.since + long), s.count) for s, long in zip(sampled, lengths, strict=True)]
        )
        share = np.concatenate(
            [np.tile(np.arange(s.count) / s.count, long) for s, long in zip(sampled, lengths, strict=True)]
        )
        order = np.argsort(second, kind="stable")
        moments = MONO + np.rint((second + share * 0.999)[order] * NANOS).astype(np.int64)
        which = np.repeat(np.arange(len(sampled)), [s.count * n for s, n in zip(sampled, lengths, strict=True)])[order]
        columns = {name: np.array([getattr(each, name) for each in sampled])[which] for name in ("cpu", "pid", "stack")}
        comms = np.array([each.comm for each in sampled], object)[which]
        weights = np.full(len(which), round(1_000_000 / RATE))
        times = {"time_ms": moments // MILLIS, "weight_us": weights}
        yield "samples", {**times, **columns, "tid": columns["pid"], "comm": comms}


def _timed(table: str, row: dict[str, Any]) -> dict[str, Any]:
    moment = MONO + round(row.pop("at") * NANOS)
    return {"time_ms": moment // MILLIS, **row} if table == "samples" else {"time": moment, **row}


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}
