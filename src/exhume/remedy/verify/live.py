"""A light sampler of the measures, for a node without a recording: a tick each second over the recorder's own sources,
and only those that are needed."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from exhume.collect.cgroup.census import ZombieCounter
from exhume.collect.source import NOTHING, Source, StatFile, TickRows
from exhume.collect.sources.cpu import CpuSource
from exhume.collect.sources.netdev import NetdevSource
from exhume.collect.sources.node import NodeSource
from exhume.collect.sources.throttling import ThrottlingSource
from exhume.model.clock import NANOS, Clock, SystemClock, Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.remedy import Effect, Measure
from exhume.model.stop import Stop
from exhume.model.tables import Columns
from exhume.procfs.host import Host
from exhume.remedy.verify.measures import LIVE, Series
from exhume.remedy.verify.recorded import belongs

# Counting zombies walks the cgroups of v1: where that takes long, it is done more rarely (a part in so many).
_REST_PER_COST = 200
_CPU = (Measure.BUSIEST_CORE, Measure.KERNEL_CORE, Measure.RUN_QUEUE_WAIT)
_NODE = (Measure.RECLAIM, Measure.FORKS)
_ZOMBIES = (Measure.ZOMBIES, Measure.ZOMBIE_GROWTH)

Progress = Callable[[float], None]


class RestartCounts(Protocol):
    """Counts how often a unit or container has been started again so far."""

    def count(self, subject: str) -> int | None:
        """None where that is not known now."""
        ...

    def why_not(self, subject: str) -> str: ...

    def settled(self, subject: str) -> str:
        """Its state, where its manager does not start it again in that state; else empty."""
        ...


class LiveSampler:
    """Takes the measures of some effects, tick by tick. Close it when done."""

    def __init__(
        self,
        host: Host,
        effects: Sequence[Effect],
        restarts: RestartCounts | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._effects = tuple(effects)
        self._restarts = restarts
        self._values: dict[Effect, list[tuple[float, float]]] = {effect: [] for effect in self._effects}
        self._missing: dict[Effect, str] = {}
        self._sources: dict[str, Source] = {}
        self._zombies: ZombieCounter | None = None
        self._next_count = 0
        self._counted: tuple[int, int] | None = None
        self._seen_restarts: dict[str, tuple[int, int]] = {}
        self._open(host)
        self._began = self._clock.wall_ns()
        self._first = self._last = self._clock.monotonic_ns()
        self._prime()

    def _open(self, host: Host) -> None:
        stat = StatFile(host)
        makers: tuple[tuple[str, tuple[Measure, ...], Callable[[], Source]], ...] = (
            ("cpu", _CPU, lambda: CpuSource(host, stat)),
            ("node", _NODE, lambda: NodeSource(host, stat)),
            ("throttling", (Measure.THROTTLING,), lambda: ThrottlingSource(host)),
            ("netdev", (Measure.NIC_TIMEOUTS,), lambda: NetdevSource(host)),
        )
        for name, measures, make in makers:
            wanted = [effect for effect in self._effects if effect.measure in measures]
            if not wanted:
                continue
            try:
                self._sources[name] = make()
            except SourceUnavailable as unavailable:
                self._missing |= dict.fromkeys(wanted, str(unavailable))
        if any(effect.measure in _ZOMBIES for effect in self._effects):
            self._zombies = ZombieCounter(host)

    def _prime(self) -> None:
        """A first look at everything, for the counters that later ones are measured against."""
        tick = Tick(-1, self._last, self._last, self._began)
        for source in self._sources.values():
            _read(source, tick)
        self._count_zombies(self._last)
        self._count_restarts(self._last)

    def tick(self) -> None:
        """Observe the time since the last tick."""
        now = self._clock.monotonic_ns()
        tick = Tick(0, self._last, now, self._clock.wall_ns())
        self._last = now
        rows = {name: _read(source, tick) for name, source in self._sources.items()}
        for effect in self._effects:
            value = _value(effect, rows, tick)
            if value is not None:
                self._values[effect].append((value, tick.seconds))
        self._count_zombies(now)
        self._count_restarts(now)

    def observed(self) -> list[Series]:
        """What was seen so far, effect by effect."""
        # Not the wall clock again: it may have been set meanwhile.
        until = self._began + self._last - self._first
        return [
            Series(
                effect,
                LIVE,
                self._began,
                until,
                tuple(value for value, _ in self._values[effect]),
                tuple(span for _, span in self._values[effect]),
                "" if self._values[effect] else self._why(effect),
            )
            for effect in self._effects
        ]

    def close(self) -> None:
        for source in self._sources.values():
            source.close()

    def _count_zombies(self, now: int) -> None:
        if self._zombies is None or now < self._next_count:
            return
        began = time.thread_time_ns()
        count, at = self._zombies.count(), self._clock.monotonic_ns()
        self._next_count = now + (time.thread_time_ns() - began) * _REST_PER_COST
        before = self._counted
        if count is None:
            return
        self._counted = (at, count)
        if before is None or at <= before[0]:
            return
        span = (at - before[0]) / NANOS
        for effect in self._effects:
            if effect.measure in _ZOMBIES:
                value = count if effect.measure is Measure.ZOMBIES else count - before[1]
                self._values[effect].append((float(value), span))

    def _count_restarts(self, now: int) -> None:
        for effect in self._effects:
            if effect.measure is not Measure.RESTARTS or self._restarts is None:
                continue
            count = self._restarts.count(effect.subject)
            if count is None:
                continue
            before = self._seen_restarts.get(effect.subject)
            self._seen_restarts[effect.subject] = (now, count)
            if before is not None and now > before[0]:
                # The managers count from 0 again after a stop: what is there then came since.
                more = count - before[1] if count >= before[1] else count
                self._values[effect].append((float(more), (now - before[0]) / NANOS))

    def _why(self, effect: Effect) -> str:
        if effect in self._missing:
            return self._missing[effect]
        if effect.measure in _ZOMBIES and self._zombies is not None and self._zombies.note:
            return self._zombies.note
        if effect.measure is Measure.RESTARTS:
            return "restarts are not counted here" if self._restarts is None else self._restarts.why_not(effect.subject)
        if effect.measure is Measure.RUN_QUEUE_WAIT:
            return "there is no /proc/schedstat, or the sample was too short"
        return "the sample was too short"


def sample(sampler: LiveSampler, seconds: float, stop: Stop | None = None, progress: Progress | None = None) -> bool:
    """Tick each second for so long; False when a stop was requested before that."""
    began = time.monotonic()
    ticks = max(1, math.ceil(seconds))
    for number in range(1, ticks + 1):
        rest = max(0.0, began + min(number, seconds) - time.monotonic())
        if stop is None:
            time.sleep(rest)
        elif stop.wait(rest):
            return False
        sampler.tick()
        if progress is not None:
            progress(number / ticks)
        if time.monotonic() - began >= seconds:
            # A node that holds up the ticks gets fewer of them, not a longer wait.
            break
    return True


def _read(source: Source, tick: Tick) -> TickRows:
    try:
        return source.read(tick)
    except OSError:
        # A file that went away: this tick has none of it.
        return NOTHING


def _value(effect: Effect, rows: dict[str, TickRows], tick: Tick) -> float | None:
    """The observation of a tick; None where there is none."""
    measure = effect.measure
    if measure in _CPU:
        return _of_cores(measure, rows.get("cpu", NOTHING).get("cpu"), tick)
    if measure in _NODE:
        columns = ("forks",) if measure is Measure.FORKS else ("pgscan_kswapd", "pgscan_direct")
        return _of_node(rows.get("node", NOTHING).get("node"), columns)
    if measure is Measure.THROTTLING and "throttling" in rows:
        held = rows["throttling"].get("throttling", {"cgroup": [], "throttled_ns": []})
        pairs = zip(held["cgroup"], held["throttled_ns"], strict=True)
        return float(sum(nanos for cgroup, nanos in pairs if belongs(cgroup, effect.subject))) / NANOS
    if measure is Measure.NIC_TIMEOUTS and "netdev" in rows:
        return float(sum(rows["netdev"].get("events", {"value": []})["value"]))
    return None


def _of_cores(measure: Measure, cpu: Columns | None, tick: Tick) -> float | None:
    """The worst core."""
    if cpu is None:
        return None
    if measure is Measure.RUN_QUEUE_WAIT:
        waits = [float(wait) for wait in cpu.get("wait_ns", ()) if wait is not None]
        return max(waits) / NANOS / max(tick.seconds, 1e-3) if waits else None
    if measure is Measure.KERNEL_CORE:
        return min(1000, max(_sums(cpu, ("system", "irq", "softirq")))) / 1000
    return 1 - min(1000, *_sums(cpu, ("idle", "iowait"))) / 1000


def _sums(cpu: Columns, states: Sequence[str]) -> Iterable[int]:
    return [sum(map(int, core)) for core in zip(*(cpu[state] for state in states), strict=True)]


def _of_node(node: Columns | None, columns: Sequence[str]) -> float | None:
    known = [] if node is None else [node[name][0] for name in columns if name in node]
    return float(sum(known)) if known and len(known) == len(columns) else None
