"""Updates the metrics from the rows of every tick.

It runs in the recorder's thread: it reads no file except the link to a network driver, never blocks, and its state is
bounded.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from exhume.collect.sources.kmsg_signatures import STARVATION_KINDS
from exhume.collect.sources.netdev import NetdevSource
from exhume.diagnose.counting import LEAKED_AFTER_NS, NIC_EVENT, NIC_RESET, ContainerRestarts, is_nic_timeout
from exhume.diagnose.growth import RECORDING, THRESHOLDS, growth_between
from exhume.model.clock import NANOS, Tick
from exhume.model.facts import RecordingFacts
from exhume.model.tables import (
    DYING_CGROUPS,
    HOT_CORE,
    INCIDENT,
    RESTART,
    WAITING_KSOFTIRQD,
    Columns,
    Losses,
    is_held,
    longest_wait,
    loss_total,
)
from exhume.model.text import path_pattern
from exhume.present.metrics import families as f
from exhume.present.metrics.values import Ranking, Series, Snapshot, with_label
from exhume.present.metrics.workloads import Workloads
from exhume.procfs.host import Host, subdirectories

# Exposed states of a core: columns of the cpu table. Guest time is included in user.
STATES = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "idle")
_USER, _IOWAIT, _STEAL, _IDLE = (STATES.index(state) for state in ("user", "iowait", "steal", "idle"))
_BUSYNESS = itemgetter(1, 2)
_KERNEL = slice(STATES.index("system"), STATES.index("softirq") + 1)
PRESSURES = (("cpu", "some"), ("memory", "some"), ("memory", "full"), ("io", "some"), ("io", "full"))
TRIGGERS = (HOT_CORE, WAITING_KSOFTIRQD, DYING_CGROUPS, *sorted(STARVATION_KINDS))

# Counts of dying cgroups to forecast: where a cloud vendor advises to act, then two levels of growing harm.
FORECASTS = (THRESHOLDS.many, 10_000, 100_000)
_GROWTH_NS = 1800 * NANOS
_MOST_REMOVED = 8192
# Limits per tick, for mkdir and rmdir each, on the cgroup paths that are inspected and on their length: a process that
# creates thousands of cgroups with long names must not cost more of the tick.
_MOST_PATTERNS, _LONGEST_PATH, _LONGEST_NAME = 128, 256, 128

# The kernel's own count of transmit timeouts (source netdev). Log lines report the same timeouts, so the counter gets a
# reason label of its own.
COUNTED = "kernel-counter"
UNKNOWN = "unknown"
_REASON_NS = 60 * NANOS
_MOST_DEVICES = 8

UNIT, CONTAINER, PROGRAM = "unit", "container", "program"
_MOST_REASONS = 1024
_REVIEW_TICKS = 30


class MetricsObserver:
    """Counters and gauges of this run. `memory_hierarchy` returns the hierarchy id of the memory cgroups, as
    tracepoints report it, once it is known."""

    name = "metrics"

    def __init__(
        self,
        facts: RecordingFacts,
        memory_hierarchy: Callable[[], int | None] = lambda: 0,
        host: Host | None = None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._memory_hierarchy, self._host = memory_hierarchy, host or Host()
        self._monotonic_ns = monotonic_ns
        self._series = {family: Series(family) for family in f.FAMILIES}
        self._cgroups = Ranking(width=2, labels=1)
        self._restarts = Ranking(width=3, labels=3)
        self._workloads = Workloads()
        self._began: int | None = None
        self._last_tick = 0
        self._cores: dict[int, float] = {}
        self._busiest: deque[tuple[int, int, int, int, tuple[int, ...]]] = deque()
        self._queues: deque[tuple[int, float]] = deque()
        # The threads that waited for each core in the present tick, on average.
        self._queue_of_core: dict[int, float] = {}
        self._waits: deque[tuple[int, float]] = deque()
        self._dying: dict[str, deque[tuple[int, int]]] = {}
        # Removed cgroups that were not released yet, in order of removal: the time, and the path pattern.
        self._removed: dict[int, tuple[int, str]] = {}
        self._nic_reasons: dict[str, tuple[int, str]] = {}
        self._ended = ContainerRestarts()
        self._diagnosed: deque[str] = deque()
        self._start_values(facts)

    def observe(self, tick: Tick, rows: Mapping[str, Sequence[Columns]], losses: Sequence[Losses]) -> None:
        """Update the metrics with the rows of a tick."""
        if self._began is None:
            self._began = tick.start
        self._queue_of_core = {}
        takers: dict[str, Callable[[Tick, Columns], None]] = {
            "cpu": self._take_cpu,
            "threads": self._take_threads,
            "node": self._take_node,
            "cgroups": self._take_cgroups,
            "cgroup_events": self._take_cgroup_events,
            "events": self._take_events,
            "self": self._take_self,
        }
        for table, take in takers.items():
            for columns in rows.get(table, ()):
                take(tick, columns)
        self._workloads.take(rows)
        self._count_leaked(tick)
        while self._diagnosed:
            self._series[f.FINDINGS].add(1.0, self._diagnosed.popleft())
        for loss in losses:
            self._series[f.LOSSES].add(loss_total(loss.kind, loss.count), loss.source, loss.kind)
        self._series[f.TICKS].add(1.0)
        self._series[f.LAST_TICK].set(tick.wall / NANOS)
        if tick.index % _REVIEW_TICKS == _REVIEW_TICKS - 1:
            for ranking in (self._cgroups, self._restarts, self._workloads.ranking):
                ranking.review()
        self._last_tick = tick.end

    def count_finding(self, cause: str) -> None:
        """Count a diagnosed incident. May be called from another thread; it is counted with the next tick."""
        self._diagnosed.append(cause)

    def read(self) -> Snapshot:
        """The current families with their series. May be called from another thread."""
        ranked = {
            f.MADE: self._cgroups.read(0),
            f.LEAKED: self._cgroups.read(1),
            f.THROTTLED: self._workloads.ranking.read(0),
            f.SAMPLED: self._workloads.ranking.read(1),
            f.RECLAIM: self._workloads.ranking.read(2),
            f.RESTARTS: self._restarts.read(0),
            f.EXITS: with_label(self._restarts.read(1), "success") + with_label(self._restarts.read(2), "failure"),
        }
        if self._last_tick:
            age = max(0.0, (self._monotonic_ns() - self._last_tick) / NANOS)
            ranked[f.TICK_AGE] = [((), age)]
        return [(family, ranked.get(family) or self._series[family].read()) for family in f.FAMILIES]

    def _start_values(self, facts: RecordingFacts) -> None:
        """Initialise counters to 0, so that a rate includes their first increase."""
        series = self._series
        series[f.BUILD].set(1.0, facts.exhume_version)
        series[f.NODE].set(1.0, facts.node, facts.kernel, facts.arch)
        for source in facts.sources_missing:
            series[f.UNAVAILABLE].set(1.0, source.source)
        for trigger in TRIGGERS:
            series[f.INCIDENTS].add(0.0, trigger)
        for family in (f.OOM_KILLS, f.TICKS, f.WRITTEN, f.SAMPLES):
            series[family].add(0.0)
        devices = self._host.sys / "class/net"
        hardware = [name for name in subdirectories(devices) if (devices / name / "device").exists()]
        for device in hardware[:_MOST_DEVICES]:
            series[f.NIC_TIMEOUTS].add(0.0, device, self._driver(device), COUNTED)
            series[f.NIC_RESETS].add(0.0, device, self._driver(device), UNKNOWN)

    def _take_cpu(self, tick: Tick, cpu: Columns) -> None:
        # Plain lists are faster than arrays for so few numbers.
        cores = _listed(cpu["cpu"])
        columns = [_listed(cpu[state]) for state in STATES]
        columns[_USER] = [own + guest for own, guest in zip(columns[_USER], _listed(cpu["guest"]), strict=True)]
        for state, shares in zip(STATES, columns, strict=True):
            self._series[f.CPU].add(sum(shares) * tick.seconds / 1000, state)
        busiest: tuple[int, int, int, int, tuple[int, ...]] = (tick.end, -1, 0, 0, (0,) * len(STATES))
        for core, *states in zip(cores, *columns, strict=True):
            in_kernel = sum(states[_KERNEL])
            held = is_held(in_kernel, states[_STEAL])
            if held or core not in self._cores:
                self._cores[core] = self._cores.get(core, 0.0) + (tick.seconds if held else 0.0)
                self._series[f.STALL].set(self._cores[core], str(core))
            # Of equally busy cores, choose the one with more kernel time.
            busiest = max(busiest, (tick.end, 1000 - states[_IOWAIT] - states[_IDLE], in_kernel, core, tuple(states)))
        self._series[f.CORES].set(len(cores))
        _keep_window(self._busiest, busiest)
        _, _, _, number, of_states = max(self._busiest, key=_BUSYNESS)
        self._series[f.BUSIEST_CORE].set(number)
        for state, share in zip(STATES, of_states, strict=True):
            self._series[f.BUSIEST].set(share / 1000, state)
        if cpu.get("wait_ns") is not None:
            waits = {core: wait for core, wait in zip(cores, _listed(cpu["wait_ns"]), strict=True) if wait is not None}
            self._queue_of_core = {core: wait / max(tick.nanos, 1) for core, wait in waits.items()}
            self._series[f.RUN_QUEUE].add(sum(waits.values()) / NANOS)
            _keep_window(self._queues, (tick.end, max(self._queue_of_core.values(), default=0.0)))
            self._series[f.WORST_QUEUE].set(max(threads for _, threads in self._queues))

    def _take_threads(self, tick: Tick, threads: Columns) -> None:
        names = ("comm", "cpu", "run_ns", "wait_ns", "slices")
        rows = [
            row for comm, *row in zip(*(threads[name] for name in names), strict=True) if comm.startswith("ksoftirqd/")
        ]
        self._series[f.KSOFTIRQD].add(sum(waited for _, _, waited, _ in rows) / NANOS)
        waits = (
            longest_wait(waited, ran, slices, tick.nanos, self._queue_of_core.get(core))
            for core, ran, waited, slices in rows
        )
        _keep_window(self._waits, (tick.end, max(waits, default=0.0) / NANOS))
        self._series[f.KSOFTIRQD_LONGEST].set(max(wait for _, wait in self._waits))

    def _take_node(self, tick: Tick, node: Columns) -> None:
        for resource, kind in PRESSURES:
            if f"psi_{resource}_{kind}" in node:
                self._series[f.PRESSURE].add(_sum_of(node, f"psi_{resource}_{kind}") / 1e6, resource, kind)
        if "running" in node:
            self._series[f.RUNNABLE].add(_sum_of(node, "running") * tick.seconds)
        self._series[f.OOM_KILLS].add(_sum_of(node, "oom_kill"))

    def _take_cgroups(self, tick: Tick, cgroups: Columns) -> None:
        names = ("hierarchy", "parent", "kernel", "visible", "dying")
        for hierarchy, parent, kernel, visible, dying in zip(*(cgroups[name] for name in names), strict=True):
            if parent:
                continue
            for family, count in ((f.TRACKED, kernel), (f.VISIBLE, visible), (f.DYING, dying)):
                self._series[family].set(count, hierarchy)
            if dying is not None:
                self._forecast(hierarchy, tick.end, dying)

    def _forecast(self, hierarchy: str, moment: int, dying: int) -> None:
        points = self._dying.setdefault(hierarchy, deque())
        points.append((moment, dying))
        while points[0][0] < moment - _GROWTH_NS:
            points.popleft()
        growth = growth_between(list(points), RECORDING)
        per_second = growth.per_hour / 3600 if growth is not None else 0.0
        # Fewer new ones may be ordinary churn.
        steady = growth is not None and growth.last - growth.first >= THRESHOLDS.least_growth
        self._series[f.GROWTH].set(per_second, hierarchy)
        for threshold in FORECASTS:
            ahead = (threshold - dying) / per_second if steady and per_second > 0 else math.inf
            self._series[f.FORECAST].set(max(0.0, ahead) if dying < threshold else 0.0, hierarchy, str(threshold))

    def _take_cgroup_events(self, _: Tick, events: Columns) -> None:
        memory = self._memory_hierarchy()
        if "created" in events:
            # Without tracepoints there are only the counts.
            made = _sum_of(events, "created")
            if made:
                self._cgroups.add((made, 0), made, UNKNOWN)
        names = ("time", "hierarchy", "op", "id", "path")
        columns = (events.get(name, [None] * len(events["time"])) for name in names)
        named = {"mkdir": 0, "rmdir": 0, "release": 0}
        for moment, hierarchy, op, number, path in zip(*columns, strict=True):
            if hierarchy != memory or number is None or path is None or op not in named:
                continue
            named[op] += 1
            pattern = cgroup_pattern(path) if op != "release" and named[op] <= _MOST_PATTERNS else ""
            if op == "mkdir":
                self._count_cgroups((1, 0), 1, pattern)
            elif op == "rmdir":
                self._removed[number] = moment, pattern
                if len(self._removed) > _MOST_REMOVED:
                    del self._removed[next(iter(self._removed))]
            elif op == "release":
                self._removed.pop(number, None)

    def _count_cgroups(self, made_and_leaked: tuple[int, int], weight: float, pattern: str) -> None:
        if pattern:
            self._cgroups.add(made_and_leaked, weight, pattern)
        else:
            self._cgroups.add_unnamed(made_and_leaked)

    def _count_leaked(self, tick: Tick) -> None:
        while self._removed:
            number, (moment, pattern) = next(iter(self._removed.items()))
            if moment > tick.end - LEAKED_AFTER_NS:
                break
            del self._removed[number]
            # Leaked cgroups weigh more than cgroups that are merely created and removed.
            self._count_cgroups((0, 1), 10, pattern)

    def _take_events(self, _: Tick, events: Columns) -> None:
        for row in _event_rows(events):
            if row["kind"] == INCIDENT:
                self._series[f.INCIDENTS].add(1.0, row["trigger"] or UNKNOWN)
            elif row["kind"].startswith(NIC_EVENT):
                self._take_nic(row)
            else:
                self._take_restart(row)

    def _take_nic(self, row: Mapping[str, Any]) -> None:
        kind, device, moment = row["kind"], row["device"] or UNKNOWN, row["time"]
        # Events logged before the recording began are not part of this run.
        if moment < (self._began or 0):
            return
        if kind == NIC_RESET:
            since, reason = self._nic_reasons.get(device, (-_REASON_NS, UNKNOWN))
            known = moment - since < _REASON_NS
            self._series[f.NIC_RESETS].add(1.0, device, self._driver(device), reason if known else UNKNOWN)
        if not is_nic_timeout(kind):
            return
        counted = row["source"] == NetdevSource.name
        reason = COUNTED if counted else kind.removeprefix(NIC_EVENT)
        if not counted or device not in self._nic_reasons:
            self._nic_reasons[device] = moment, reason
            if len(self._nic_reasons) > _MOST_REASONS:
                del self._nic_reasons[next(iter(self._nic_reasons))]
        self._series[f.NIC_TIMEOUTS].add(row["value"] if counted else 1.0, device, self._driver(device), reason)

    def _driver(self, device: str) -> str:
        """The driver of a network device; empty if it has none. The device name comes from the kernel log."""
        if "/" in device or device in (".", ".."):
            return ""
        try:
            return (self._host.sys / "class/net" / device / "device/driver").readlink().name
        except (OSError, ValueError):
            return ""

    def _take_restart(self, row: Mapping[str, Any]) -> None:
        kind, value = row["kind"], row["value"]
        if kind == RESTART:
            failed = row["exit_code"] not in (None, 0)
            lives = value or 0.0
            self._restarts.add((lives, 0, lives if failed else 0), lives, PROGRAM, "", _name_pattern(row["comm"]))
        elif kind in ("unit-restarted", "unit-ended"):
            name = _name_pattern(row["comm"])
            self._count_end(UNIT, "", name, is_end=kind == "unit-ended", code=value)
        elif kind in ("container-start", "container-die"):
            full = row["container_name"] or _name_pattern((row["image"] or "").partition("@")[0])
            namespace, _, name = full.partition("/") if "/" in full and row["pod"] else ("", "", full)
            if kind == "container-die":
                self._ended.end((namespace, name))
                self._count_end(CONTAINER, namespace, name, is_end=True, code=value)
            elif self._ended.start((namespace, name)):
                self._count_end(CONTAINER, namespace, name, is_end=False)

    def _count_end(self, kind: str, namespace: str, name: str, *, is_end: bool, code: float | None = None) -> None:
        """Count a process exit by its code (an unknown code counts as neither success nor failure), or a restart."""
        failed, succeeded = is_end and bool(code), is_end and code == 0
        self._restarts.add((not is_end, succeeded, failed), int(not is_end) + failed, kind, namespace, name)

    def _take_self(self, _: Tick, own: Columns) -> None:
        series = self._series
        for mode in ("user", "system"):
            series[f.OWN_CPU].add(_sum_of(own, f"{mode}_us") / 1e6, mode)
        series[f.WRITTEN].add(_sum_of(own, "written_bytes"))
        series[f.SAMPLES].add(_sum_of(own, "samples"))
        series[f.OWN_MEMORY].set(own["rss_kb"][-1] * 1024)
        series[f.OWN_TICK].set(own["tick_us"][-1] / 1e6)
        series[f.RATE].set(own["rate_hz"][-1])
        series[f.RING_FILL].set(own["ring_fill"][-1] / 1000)


def _name_pattern(name: str | None) -> str:
    return path_pattern((name or UNKNOWN)[:_LONGEST_NAME])


@lru_cache(maxsize=512)
def _pattern_of_parent(path: str) -> str:
    return path_pattern(path)


def cgroup_pattern(path: str) -> str:
    """A cgroup's path with `*` in place of ids and numbers. Names of leaf cgroups are unique; those of their parents
    repeat."""
    parent, _, name = path.rpartition("/")
    return f"{_pattern_of_parent(parent[:_LONGEST_PATH])}/{path_pattern(name[:_LONGEST_NAME])}"


_EVENT_COLUMNS = (
    *("time", "source", "kind", "comm", "device", "value", "container_name", "image", "pod", "trigger", "exit_code"),
)
_COUNTED_KINDS = frozenset((INCIDENT, RESTART, "unit-restarted", "unit-ended", "container-start", "container-die"))


def _event_rows(events: Columns) -> Iterable[Mapping[str, Any]]:
    """The events to count; a column that a source omitted is None."""
    for place, kind in enumerate(events["kind"]):
        if kind in _COUNTED_KINDS or kind.startswith(NIC_EVENT):
            yield {name: events[name][place] if name in events else None for name in _EVENT_COLUMNS}


def _keep_window(window: deque[Any], entry: tuple[Any, ...]) -> None:
    """Append a tick's data (preceded by its end time), and drop what is older than the window."""
    window.append(entry)
    while window[0][0] <= entry[0] - f.WINDOW_S * NANOS:
        window.popleft()


def _listed(column: Any) -> list[Any]:
    """A column, list or array, as a list."""
    return column if isinstance(column, list) else column.tolist()


def _sum_of(columns: Columns, name: str) -> float:
    """The sum of a column, ignoring unknown values."""
    return float(sum(value for value in columns.get(name, ()) if value is not None))
