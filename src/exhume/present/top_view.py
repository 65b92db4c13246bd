"""The view model of `exhume top`: the newest rows of a live recording, summed over the last seconds.

It is computed once a second on the node that it watches, so rows are summed as arrays, and only what is shown becomes
Python objects.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from enum import StrEnum
from heapq import nlargest
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.collect.cgroup.dying import MEMORY, UNIFIED
from exhume.collect.containers.identity import ContainerIdentity, identify
from exhume.diagnose.growth import RECORDING, growth_between
from exhume.model.clock import MILLIS, NANOS, Wall, Window
from exhume.model.tables import INCIDENT, is_held, loss_total
from exhume.present.events_view import EVENT_SHAPE
from exhume.present.palette import state_rank
from exhume.present.serializer import Shape, Shapes, to_json
from exhume.store.format.names import SegmentName
from exhume.store.format.schema import time_column
from exhume.store.read.events import EventView, LossView, views
from exhume.store.read.health import HARMLESS_LOSSES, LOSSES_NS
from exhume.store.read.reader import Request
from exhume.store.read.recording import Recording
from exhume.store.read.stacks import unique_inverse
from exhume.store.read.tail import NewRows

JSON_VERSION = 1
TABLES = (
    *("cpu", "samples", "run_delays", "threads", "throttling", "node", "cgroups", "events", "losses", "self"),
    *("processes", "stacks", "frames"),
)
# Tables that are summed over the window.
_SPENT = ("samples", "run_delays", "threads", "throttling")
# The window by which processes are ranked, the history shown for cores, and how far back everything else is read.
WINDOW_NS = 5 * NANOS
HISTORY_NS = 60 * NANOS
PAST_NS = 3600 * NANOS
# A tick that begins later than this after the previous one does not continue its stalls.
_PAUSE_NS = 2 * NANOS
STATES = ("system", "softirq", "user", "steal")
_SYSTEM, _SOFTIRQ = 0, 1
# Hard and soft interrupts share a colour; see the palette.
_PARTS = (("system",), ("irq", "softirq"), ("user", "nice"), ("steal",))
GAP = -1
_RANKS = np.array([state_rank(state, 1) for state in STATES])
# Limits on cached processes, on stacks and frames, and on names; the oldest entries are evicted first.
_MOST_PROCESSES, _MOST_STACKS, _MOST_NAMES = 32_768, 200_000, 8192
# For at most this many cores, the current process and function are looked up.
_NAMED_CORES = 16
LISTED = 100
_KEPT_INCIDENTS = 50
_PRESSURES = ("cpu", "memory", "io")
_NODE = ["span_ms", *(f"psi_{name}_some" for name in _PRESSURES), "running", "blocked", "mem_total", "mem_available"]

Ints = npt.NDArray[np.int64]
NOWHERE = ContainerIdentity(None, None, None)


class Order(StrEnum):
    """The key by which processes, containers and pods are ranked."""

    CPU = "cpu"
    WAIT = "wait"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class CoreUsage:
    """A core in the last tick, in permille: the dominant state and its own share. `waiting` is the mean number of
    threads waiting for the core. `stall_s` is how long it has been at 95% or more in the kernel and interrupts without
    a pause, and `longest_stall_s` the longest such time of the last minute."""

    cpu: int
    state: str
    permille: int
    busy_permille: int
    kernel_permille: int
    waiting: float | None
    stall_s: float
    longest_stall_s: float
    pid: int | None = None
    comm: str | None = None
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """A process, container or pod: the cores it used, the part of that in the kernel, and the mean number of its
    threads that waited to run or were throttled by a quota. None where the recorder has no data."""

    name: str
    cpu: float
    kernel: float
    waiting: float | None = None
    throttled: float | None = None
    pid: int | None = None
    container: str | None = None
    pod: str | None = None


@dataclass(frozen=True, slots=True)
class Pressure:
    """The share of time in which some tasks stalled for a resource; None if the kernel does not report it."""

    cpu: float | None = None
    memory: float | None = None
    io: float | None = None


@dataclass(frozen=True, slots=True)
class Zombies:
    """Memory cgroups that were removed but still exist, out of all that the kernel tracks."""

    count: int
    tracked: int | None
    per_hour: float | None


@dataclass(frozen=True, slots=True)
class RecorderUsage:
    """The recorder in the last tick. `losses` are counts by kind over the last five minutes."""

    rate_hz: int = 0
    samples: int = 0
    cpu: float = 0.0
    rss_bytes: int = 0
    losses: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopFrame:
    """A node at one moment. Processes, containers and pods cover the last `window_s` seconds, the top ones in the
    requested order; `incidents` are those of the last hour, newest first. `strip` shows the last minute of the cores.
    """

    node: str
    time: Wall
    window_s: float
    pressure: Pressure
    running: int | None
    blocked: int | None
    memory_available: float | None
    zombies: Zombies | None
    cores: list[CoreUsage]
    processes: list[Usage]
    containers: list[Usage]
    pods: list[Usage]
    incidents: list[EventView]
    recorder: RecorderUsage
    strip: "Strip"

    @property
    def worst_cores(self) -> list[CoreUsage]:
        """Stalled cores first, then the others by kernel time."""
        return sorted(self.cores, key=_badness, reverse=True)


def _badness(core: CoreUsage) -> tuple[float, ...]:
    return (core.stall_s, core.longest_stall_s, core.kernel_permille, core.busy_permille, core.waiting or 0.0)


class StripRow(NamedTuple):
    """A line of the strip: one core, or neighbouring cores of which each tick shows the worst."""

    cpus: list[int]
    states: list[int]
    permille: list[int]


@dataclass(frozen=True, slots=True)
class Strip:
    """Cores x ticks, newest last: the dominant state (an index into STATES), and its own share in permille; GAP where
    nothing was recorded."""

    cpus: list[int]
    states: npt.NDArray[np.int8]
    permille: npt.NDArray[np.int16]

    def rows(self, most: int) -> list[StripRow]:
        """At most `most` lines; when cores are pooled, a share of kernel, interrupt or steal time is worse than the
        same share of user time."""
        size = max(1, -(-len(self.cpus) // max(1, most)))
        ranks = self.permille * _RANKS[self.states]
        found = []
        for start in range(0, len(self.cpus), size):
            part = slice(start, start + size)
            leader = np.argmax(ranks[part], axis=0)[np.newaxis]
            states, permille = (np.take_along_axis(of[part], leader, axis=0)[0] for of in (self.states, self.permille))
            found.append(StripRow(self.cpus[part], states.tolist(), permille.tolist()))
        return found


class _CoreTick(NamedTuple):
    """All cores in one tick, indexed by core number; GAP where a core has no row. `run` is how long each has been
    stalled."""

    start: int
    end: int
    state: npt.NDArray[np.int8]
    share: npt.NDArray[np.int16]
    busy: npt.NDArray[np.int16]
    kernel: npt.NDArray[np.int16]
    waiting: npt.NDArray[np.float64]
    run: Ints


class _Cores:
    """The last minute of the cores."""

    _COLUMNS = ("time", "cpu", "span_ms", "user", "nice", "system", "irq", "softirq", "iowait", "steal", "idle")

    def __init__(self) -> None:
        self.ticks: deque[_CoreTick] = deque()

    def add(self, rows: pa.Table) -> None:
        columns = {name: rows.column(name).to_numpy() for name in (*self._COLUMNS, "wait_ns")}
        times = columns["time"]
        for time in np.unique(times[times > times.max() - HISTORY_NS]).tolist():
            chosen = times == time
            self._add_tick(time, {name: column[chosen] for name, column in columns.items()})
        while self.ticks and self.ticks[0].end <= self.ticks[-1].end - HISTORY_NS:
            self.ticks.popleft()

    def _add_tick(self, start: int, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        before = self.ticks[-1] if self.ticks else None
        cpu, size = columns["cpu"], int(columns["cpu"].max()) + 1
        span = columns["span_ms"].astype(np.int64) * MILLIS
        shares = np.stack([sum(columns[part].astype(np.int16) for part in parts) for parts in _PARTS])
        kernel = shares[_SYSTEM] + shares[_SOFTIRQ]
        run = np.where(is_held(kernel.astype(np.int64), columns["steal"].astype(np.int64)), span, 0)
        if before is not None and start - before.end < _PAUSE_NS:
            run += np.where(run > 0, _padded(before.run, size)[cpu], 0)
        busy = np.clip(1000 - columns["idle"].astype(np.int16) - columns["iowait"].astype(np.int16), 0, 1000)
        waiting = columns["wait_ns"].astype(np.float64) / np.maximum(span, 1)

        def placed(values: npt.NDArray[Any], kind: type[np.generic], missing: float = GAP) -> npt.NDArray[Any]:
            found = np.full(size, missing, kind)
            found[cpu] = values
            return found

        self.ticks.append(
            _CoreTick(
                start,
                start + int(span.max()),
                placed(np.argmax(shares, axis=0), np.int8),
                placed(shares.max(axis=0), np.int16),
                placed(busy, np.int16),
                placed(kernel, np.int16),
                placed(waiting, np.float64, np.nan),
                placed(run, np.int64, 0),
            )
        )

    def strip(self) -> Strip:
        if not self.ticks:
            nothing = np.zeros((0, 0))
            return Strip([], nothing.astype(np.int8), nothing.astype(np.int16))
        size = len(self.ticks[-1].busy)
        cpus = np.flatnonzero(self.ticks[-1].busy != GAP)
        states, shares = (
            np.stack([_padded(of, size, GAP)[cpus] for of in each], axis=1)
            for each in zip(*((tick.state, tick.share) for tick in self.ticks), strict=True)
        )
        return Strip(cpus.tolist(), states, shares)

    def usage(self, names: "Callable[[Sequence[int]], Mapping[int, tuple[int, str, str | None]]]") -> list[CoreUsage]:
        """Every core in the last tick; `names` finds the processes that run on some of them."""
        if not self.ticks:
            return []
        last = self.ticks[-1]
        longest = np.stack([_padded(tick.run, len(last.busy)) for tick in self.ticks]).max(axis=0)
        cpus = np.flatnonzero(last.busy != GAP)
        ranks = np.lexsort((last.busy[cpus], last.kernel[cpus], longest[cpus], last.run[cpus]))
        known = names(cpus[ranks[::-1][:_NAMED_CORES]].tolist())
        found = []
        for cpu in cpus.tolist():
            waiting = float(last.waiting[cpu])
            found.append(
                CoreUsage(
                    cpu,
                    STATES[last.state[cpu]],
                    int(last.share[cpu]),
                    int(last.busy[cpu]),
                    int(last.kernel[cpu]),
                    None if np.isnan(waiting) else round(waiting, 3),
                    int(last.run[cpu]) / NANOS,
                    int(longest[cpu]) / NANOS,
                    *known.get(cpu, ()),
                )
            )
        return found


def _padded(values: npt.NDArray[Any], size: int, missing: int = 0) -> npt.NDArray[Any]:
    """An array indexed by core number, cut or padded to a size: cores can be hotplugged."""
    if len(values) >= size:
        return values[:size]
    return np.concatenate([values, np.full(size - len(values), missing, values.dtype)])


class _Process(NamedTuple):
    comm: str
    container: str | None
    pod: str | None


class _Spent(NamedTuple):
    """CPU time and waiting between two monotonic times: by process, total and kernel microseconds and nanoseconds of
    waiting; by cgroup, nanoseconds of throttling."""

    since: int
    until: int
    cpu_us: dict[int, tuple[float, float]]
    wait_ns: dict[int, float]
    throttled_ns: dict[str, float]


class _Sum:
    """The same sums for a process, container or pod, in seconds."""

    __slots__ = ("cpu", "kernel", "throttled", "waiting")

    def __init__(self) -> None:
        self.cpu = self.kernel = 0.0
        self.waiting: float | None = None
        self.throttled: float | None = None

    def add(self, other: "_Sum") -> None:
        self.cpu += other.cpu
        self.kernel += other.kernel
        if other.waiting is not None:
            self.waiting = (self.waiting or 0.0) + other.waiting

    def over(self, seconds: float) -> tuple[float, float, float | None, float | None]:
        """The averages over a duration, as in `Usage`."""
        waiting, throttled = (
            None if value is None else round(value / seconds, 4) for value in (self.waiting, self.throttled)
        )
        return round(self.cpu / seconds, 4), round(self.kernel / seconds, 4), waiting, throttled

    def rank(self, order: Order) -> float:
        if order is Order.WAIT:
            return (self.waiting or 0.0) + (self.throttled or 0.0)
        return self.kernel if order is Order.KERNEL else self.cpu


class LiveNode:
    """The state of a node, updated from the rows of its recorder as they arrive."""

    def __init__(self) -> None:
        #: The end of the last tick, as wall time; None before the first.
        self.wall: int | None = None
        self._now = 0
        self._cores = _Cores()
        self._spent: deque[_Spent] = deque()
        self._samples: pa.Table | None = None
        self._processes: dict[int, _Process] = {}
        self._leaves: dict[int, int] = {}
        self._frames: dict[int, tuple[bool, str]] = {}
        self._names: dict[str, dict[str, str]] = {"pod": {}, "container": {}}
        self._node: list[dict[str, Any]] = []
        self._dying: dict[str, deque[tuple[int, int]]] = {}
        self._tracked: dict[str, int | None] = {}
        self._zombies: Zombies | None = None
        self._incidents: deque[EventView] = deque(maxlen=_KEPT_INCIDENTS)
        self._losses: deque[LossView] = deque()
        self._self: dict[str, Any] = {}

    def take_past(self, recording: Recording, live: SegmentName) -> None:
        """Load what was recorded in this boot before the live segment: the cores, and data with a longer history."""
        until = live.wall_ms * MILLIS
        lengths = {"cpu": HISTORY_NS, "cgroups": PAST_NS, "events": PAST_NS, "losses": LOSSES_NS}
        for table, nanos in lengths.items():
            window = Window(until - nanos, until)
            for segment in recording.holding(window):
                rows = recording.rows_of(segment, Request(table, window)) if segment.sealed else None
                if rows is not None and segment.name.boot == live.boot:
                    self._takers[table](segment.name, rows)

    def take(self, segment: SegmentName, rows: NewRows) -> None:
        """Process new rows of a segment."""
        ends = np.sort(rows["anchors"].column("time").to_numpy()).tolist() if "anchors" in rows else []
        if ends and ends[-1] < self._now:
            # Times went back: these rows are from another boot.
            self._cores, self._node = _Cores(), []
            self._spent.clear()
        for table, taker in self._takers.items():
            if table in rows:
                taker(segment, rows[table])
        if not ends:
            return
        if self._spent:
            self._take_spent(rows, self._now, ends[-1])
        else:
            # The first batch may span minutes: process only the ticks within the window, one by one.
            edges = [segment.start_ms * MILLIS, *ends]
            for since, until in islice(pairwise(edges), max(0, len(edges) - 1 - WINDOW_NS // NANOS), None):
                parts = {table: _between(rows[table], table, since, until) for table in _SPENT if table in rows}
                self._take_spent(parts, since, until)
        self._now, self.wall = ends[-1], ends[-1] + segment.offset
        while len(self._spent) > 1 and self._spent[0].until <= self._now - WINDOW_NS:
            self._spent.popleft()

    @property
    def _takers(self) -> "dict[str, Callable[[SegmentName, pa.Table], None]]":
        """The handler of each table, ordered so that names and frames are known before the rows that refer to them."""
        return {
            "processes": self._take_processes,
            "frames": self._take_frames,
            "stacks": self._take_stacks,
            "cpu": self._take_cpu,
            "cgroups": self._take_cgroups,
            "events": self._take_events,
            "losses": self._take_losses,
            "node": self._take_node,
            "self": self._take_self,
        }

    def _take_cpu(self, _: SegmentName, rows: pa.Table) -> None:
        self._cores.add(rows)

    def _take_processes(self, _: SegmentName, rows: pa.Table) -> None:
        self._learn_names(rows)
        names = ("pid", "comm", "container", "pod")
        for pid, comm, container, pod in zip(*(rows.column(name).to_pylist() for name in names), strict=True):
            self._processes.pop(pid, None)  # pids are reused
            self._processes[pid] = _Process(comm or f"pid {pid}", container or None, pod or None)
        _bound(self._processes, _MOST_PROCESSES)

    def _learn_names(self, rows: pa.Table) -> None:
        for kind, known in self._names.items():
            named = rows.column(f"{kind}_name")
            if named.null_count < len(named):
                pairs = zip(rows.column(kind).to_pylist(), named.to_pylist(), strict=True)
                known |= {number: name for number, name in pairs if number and name}
                _bound(known, _MOST_NAMES)

    def name_containers(self, names: Mapping[str, str]) -> None:
        """Add container names that were recorded earlier; newer ones are not overwritten."""
        self._names["container"] = {**names, **self._names["container"]}

    def _take_frames(self, _: SegmentName, rows: pa.Table) -> None:
        columns = (rows.column(name).to_pylist() for name in ("frame", "kind", "name"))
        self._frames |= {frame: (kind == "kernel", name) for frame, kind, name in zip(*columns, strict=True)}
        _bound(self._frames, _MOST_STACKS)

    def _take_stacks(self, _: SegmentName, rows: pa.Table) -> None:
        # Stacks are root-first: the last frame of each list is the leaf.
        columns = rows.combine_chunks()
        lists = columns.column("frames").chunk(0)
        offsets, frames = lists.offsets.to_numpy(), lists.values.to_numpy()
        full = offsets[1:] > offsets[:-1]
        stacks = columns.column("stack").to_numpy()[full]
        self._leaves |= dict(zip(stacks.tolist(), frames[offsets[1:][full] - 1].tolist(), strict=True))
        _bound(self._leaves, _MOST_STACKS)

    def _take_cgroups(self, segment: SegmentName, rows: pa.Table) -> None:
        names = ("time", "hierarchy", "parent", "kernel", "dying")
        for time, hierarchy, parent, kernel, dying in zip(*(rows.column(n).to_pylist() for n in names), strict=True):
            if parent or dying is None:
                continue
            points = self._dying.setdefault(hierarchy, deque())
            points.append((time + segment.offset, dying))
            while points[0][0] < points[-1][0] - PAST_NS:
                points.popleft()
            self._tracked[hierarchy] = kernel
        hierarchy = MEMORY if MEMORY in self._dying else UNIFIED
        if hierarchy in self._dying:
            counted = list(self._dying[hierarchy])
            growth = growth_between(counted, RECORDING)
            per_hour = None if growth is None else round(growth.per_hour, 1)
            self._zombies = Zombies(counted[-1][1], self._tracked[hierarchy], per_hour)

    def _take_events(self, segment: SegmentName, rows: pa.Table) -> None:
        self._learn_names(rows)
        marks = rows.filter(pc.equal(rows.column("kind"), INCIDENT))
        self._incidents.extend(views(EventView, [(segment, marks)]))

    def _take_losses(self, segment: SegmentName, rows: pa.Table) -> None:
        self._losses.extend(views(LossView, [(segment, rows)]))
        while self._losses and self._losses[0].wall < self._losses[-1].wall - LOSSES_NS:
            self._losses.popleft()

    def _take_node(self, _: SegmentName, rows: pa.Table) -> None:
        new = rows.slice(max(0, rows.num_rows - WINDOW_NS // NANOS)).select(_NODE).to_pylist()
        self._node = [*self._node, *new][-WINDOW_NS // NANOS :]

    def _take_self(self, _: SegmentName, rows: pa.Table) -> None:
        self._self = rows.slice(rows.num_rows - 1).to_pylist()[0]

    def _take_spent(self, rows: NewRows, since: int, until: int) -> None:
        """Sum CPU time and waiting between two monotonic times."""
        cpu_us: dict[int, tuple[float, float]] = {}
        if "samples" in rows:
            self._samples = rows["samples"]
            cpu_us = self._cpu_time(self._samples)
        wait_ns: dict[int, float] = {}
        for table, key in (("run_delays", "pid"), ("threads", "tid")):
            if table in rows:
                summed = _summed(rows[table].column(key), rows[table].column("wait_ns"))
                for number, waited in summed.items():
                    wait_ns[number] = wait_ns.get(number, 0.0) + waited
                self._name_unknown(rows[table], key, summed)
        throttled: dict[str, float] = {}
        if "throttling" in rows:
            columns = (rows["throttling"].column(name).to_pylist() for name in ("cgroup", "throttled_ns"))
            for cgroup, nanos in zip(*columns, strict=True):
                throttled[cgroup] = throttled.get(cgroup, 0.0) + nanos
        self._spent.append(_Spent(since, until, cpu_us, wait_ns, throttled))

    def _cpu_time(self, samples: pa.Table) -> dict[int, tuple[float, float]]:
        weights = samples.column("weight_us").to_numpy()
        stacks, of_sample = unique_inverse(samples.column("stack").to_numpy())
        in_kernel = np.array([self._leaf(stack)[0] for stack in stacks.tolist()], np.bool_)[of_sample]
        pids, of_sample = unique_inverse(samples.column("pid").to_numpy().astype(np.int64))
        total = np.bincount(of_sample, weights, len(pids)).tolist()
        kernel = np.bincount(of_sample, weights * in_kernel, len(pids)).tolist()
        self._name_unknown(samples, "pid", pids.tolist())
        return dict(zip(pids.tolist(), zip(total, kernel, strict=True), strict=True))

    def _leaf(self, stack: int) -> tuple[bool, str]:
        """Whether the innermost function of a stack is a kernel function, and its name."""
        return self._frames.get(self._leaves.get(stack, 0), (False, ""))

    def _name_unknown(self, rows: pa.Table, key: str, numbers: Iterable[int]) -> None:
        """Name the processes that have no processes row, such as short-lived ones and kernel threads, after their
        sample rows."""
        unknown = [number for number in numbers if number not in self._processes]
        column = rows.column(key).to_numpy() if unknown else np.zeros(0)
        for number in unknown:
            name = rows.column("comm")[int(np.argmax(column == number))].as_py()
            # The idle threads of all cores share pid 0: interrupts were served in them.
            self._processes[number] = _Process(name if number else "swapper", None, None)

    def frame(self, node: str, order: Order = Order.CPU, match: str = "") -> TopFrame:
        """The current state of the node; `match` selects rows with this text in their name, pid, container or pod."""
        seconds = max(self._now - self._spent[0].since, 1) / NANOS if self._spent else 0.0
        processes, containers, pods = self._sums()
        last = self._node[-1] if self._node else {}
        total, available = last.get("mem_total"), last.get("mem_available")

        def listed(sums: Mapping[Any, _Sum], usage: "Callable[[Any, _Sum, float], Usage]") -> list[Usage]:
            chosen: Iterable[Any] = sums
            if match:
                chosen = [key for key in sums if _matches(usage(key, sums[key], seconds), match)]
            best = nlargest(LISTED, chosen, key=lambda key: (sums[key].rank(order), sums[key].cpu))
            return [usage(key, sums[key], seconds) for key in best]

        newest = self.wall or 0
        return TopFrame(
            node=node,
            time=newest,
            window_s=round(seconds, 1),
            pressure=Pressure(*map(self._pressure, _PRESSURES)),
            running=last.get("running"),
            blocked=last.get("blocked"),
            memory_available=available / total if total and available is not None else None,
            zombies=self._zombies,
            cores=self._cores.usage(self._on_cores),
            processes=listed(processes, self._process_usage),
            containers=listed(containers, self._container_usage),
            pods=listed(pods, self._pod_usage),
            incidents=[mark for mark in reversed(self._incidents) if mark.wall > newest - PAST_NS],
            recorder=self._recorder(newest),
            strip=self._cores.strip(),
        )

    def _sums(self) -> tuple[dict[int, _Sum], dict[str, _Sum], dict[str, _Sum]]:
        processes: defaultdict[int, _Sum] = defaultdict(_Sum)
        containers: defaultdict[str, _Sum] = defaultdict(_Sum)
        pods: defaultdict[str, _Sum] = defaultdict(_Sum)
        for spent in self._spent:
            for pid, (total, kernel) in spent.cpu_us.items():
                found = processes[pid]
                found.cpu += total / 1e6
                found.kernel += kernel / 1e6
            for pid, waited in spent.wait_ns.items():
                found = processes[pid]
                found.waiting = (found.waiting or 0.0) + waited / NANOS
        for pid, found in processes.items():
            known = self._processes.get(pid)
            if known is not None and known.container is not None:
                containers[known.container].add(found)
            if known is not None and known.pod is not None:
                pods[known.pod].add(found)
        for spent in self._spent:
            for cgroup, nanos in spent.throttled_ns.items():
                identity = identify(cgroup) or NOWHERE
                for groups, key in ((containers, identity.container), (pods, identity.pod)):
                    if key is not None:
                        groups[key].throttled = (groups[key].throttled or 0.0) + nanos / NANOS
        return processes, containers, pods

    def _process(self, pid: int) -> _Process:
        return self._processes.get(pid, _Process(f"pid {pid}", None, None))

    def _process_usage(self, pid: int, found: _Sum, seconds: float) -> Usage:
        known = self._process(pid)
        container = known.container and self._names["container"].get(known.container, known.container[:12])
        pod = known.pod and self._pod_name(known.pod)
        return Usage(known.comm, *found.over(seconds), pid, container, pod)

    def _container_usage(self, container: str, found: _Sum, seconds: float) -> Usage:
        return Usage(self._names["container"].get(container, container[:12]), *found.over(seconds))

    def _pod_usage(self, pod: str, found: _Sum, seconds: float) -> Usage:
        return Usage(self._pod_name(pod), *found.over(seconds))

    def _pod_name(self, pod: str) -> str:
        return self._names["pod"].get(pod, pod)

    def _on_cores(self, cpus: Sequence[int]) -> dict[int, tuple[int, str, str | None]]:
        """The process that ran most on each of the given cores since the last poll, and the function that it was in."""
        found: dict[int, tuple[int, str, str | None]] = {}
        if self._samples is None:
            return found
        names = ("cpu", "pid", "stack", "weight_us")
        cores, pids, stacks, weights = (self._samples.column(name).to_numpy() for name in names)
        for cpu in cpus:
            chosen = cores == cpu
            if not chosen.any():
                continue
            pid = _heaviest(pids[chosen].astype(np.int64), weights[chosen])
            of_pid = chosen & (pids == pid)
            leaves = np.array([self._leaves.get(stack, 0) for stack in stacks[of_pid].tolist()], np.uint64)
            function = self._frames.get(_heaviest(leaves, weights[of_pid]), (False, ""))[1]
            found[cpu] = pid, self._process(pid).comm, function or None
        return found

    def _pressure(self, name: str) -> float | None:
        stalled = [(row[f"psi_{name}_some"], row["span_ms"]) for row in self._node]
        if not stalled or any(value is None for value, _ in stalled):
            return None
        share: float = sum(value for value, _ in stalled) / max(1, sum(span for _, span in stalled) * 1000)
        return round(min(1.0, share), 4)

    def _recorder(self, newest: int) -> RecorderUsage:
        losses: dict[str, int] = {}
        for loss in self._losses:
            if loss.wall > newest - LOSSES_NS and loss.kind not in HARMLESS_LOSSES:
                losses[loss.kind] = losses.get(loss.kind, 0) + loss_total(loss.kind, loss.count)
        if not self._self:
            return RecorderUsage(losses=losses)
        own, span_us = self._self, max(1, self._self["span_ms"] * 1000)
        spent = round((own["user_us"] + own["system_us"]) / span_us, 4)
        return RecorderUsage(own["rate_hz"], own["samples"], spent, own["rss_kb"] * 1024, losses)


def _matches(usage: Usage, match: str) -> bool:
    wanted = match.lower()
    texts = (usage.name, usage.container, usage.pod, None if usage.pid is None else str(usage.pid))
    return any(wanted in text.lower() for text in texts if text)


def _between(rows: pa.Table, table: str, since: int, until: int) -> pa.Table:
    """The rows that begin between two monotonic times."""
    clock = time_column(table)
    times = rows.column(clock).to_numpy() * (MILLIS if clock == "time_ms" else 1)
    return rows.filter(pa.array((times >= since) & (times < until)))


def _summed(keys: pa.ChunkedArray, values: pa.ChunkedArray) -> dict[int, float]:
    numbers, members = unique_inverse(keys.to_numpy().astype(np.int64))
    return dict(zip(numbers.tolist(), np.bincount(members, values.to_numpy(), len(numbers)).tolist(), strict=True))


def _heaviest(keys: npt.NDArray[Any], weights: npt.NDArray[Any]) -> int:
    numbers, members = np.unique(keys, return_inverse=True)
    return int(numbers[np.argmax(np.bincount(members, weights))])


def _bound(known: MutableMapping[Any, Any], most: int) -> None:
    """Evict the oldest entries beyond a limit."""
    for key in list(islice(known, max(0, len(known) - most))):
        del known[key]


_SHAPES: Shapes = {
    TopFrame: Shape(omit=("strip",), add=lambda frame, _: {"cores": frame.worst_cores}),
    EventView: EVENT_SHAPE,
}


def top_json(frame: TopFrame, zone: tzinfo | None) -> dict[str, Any]:
    """The documented shape of `exhume top --json`."""
    return {"version": JSON_VERSION, **to_json(frame, zone, _SHAPES)}
