"""Observations of the measures: from a recording for past time, or live, with one tick per second of the recorder's own
sources. Both have the same tables, so each measure has a single reader."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exhume.collect.cgroup.census import ZombieCounter
from exhume.collect.source import Source, StatFile, TickRows
from exhume.collect.sources.cpu import CpuSource
from exhume.collect.sources.netdev import NetdevSource
from exhume.collect.sources.node import NodeSource
from exhume.collect.sources.throttling import ThrottlingSource
from exhume.model.clock import NANOS, Clock, SystemClock, Tick, Window
from exhume.model.errors import SourceUnavailable
from exhume.model.remedy import Effect, Measure
from exhume.model.stop import Stop
from exhume.model.tables import NIC_TX_TIMEOUT
from exhume.procfs.host import Host
from exhume.remedy.verify.measures import LIVE, RECORDING, Series
from exhume.remedy.verify.restarts import NodeRestarts
from exhume.store.read.recording import Recording

_KERNEL = ("system", "irq", "softirq")
# Events that report the start of a unit or of a container.
_STARTS = ("unit-restarted", "container-start")
# A late tick of the recorder is still one observation; anything further apart is a gap.
_LONGEST_S = 60.0
# Counting zombies walks the cgroups of v1: if that takes long, it is done less often (after a rest of this many times
# the cost), but often enough that a watch has enough counts to compare (three, in judge.py).
_REST_PER_COST = 200
_COUNTS_PER_WATCH = 5
_FOREVER_NS = 1 << 62
_ZOMBIES = (Measure.ZOMBIES, Measure.ZOMBIE_GROWTH)

Array = npt.NDArray[Any]
Progress = Callable[[float], None]


class Recorded:
    """The rows of a window of a recording. Each table is read once, however many measures use it."""

    def __init__(self, recording: Recording, window: Window) -> None:
        self._recording = recording
        self.window = window.clamp(recording.span() or Window(0, 0))
        self._tables: dict[tuple[str, ...], dict[str, Array]] = {}

    def observe(self, effect: Effect) -> Series:
        """The observations of a measure; if there are none, with the reason."""
        since, until = self.window.since, self.window.until
        if self.window.empty:
            return Series(effect, RECORDING, since, until, missing="nothing was recorded in this time")
        values, spans, missing = _READERS[effect.measure][1](self, effect)
        return Series(effect, RECORDING, since, until, tuple(values.tolist()), tuple(spans.tolist()), missing)

    def table(self, name: str, *columns: str) -> dict[str, Array]:
        """Columns of a table, numbers as floats with NaN for unknown values, and the wall time of each row (`wall`)."""
        key = (name, *columns)
        if key not in self._tables:
            rows = self._recording.read(name, self.window, [*columns, "wall"]).sort_by("wall")
            found = {column: _array(rows.column(column)) for column in columns}
            self._tables[key] = found | {"wall": rows.column("wall").to_numpy().astype(np.int64)}
        return self._tables[key]

    def ticks(self) -> tuple[Array, Array]:
        """When each recorded second began (wall nanoseconds), and its length in seconds."""
        rows = self.table("node", "span_ms")
        return rows["wall"], rows["span_ms"] / 1000

    def lacks(self, source: str) -> bool:
        """Whether a source was unavailable to the recorder."""
        return bool(self._recording.facts.missing(source))


class _LiveTick:
    """The rows of one tick."""

    def __init__(self, rows: TickRows, tick: Tick) -> None:
        self._rows = rows
        self._tick = tick

    def table(self, name: str, *columns: str) -> dict[str, Array]:
        rows = self._rows.get(name, {})
        count = len(next(iter(rows.values()), ()))
        found = {column: _array(pa.array(rows.get(column, [None] * count))) for column in columns}
        return found | {"wall": np.full(count, self._tick.start)}

    def ticks(self) -> tuple[Array, Array]:
        return np.array([self._tick.start]), np.array([self._tick.seconds])

    def lacks(self, source: str) -> bool:
        return False


def _array(column: pa.Array | pa.ChunkedArray) -> Array:
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_null(column.type):
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    return np.array(column.to_pylist(), object)


Rows = Recorded | _LiveTick
# Values, the span of each in seconds, and why there are none.
Read = tuple[Array, Array, str]
Reader = Callable[[Rows, Effect], Read]


def _known(values: Array, spans: Array, otherwise: str) -> Read:
    known = np.isfinite(values) & (spans > 0)
    return values[known], spans[known], "" if known.any() else otherwise


def _nothing(why: str) -> Read:
    return np.empty(0), np.empty(0), why


def _worst_core(columns: Sequence[str], value: Callable[[Array, Array], Array]) -> Reader:
    def read(rows: Rows, effect: Effect) -> Read:
        """The worst core of each second, by the sum of the columns."""
        cores = rows.table("cpu", "span_ms", *columns)
        if not len(cores["wall"]):
            return _nothing("no cores were seen")
        spans = cores["span_ms"] / 1000
        values = value(np.sum([cores[name] for name in columns], axis=0), spans)
        moments, which = np.unique(cores["wall"], return_inverse=True)
        worst, length = np.full(len(moments), -np.inf), np.zeros(len(moments))
        np.maximum.at(worst, which, np.where(np.isnan(values), -np.inf, values))
        np.maximum.at(length, which, spans)
        return _known(worst, length, "the kernel has no count of it (there is no /proc/schedstat)")

    return read


def _counters(*columns: str) -> Reader:
    def read(rows: Rows, effect: Effect) -> Read:
        """An amount per second: the sum of node-wide counters."""
        node = rows.table("node", "span_ms", *columns)
        if not len(node["wall"]):
            return _nothing("the node's counters were not seen")
        values: Array = np.sum([node[name] for name in columns], axis=0)
        return _known(values, node["span_ms"] / 1000, "the kernel has no such counter")

    return read


def _zombies(rows: Rows, effect: Effect) -> Read:
    """Zombies of the whole node: on v1 from the memory hierarchy, if there is one."""
    found = rows.table("cgroups", "hierarchy", "parent", "dying")
    hierarchy = "memory" if "memory" in found["hierarchy"] else "unified"
    kept = (found["hierarchy"] == hierarchy) & ~found["parent"].astype(bool) & ~np.isnan(found["dying"])
    moments, counts = found["wall"][kept], found["dying"][kept]
    if len(counts) < 2:
        return _nothing("zombies were counted less than twice in this time")
    spans = np.diff(moments) / NANOS
    values = counts[1:] if effect.measure is Measure.ZOMBIES else np.diff(counts)
    return _known(np.where(spans <= _LONGEST_S, values, np.nan), spans, "")


def _throttling(rows: Rows, effect: Effect) -> Read:
    found = rows.table("throttling", "cgroup", "throttled_ns")
    held = [belongs(path, effect.subject) for path in found["cgroup"]]
    return _per_tick(rows, found["wall"], found["throttled_ns"] / NANOS * np.array(held, bool))


def _timeouts(rows: Rows, effect: Effect) -> Read:
    events = rows.table("events", "kind", "value")
    counts = np.where(np.nan_to_num(events["value"]) == 0, 1.0, events["value"])
    return _per_tick(rows, events["wall"], counts * (events["kind"] == NIC_TX_TIMEOUT).astype(bool))


def _restarts(rows: Rows, effect: Effect) -> Read:
    """Starts after the first one: of units by name, of containers with their manager as prefix."""
    manager, colon, container = effect.subject.partition(":")
    # Without the source, the absence of starts means nothing. Podman's socket is not held open, since that would keep
    # its service running.
    if colon and manager not in ("docker", "cri"):
        return _nothing(f"the recorder has no events of {manager}")
    if rows.lacks(manager if colon else "systemd"):
        return _nothing(f"the recorder had no starts from {manager if colon else 'systemd'}")
    events = rows.table("events", "kind", "comm", "container_name")
    if not len(events["wall"]):
        # No events at all: the recorder may have lacked a source for them.
        return _nothing("the recording has no starts of units or containers")
    named = events["container_name"] == container if colon else events["comm"] == effect.subject
    return _per_tick(rows, events["wall"], np.isin(events["kind"], _STARTS) & (named | (not effect.subject)))


def _per_tick(rows: Rows, at: Array, amounts: Array) -> Read:
    """Sum amounts by the second in which they occurred; seconds without any count as zero."""
    moments, spans = rows.ticks()
    if not len(moments):
        return _nothing("nothing was recorded in this time")
    found = np.zeros(len(moments))
    # Amounts from before the first second are added to it.
    np.add.at(found, np.clip(np.searchsorted(moments, at, side="right") - 1, 0, None), amounts.astype(np.float64))
    return found, spans, ""


def belongs(cgroup: str, subject: str) -> bool:
    """Whether a cgroup is the subject's (a unit by name, a container by its id or name), or below it."""
    name = subject.rpartition(":")[2]
    return not name or any(name == part or (len(name) >= 12 and name in part) for part in cgroup.split("/"))


# The live source of each measure (empty: it is counted), and its reader.
_READERS: dict[Measure, tuple[str, Reader]] = {
    Measure.ZOMBIES: ("", _zombies),
    Measure.ZOMBIE_GROWTH: ("", _zombies),
    Measure.RESTARTS: ("", _restarts),
    Measure.BUSIEST_CORE: ("cpu", _worst_core(("idle", "iowait"), lambda idle, _: 1 - np.minimum(1000, idle) / 1000)),
    Measure.KERNEL_CORE: ("cpu", _worst_core(_KERNEL, lambda busy, _: np.minimum(1000, busy) / 1000)),
    Measure.RUN_QUEUE_WAIT: ("cpu", _worst_core(("wait_ns",), lambda wait, s: wait / NANOS / np.maximum(s, 1e-3))),
    Measure.THROTTLING: ("throttling", _throttling),
    Measure.RECLAIM: ("node", _counters("pgscan_kswapd", "pgscan_direct")),
    Measure.FORKS: ("node", _counters("forks")),
    Measure.NIC_TIMEOUTS: ("netdev", _timeouts),
}


class LiveSampler:
    """Takes the measures of some effects, tick by tick, from as few sources as possible. Close it when done."""

    def __init__(
        self, host: Host, effects: Sequence[Effect], restarts: NodeRestarts | None = None, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._restarts = restarts
        self._values: dict[Effect, list[tuple[float, float]]] = {effect: [] for effect in effects}
        self._missing: dict[Effect, str] = {}
        self._sources: dict[str, Source] = {}
        self._next_count, self._longest_rest = 0, _FOREVER_NS
        # When restarts and zombies were last counted, and how many there were.
        self._counted: dict[Effect, tuple[int, int]] = {}
        self._zombies = ZombieCounter(host) if any(effect.measure in _ZOMBIES for effect in effects) else None
        self._open(host)
        self._began = self._clock.wall_ns()
        self._first = self._last = self._clock.monotonic_ns()
        # An initial reading, as the base for later readings of counters.
        self._read(Tick(-1, self._last, self._last, self._began))
        self._count(self._last)

    def _open(self, host: Host) -> None:
        stat = StatFile(host)
        makers: dict[str, Callable[[], Source]] = {
            "cpu": lambda: CpuSource(host, stat),
            "node": lambda: NodeSource(host, stat),
            "throttling": lambda: ThrottlingSource(host),
            "netdev": lambda: NetdevSource(host),
        }
        for effect in self._values:
            name, _ = _READERS[effect.measure]
            if name and name not in self._sources:
                try:
                    self._sources[name] = makers[name]()
                except SourceUnavailable as unavailable:
                    self._missing[effect] = str(unavailable)

    def tick(self) -> None:
        """Observe the time since the last tick."""
        now = self._clock.monotonic_ns()
        tick = Tick(0, self._last, now, self._clock.wall_ns())
        self._last = now
        rows = _LiveTick(self._read(tick), tick)
        for effect, values in self._values.items():
            source, read = _READERS[effect.measure]
            if source in self._sources:
                found, spans, why = read(rows, effect)
                values.extend(zip(found.tolist(), spans.tolist(), strict=True))
                self._missing |= {effect: why} if why else {}
        self._count(now)

    def _read(self, tick: Tick) -> TickRows:
        found: dict[str, Any] = {}
        for source in self._sources.values():
            # A file was removed: this tick lacks its rows.
            with suppress(OSError):
                found |= source.read(tick)
        return found

    def _count(self, now: int) -> None:
        """Count what is not read from rows: restarts each time, zombies as often as the cost allows."""
        zombies, at = None, now
        if self._zombies is not None and now >= self._next_count:
            began = time.thread_time_ns()
            zombies, at = self._zombies.count(), self._clock.monotonic_ns()
            rest = (time.thread_time_ns() - began) * _REST_PER_COST
            self._next_count = now + min(rest, self._longest_rest)
        for effect, values in self._values.items():
            restarts = effect.measure is Measure.RESTARTS
            count = self._restarts.count(effect.subject) if restarts and self._restarts is not None else None
            moment = now if restarts else at
            if effect.measure in _ZOMBIES:
                count = zombies
            if count is None:
                continue
            then, before = self._counted.get(effect, (moment, 0))
            self._counted[effect] = (moment, count)
            if moment > then:
                # Managers restart their count at 0 after a stop: all of it happened since.
                whole = effect.measure is Measure.ZOMBIES or (restarts and count < before)
                values.append((float(count if whole else count - before), (moment - then) / NANOS))

    def watch(self, seconds: float, stop: Stop | None = None, progress: Progress | None = None) -> bool:
        """Tick every second for the given time; False if a stop was requested before its end."""
        self._longest_rest = int(seconds * NANOS / _COUNTS_PER_WATCH)
        self._next_count = min(self._next_count, self._last + self._longest_rest)
        began = time.monotonic()
        ticks = max(1, math.ceil(seconds))
        for number in range(1, ticks + 1):
            rest = max(0.0, began + min(number, seconds) - time.monotonic())
            if stop is None:
                time.sleep(rest)
            elif stop.wait(rest):
                return False
            self.tick()
            if progress is not None:
                progress(number / ticks)
            if time.monotonic() - began >= seconds:
                # On a node that delays ticks there are fewer of them, rather than a longer wait.
                break
        return True

    def observed(self) -> list[Series]:
        """The observations so far, effect by effect."""
        # Don't read the wall clock again: it may have been set meanwhile.
        until = self._began + self._last - self._first
        return [
            Series(
                effect,
                LIVE,
                self._began,
                until,
                tuple(value for value, _ in values),
                tuple(span for _, span in values),
                "" if values else self._why(effect),
            )
            for effect, values in self._values.items()
        ]

    def _why(self, effect: Effect) -> str:
        why = self._missing.get(effect, "")
        if effect.measure is Measure.RESTARTS:
            why = "restarts are not counted here" if self._restarts is None else self._restarts.why_not(effect.subject)
        elif effect.measure in _ZOMBIES and self._zombies is not None:
            why = self._zombies.note
        return why or "the sample was too short"

    def close(self) -> None:
        for source in self._sources.values():
            source.close()
