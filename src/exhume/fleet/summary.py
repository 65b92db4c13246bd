"""Summaries: a minute of a recording as one row for the lake.

They are made from sealed segments, which end at full minutes of wall time: each segment is read once, column by
column. Shares are rounded to a thousandth and seconds to a hundredth: further digits are noise, and would take up most
of the bytes in the lake.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exhume.collect.cgroup.dying import MEMORY, UNIFIED
from exhume.collect.sources.netdev import NetdevSource
from exhume.diagnose.counting import DIRECT_RECLAIM, LEAKED_AFTER_NS, NIC_RESET, ContainerRestarts, is_nic_timeout
from exhume.diagnose.moments import moments_of
from exhume.fleet.schema import STATES, SUMMARIES
from exhume.model.clock import MILLIS, NANOS
from exhume.model.facts import RecordingFacts
from exhume.model.job_event import FAILURES, SOURCE
from exhume.model.tables import INCIDENT, STOOD_STILL_NS, is_held, longest_wait
from exhume.store.format.schema import UnreadableFile
from exhume.store.read.events import EventView, views
from exhume.store.read.index import Segment
from exhume.store.read.reader import Request, facts_of
from exhume.store.read.recording import Recording

MINUTE_NS = 60 * NANOS
# A segment that ends this soon after a full minute ended with it: the tick that crosses the boundary takes a second.
_CROSSED_NS = 5 * NANOS
# Segments whose clock offsets differ by less belong to one stretch.
_SAME_CLOCK_NS = NANOS
_MOST_REMOVED = 8192
_LARGEST_COUNT = (1 << 16) - 1

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Values = dict[str, list[Any]]

_CPU = ("time", "cpu", "span_ms", "user", "nice", "system", "irq", "softirq", "iowait", "steal", "guest", "idle")
_NODE = ("time", "span_ms", "psi_cpu_some", "psi_memory_some", "psi_io_some", "oom_kill")
_EVENTS = (
    *("time", "source", "kind", "severity", "text", "cpu", "pid", "comm", "device", "queue", "value", "kernel_us"),
    *("sequence", "trigger", "exit_code", "container_name", "image", "job", "member"),
)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive segments of one boot and one clock; `whole` says whether their last minute is complete."""

    segments: tuple[Segment, ...]
    whole: bool


@dataclass(slots=True)
class Summarised:
    """The summaries of a stretch, column by column, and its events."""

    columns: Values
    events: list[EventView]
    jobs: Values
    facts: RecordingFacts


def stretches(segments: Sequence[Segment]) -> Iterator[Stretch]:
    """Group sealed segments, in recorded order, into stretches that share no minute."""
    held: list[Segment] = []
    for segment in segments:
        if held and not _follows(held[-1], segment):
            yield Stretch(tuple(held), True)
            held = []
        held.append(segment)
        if segment.name.span.until % MINUTE_NS < _CROSSED_NS:
            yield Stretch(tuple(held), True)
            held = []
    if held:
        yield Stretch(tuple(held), False)


def _follows(before: Segment, after: Segment) -> bool:
    """Whether a segment has the same boot and clock as the one before it, and may continue its last minute."""
    same = before.name.boot == after.name.boot
    near = abs(before.name.offset - after.name.offset) < _SAME_CLOCK_NS
    return same and near and after.name.span.since - before.name.span.until < MINUTE_NS


@dataclass(slots=True)
class Summariser:
    """Makes summaries of consecutive stretches. Its state is bounded: removed cgroups that were not released yet, and
    ends of containers, which count as restarts if the container comes again. `cost_per_zombie_us` is the last measured
    value."""

    cost_per_zombie_us: float | None = None
    _removed: dict[tuple[int, int], int] = field(default_factory=dict)
    _restarts: ContainerRestarts = field(default_factory=ContainerRestarts)

    def summarise(self, recording: Recording, stretch: Stretch) -> Summarised | None:
        """Summarise a stretch; None if nothing in it can be read."""
        facts = _facts(stretch)
        if facts is None:
            return None
        reader = _Reader(recording, stretch)
        minutes = reader.minutes
        if not len(minutes):
            return None
        values: Values = {
            "minute": (minutes * (MINUTE_NS // 1000)).tolist(),
            "boot_id": [facts.boot_id] * len(minutes),
            "uptime_s": [
                float(max(0, minute * MINUTE_NS - stretch.segments[0].name.offset) // NANOS)
                for minute in minutes.tolist()
            ],
            "cost_per_zombie_us": [self.cost_per_zombie_us] * len(minutes),
        }
        values |= _of_cores(reader, facts)
        values |= _of_node(reader)
        values |= _of_cgroups(reader)
        values |= self._of_cgroup_events(reader)
        values |= _of_reclaim(reader, values)
        events, jobs, counted = self._of_events(reader, stretch)
        values |= counted
        # In the table's order; columns that this version does not measure are left out.
        names = [each.name for each in SUMMARIES.schema if each.name in values]
        return Summarised({name: values[name] for name in names}, events, jobs, facts)

    def _of_cgroup_events(self, reader: "_Reader") -> Values:
        """Cgroups that were created, and those that were removed but not released in time. On v1 a container creates
        one cgroup in each hierarchy, so the hierarchy with the greatest count is used."""
        rows = reader.table("cgroup_events", ("time", "hierarchy", "op", "id", "created"))
        made: dict[int, list[int]] = {}
        leaked: dict[int, list[int]] = {}
        empty = [0] * len(reader.minutes)
        if rows is None:
            return {"cgroups_made": empty, "cgroups_leaked": empty}
        order = np.argsort(rows.wall, kind="stable")
        columns = [
            np.array(rows.column(name).to_pylist(), object)[order] for name in ("hierarchy", "op", "id", "created")
        ]
        until = int(rows.wall.max(initial=0))
        for minute, wall, hierarchy, op, number, created in zip(
            rows.minute[order].tolist(), rows.wall[order].tolist(), *(each.tolist() for each in columns), strict=True
        ):
            if created is not None:
                made.setdefault(hierarchy, empty.copy())[minute] += created
            if op == "mkdir":
                made.setdefault(hierarchy, empty.copy())[minute] += 1
            elif op == "rmdir" and number is not None:
                self._removed[hierarchy, number] = wall
            elif op == "release":
                self._removed.pop((hierarchy, number), None)
        # These are released after this stretch, if ever; they count once the time limit has passed.
        until = max(until, reader.until)
        for (hierarchy, number), wall in list(self._removed.items()):
            if wall <= until - LEAKED_AFTER_NS:
                del self._removed[hierarchy, number]
                minute = int(np.clip((wall + LEAKED_AFTER_NS) // MINUTE_NS - reader.minutes[0], 0, len(empty) - 1))
                leaked.setdefault(hierarchy, empty.copy())[minute] += 1
        while len(self._removed) > _MOST_REMOVED:
            del self._removed[next(iter(self._removed))]
        return {
            name: max(found.values(), key=sum, default=empty)
            for name, found in (("cgroups_made", made), ("cgroups_leaked", leaked))
        }

    def _of_events(self, reader: "_Reader", stretch: Stretch) -> tuple[list[EventView], Values, Values]:
        size, first = len(reader.minutes), int(reader.minutes[0])
        names = ("nic_timeouts", "nic_resets", "unit_restarts", "container_restarts", "incidents")
        counts = {name: [0] * size for name in names}
        counted = [0.0] * size
        jobs: Values = {"at": [], "job": [], "kind": [], "reason": [], "source": [], "member": []}
        events: list[EventView] = []
        for segment in stretch.segments:
            rows = reader.recording.rows_of(segment, Request("events", None, list(_EVENTS)))
            if rows is None:
                continue
            events += views(EventView, [(segment.name, rows)])
            for row in rows.to_pylist():
                wall, kind = row["time"] + segment.name.offset, row["kind"]
                minute = min(max(wall // MINUTE_NS - first, 0), size - 1)
                if is_nic_timeout(kind):
                    if row["source"] == NetdevSource.name:
                        counted[minute] += row["value"] or 0.0
                    else:
                        counts["nic_timeouts"][minute] += 1
                elif kind == NIC_RESET:
                    counts["nic_resets"][minute] += 1
                elif kind == "unit-restarted":
                    counts["unit_restarts"][minute] += 1
                elif kind in ("container-die", "container-start"):
                    name = row["container_name"] or row["image"]
                    if kind == "container-die":
                        self._restarts.end(name)
                    else:
                        counts["container_restarts"][minute] += self._restarts.start(name)
                elif kind in FAILURES:
                    known = {"job": row["job"] or "", "member": row["member"], "reason": row["text"]}
                    _append(jobs, at=wall // 1000, kind=kind, source=SOURCE, **known)
        # The kernel's own counter and the log lines report the same timeouts.
        timeouts = zip(counts["nic_timeouts"], counted, strict=True)
        counts["nic_timeouts"] = [max(lines, round(known)) for lines, known in timeouts]
        marks = sorted((event for event in events if event.kind == INCIDENT), key=lambda event: event.time)
        for moment in moments_of(marks):
            counts["incidents"][min(max(moment.marks[0].wall // MINUTE_NS - first, 0), size - 1)] += 1
        bounded = {name: [min(value, _LARGEST_COUNT) for value in values] for name, values in counts.items()}
        return events, jobs, bounded


def _append(columns: Values, **row: Any) -> None:
    for name, value in row.items():
        columns[name].append(value)


def _facts(stretch: Stretch) -> RecordingFacts | None:
    for segment in stretch.segments:
        try:
            found = facts_of(segment, "anchors")
        except UnreadableFile:
            continue
        if found is not None:
            return found
    return None


class _Rows:
    """Rows of a stretch: their wall time, and their minute, relative to the first."""

    def __init__(self, parts: list[pa.Table], walls: list[Ints], first: int, size: int) -> None:
        table = pa.concat_tables(parts)
        wall = np.concatenate(walls)
        minute = wall // MINUTE_NS - first
        inside = (minute >= 0) & (minute < size)
        # A row at the edge of the stretch may belong to a minute that is hardly covered.
        self._table = table if inside.all() else table.filter(pa.array(inside))
        self.wall: Ints = wall[inside]
        self.minute: Ints = minute[inside]

    def column(self, name: str) -> pa.ChunkedArray:
        return self._table.column(name)

    def numbers(self, name: str) -> Floats:
        """A column of numbers; NaN for unknown values."""
        return np.asarray(self._table.column(name).to_numpy(zero_copy_only=False), np.float64)


class _Reader:
    """The tables of a stretch. Its minutes are those with rows of cores or of the node."""

    def __init__(self, recording: Recording, stretch: Stretch) -> None:
        self.recording, self.stretch = recording, stretch
        first, last = stretch.segments[0].name.span.since, stretch.segments[-1].name.span.until
        self.until = last
        # The tick that crosses a full minute belongs to the minute in which it began.
        end = (last - 1) // MINUTE_NS + 1 if not stretch.whole or last % MINUTE_NS >= _CROSSED_NS else last // MINUTE_NS
        self.minutes: Ints = np.arange(first // MINUTE_NS, max(end, first // MINUTE_NS + 1), dtype=np.int64)

    def table(self, table: str, columns: Sequence[str]) -> _Rows | None:
        parts, walls = [], []
        for segment in self.stretch.segments:
            rows = self.recording.rows_of(segment, Request(table, None, list(columns)))
            if rows is not None and rows.num_rows:
                times = rows.column("time_ms" if "time_ms" in columns else "time").to_numpy()
                walls.append(times * (1_000_000 if "time_ms" in columns else 1) + segment.name.offset)
                parts.append(rows)
        return _Rows(parts, walls, int(self.minutes[0]), len(self.minutes)) if parts else None

    def sums(self, rows: _Rows, values: Floats) -> Floats:
        """The sum of the values of each minute, ignoring unknown values."""
        return _sums(rows.minute, np.nan_to_num(values), len(self.minutes))

    def maxima(self, rows: _Rows, values: Floats) -> Floats:
        found = np.zeros(len(self.minutes))
        np.maximum.at(found, rows.minute, np.nan_to_num(values))
        return found


def _of_cores(reader: _Reader, facts: RecordingFacts) -> Values:
    size = len(reader.minutes)
    rows = reader.table("cpu", (*_CPU, "wait_ns"))
    if rows is None or not len(rows.wall):
        return {"cores": [facts.cores] * size, "covered_s": [0.0] * size}
    span = rows.numbers("span_ms") / 1000
    state = {name: rows.numbers(name) / 1000 for name in _CPU[3:]}
    kernel = state["system"] + state["irq"] + state["softirq"]
    busy = np.clip(1 - state["idle"] - state["iowait"], 0, 1)
    # Nice time and guest time are user time as well.
    state["user"] = state["user"] + state["nice"] + state["guest"]
    numbers, core = np.unique(rows.numbers("cpu").astype(np.int64), return_inverse=True)
    place, places = rows.minute * len(numbers) + core, size * len(numbers)

    def of_core(values: Floats) -> Floats:
        return _sums(place, values * span, places).reshape(size, len(numbers))

    seconds = of_core(np.ones(len(span)))
    known = np.maximum(seconds, 1e-9)
    shares = of_core(busy) / known
    # Of equally busy cores, choose the one with more kernel time.
    busiest = np.argmax(np.round(shares, 3) * 10 + of_core(kernel) / known, axis=1)
    at = np.arange(size), busiest
    states = np.stack([of_core(state[name])[at] for name in STATES])
    total = np.maximum(seconds.sum(axis=1), 1e-9)
    covered = np.minimum(seconds.max(axis=1), 60.0)
    begin, end = np.full(size, np.inf), np.zeros(size)
    np.minimum.at(begin, rows.minute, rows.wall / NANOS)
    np.maximum.at(end, rows.minute, rows.wall / NANOS + span)
    hot = is_held(np.round(kernel * 1000), np.round(state["steal"] * 1000))
    waits = rows.numbers("wait_ns")
    return {
        "cores": np.count_nonzero(seconds, axis=1).tolist(),
        "covered_s": _rounded(covered, 1),
        "busiest_core": numbers[busiest].tolist(),
        "busiest_share": _rounded(shares[at], 3),
        "busiest_state": [
            STATES[best] if most > 0 else ""
            for best, most in zip(states.argmax(axis=0).tolist(), states.max(axis=0).tolist(), strict=True)
        ],
        "busy_share": _rounded(of_core(busy).sum(axis=1) / total, 3),
        "kernel_share": _rounded(of_core(kernel).sum(axis=1) / total, 3),
        "stall_s": _rounded(reader.sums(rows, span * hot), 2),
        "longest_stall_s": _rounded(_longest(rows, core, hot, span, size), 2),
        "runqueue_wait_s": [None] * size if np.isnan(waits).all() else _rounded(reader.sums(rows, waits) / NANOS, 2),
        "lost_s": _rounded(np.clip(np.where(end > 0, end - np.where(end > 0, begin, 0), 0) - covered, 0, 60), 1),
    }


def _longest(rows: _Rows, core: Ints, hot: npt.NDArray[np.bool_], span: Floats, size: int) -> Floats:
    """The longest uninterrupted time for which one core was hot, in each minute."""
    order = np.lexsort((rows.wall, core))
    ordered, minute, marked = core[order], rows.minute[order], hot[order]
    breaks = ~marked
    breaks[1:] |= (ordered[1:] != ordered[:-1]) | (minute[1:] != minute[:-1])
    run = np.cumsum(breaks)
    lengths = np.bincount(run, span[order] * marked)
    found = np.zeros(size)
    np.maximum.at(found, minute, lengths[run])
    return found


def _of_node(reader: _Reader) -> Values:
    found: Values = {}
    size = len(reader.minutes)
    rows = reader.table("node", _NODE)
    if rows is not None:
        spans_us = np.maximum(reader.sums(rows, rows.numbers("span_ms")) * 1000, 1)
        for name in ("cpu", "memory", "io"):
            values = rows.numbers(f"psi_{name}_some")
            if not np.isnan(values).all():
                found[f"pressure_{name}"] = _rounded(np.minimum(reader.sums(rows, values) / spans_us, 1), 3)
        kills = rows.numbers("oom_kill")
        if not np.isnan(kills).all():
            found["oom_kills"] = np.minimum(reader.sums(rows, kills), _LARGEST_COUNT).astype(int).tolist()
    threads = reader.table("threads", ("time", "comm", "cpu", "run_ns", "wait_ns", "slices"))
    if threads is not None:
        found["ksoftirqd_wait_s"] = _rounded(reader.maxima(threads, _softirq_waits(reader, threads)) / NANOS, 2)
    throttling = reader.table("throttling", ("time", "throttled_ns"))
    throttled = np.zeros(size) if throttling is None else reader.sums(throttling, throttling.numbers("throttled_ns"))
    found["throttled_s"] = _rounded(throttled / NANOS, 2)
    own = reader.table("self", ("time", "span_ms", "user_us", "system_us"))
    if own is not None:
        spans_us = np.maximum(reader.sums(own, own.numbers("span_ms")) * 1000, 1)
        used = reader.sums(own, own.numbers("user_us") + own.numbers("system_us"))
        found["recorder_cpu"] = _rounded(used / spans_us, 4)
    return found


def _softirq_waits(reader: _Reader, threads: _Rows) -> Floats:
    """The longest wait (ns) of a ksoftirqd in each row; 0 in those of other threads."""
    softirqs = np.array([comm.startswith("ksoftirqd/") for comm in threads.column("comm").to_pylist()], np.bool_)
    waited, slices = threads.numbers("wait_ns") * softirqs, threads.numbers("slices")
    found = np.where(np.isnan(slices), waited, waited / np.maximum(slices, 1))
    # Few minutes have a wait for which the queue of its core matters.
    places = np.flatnonzero(waited >= STOOD_STILL_NS)
    columns = [threads.column(name).take(places).to_pylist() for name in ("cpu", "run_ns", "slices")]
    ticks = _ticks_of_cores(reader, threads.wall[places])
    waits = waited[places].astype(np.int64).tolist()
    rows = zip(places.tolist(), threads.wall[places].tolist(), waits, *columns, strict=True)
    for place, wall, wait, core, ran, turns in rows:
        span_ns, queue = ticks.get((wall, core), (NANOS, None))
        found[place] = longest_wait(wait, ran, turns, span_ns, queue)
    return found


def _ticks_of_cores(reader: _Reader, walls: Ints) -> dict[tuple[int, int], tuple[int, float | None]]:
    """How long the ticks that began at these times lasted (ns), and the threads that waited in them on average, by time
    and core."""
    rows = reader.table("cpu", ("time", "cpu", "span_ms", "wait_ns")) if len(walls) else None
    if rows is None:
        return {}
    places = np.flatnonzero(np.isin(rows.wall, walls))
    columns = [rows.column(name).take(places).to_pylist() for name in ("cpu", "span_ms", "wait_ns")]
    return {
        (wall, core): (span_ms * MILLIS, None if waited is None else waited / max(span_ms * MILLIS, 1))
        for wall, core, span_ms, waited in zip(rows.wall[places].tolist(), *columns, strict=True)
    }


def _of_cgroups(reader: _Reader) -> Values:
    """The last counts of each minute, from the hierarchy that memory is charged to."""
    rows = reader.table("cgroups", ("time", "hierarchy", "parent", "kernel", "dying"))
    if rows is None:
        return {}
    hierarchies = np.array(rows.column("hierarchy").to_pylist(), object)
    whole = np.array([not parent for parent in rows.column("parent").to_pylist()], np.bool_)
    name = MEMORY if (whole & (hierarchies == MEMORY)).any() else UNIFIED
    mine = whole & (hierarchies == name)
    found: Values = {}
    for column, target in (("kernel", "memcgs_tracked"), ("dying", "memcgs_dying")):
        counts = rows.numbers(column)
        newest: list[int | None] = [None] * len(reader.minutes)
        for place in np.argsort(rows.wall, kind="stable").tolist():
            if mine[place] and not np.isnan(counts[place]):
                newest[int(rows.minute[place])] = int(counts[place])
        found[target] = newest
    return found


def _of_reclaim(reader: _Reader, values: Values) -> Values:
    """The share of busy time that threads spent in direct reclaim. Most segments contain no such function; then
    neither stacks nor samples are read."""
    if "busy_share" not in values:
        return {}
    seconds = np.zeros(len(reader.minutes))
    for segment in reader.stretch.segments:
        frames = reader.recording.rows_of(segment, Request("frames", None, ["frame", "kind", "name"]))
        named = frozenset[int]() if frames is None else _reclaiming(frames)
        if not named:
            continue
        stacks = reader.recording.rows_of(segment, Request("stacks"))
        samples = reader.recording.rows_of(segment, Request("samples", None, ["time_ms", "stack", "weight_us"]))
        if stacks is None or samples is None:
            continue
        wanted = {
            stack
            for stack, members in zip(
                stacks.column("stack").to_pylist(), stacks.column("frames").to_pylist(), strict=True
            )
            if not named.isdisjoint(members)
        }
        inside = np.isin(samples.column("stack").to_numpy(), np.fromiter(wanted, np.uint64, len(wanted)))
        walls = samples.column("time_ms").to_numpy()[inside] * 1_000_000 + segment.name.offset
        minute = np.clip(walls // MINUTE_NS - reader.minutes[0], 0, len(seconds) - 1)
        seconds += np.bincount(minute, samples.column("weight_us").to_numpy()[inside] / 1e6, len(seconds))
    busy = np.array(values["busy_share"]) * np.array(values["cores"]) * np.array(values["covered_s"])
    return {"reclaim_share": _rounded(np.minimum(seconds / np.maximum(busy, 1e-3), 1) * (seconds > 0), 3)}


def _reclaiming(frames: pa.Table) -> frozenset[int]:
    columns = (frames.column(name).to_pylist() for name in ("frame", "kind", "name"))
    return frozenset(
        frame for frame, kind, name in zip(*columns, strict=True) if name in DIRECT_RECLAIM and kind == "kernel"
    )


def _sums(places: Ints, values: Floats, size: int) -> Floats:
    return np.asarray(np.bincount(places, values, size), np.float64)


def _rounded(values: Floats, digits: int) -> list[float]:
    rounded: list[float] = np.round(values, digits).tolist()
    return rounded
