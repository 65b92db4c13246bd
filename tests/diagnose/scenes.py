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
from pathlib import Path
from typing import Any

from exhume.model.clock import MILLIS, NANOS, Tick, Window
from exhume.model.facts import RecordingFacts
from exhume.store.read.recording import Recording
from exhume.store.write.writer import SegmentWriter

MONO = 5_000 * NANOS
WALL = 1_780_000_020 * NANOS
RATE = 97
STATES = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "guest")


def at(second: float) -> int:
    """The wall time of a second of the scene."""
    return WALL + round(second * NANOS)


class Scene:
    """A node that idles, but for what a test adds."""

    def __init__(self, cores: int = 4, seconds: int = 40, **facts: Any) -> None:
        self.cores = cores
        self.seconds = seconds
        self._facts = facts
        self._states: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
        self._node: dict[int, dict[str, Any]] = defaultdict(dict)
        self._rows: dict[int, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
        self._stacks: dict[tuple[str, ...], int] = {}
        self._without: set[str] = set()

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
        number = self.stack_of(frames)
        weight = round(1_000_000 / RATE)
        for second in range(since, until):
            wanted = round(share * RATE)
            for i in range(wanted):
                self.row(
                    "samples",
                    second + i / max(wanted, 1) * 0.999,
                    cpu=cpu,
                    pid=pid,
                    tid=pid,
                    comm=comm,
                    stack=number,
                    weight_us=weight,
                )
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
        writer = SegmentWriter(directory, RecordingFacts(**facts), max_bytes=None, max_age_s=None, segment_s=3600)
        self._tell_stacks(writer)
        # All rows at once: a batch for every second and table would take most of the time.
        tables: dict[str, list[dict[str, Any]]] = defaultdict(list)
        starts = [MONO + second * NANOS for second in range(self.seconds)]
        for second, start in enumerate(starts):
            tables["cpu"] += [self._cpu(cpu, second, start) for cpu in range(self.cores)]
            tables["node"].append({"time": start, "span_ms": 1000, **self._node[second]})
            for table, rows in self._rows[second].items():
                tables[table] += [_timed(table, row) for row in rows]
        for table, rows in tables.items():
            if table not in self._without and rows:
                writer.append(table, _columns(rows))
        for second, start in enumerate(starts):
            writer.commit(Tick(second, start, start + NANOS, start + NANOS + WALL - MONO))
        writer.close()
        return Recording.open(directory)

    def _cpu(self, cpu: int, second: int, start: int) -> dict[str, Any]:
        reported = {**dict.fromkeys(STATES, 0), "wait_ns": 0, **self._states[cpu, second]}
        idle = 1000 - sum(reported[state] for state in STATES)
        return {"time": start, "cpu": cpu, "span_ms": 1000, **reported, "idle": idle}

    def _tell_stacks(self, writer: SegmentWriter) -> None:
        frames = {frame: zlib.crc32(frame.encode()) + 1 for stack in self._stacks for frame in stack}
        if not frames or "samples" in self._without:
            return
        parts = {frame: frame.rpartition(":") for frame in frames}
        writer.append(
            "frames",
            {
                "frame": list(frames.values()),
                "kind": ["user" if parts[frame][0] else "kernel" for frame in frames],
                "module": [parts[frame][0] for frame in frames],
                "name": [parts[frame][2] for frame in frames],
            },
        )
        writer.append(
            "stacks",
            {
                "stack": list(self._stacks.values()),
                "frames": [[frames[frame] for frame in stack] for stack in self._stacks],
            },
        )


def _timed(table: str, row: dict[str, Any]) -> dict[str, Any]:
    moment = MONO + round(row.pop("at") * NANOS)
    return {"time_ms": moment // MILLIS, **row} if table == "samples" else {"time": moment, **row}


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}
