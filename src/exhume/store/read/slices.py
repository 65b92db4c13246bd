"""Timelines of threads on cores, built from samples.

A sample says that a thread was on a core at one moment, and represents the time since the previous sample. So a slice
extends back to the previous sample on its core, or by the time that the sample represents if the previous one is
further away; it never extends beyond what the samples support. Adjacent samples of a thread in one state form a slice.

Between slices a core was idle or was not sampled. It was idle if the kernel's counters account for the time that no
sample covers; otherwise (lost samples, interrupts that could not be sampled, time taken by the hypervisor, no counters)
nothing is claimed.

All cores are mapped to one number line, one after the other, so that their intervals are processed together.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from exhume.model.clock import MILLIS, Window
from exhume.store.read.profile import SampleTable
from exhume.store.read.stacks import SAMPLED_STATES, Ints, ResolvedStacks, unique_inverse

#: States of a slice: a thread ran in one of the first four (`unknown`: its stack is not known), or the core was idle.
SLICE_STATES = (*SAMPLED_STATES, "unknown", "idle")
_UNKNOWN, IDLE = len(SAMPLED_STATES), len(SAMPLED_STATES) + 1
NO_THREAD = -1
# Samples come late while interrupts are off, and their times are truncated to milliseconds.
_LATE = 1.5
# How far counters and samples may differ, in standard deviations of the number of samples that hit a core which is busy
# for part of the time.
_DEVIATIONS = 3.0


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread, with the name it had when it ran."""

    pid: int
    tid: int
    comm: str


@dataclass(frozen=True, slots=True)
class Slices:
    """Slice i is on core `cpus[lines[i]]`, from `since[i]` to `until[i]` (wall nanoseconds), in state `states[i]` of
    SLICE_STATES: `threads[thread[i]]` ran there, in `samples[i]` samples, most of them in the function
    `frames[frame[i]]`. Slices are sorted by core, then by time, and do not overlap."""

    cpus: list[int]
    threads: list[Thread]
    frames: list[str]
    lines: Ints
    since: Ints
    until: Ints
    states: Ints
    thread: Ints
    frame: Ints
    samples: Ints

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True, slots=True)
class _Line:
    """Maps moments of all cores to one number line, with the cores far enough apart that none touches the next."""

    cpus: Ints
    origin: int
    stride: int

    @classmethod
    def of(cls, cpus: Ints, span: Window) -> "_Line":
        return cls(cpus, span.since, span.nanos + 1)

    def at(self, cpus: Ints, walls: Ints) -> Ints:
        """The positions of moments, which are clipped to the line's time range."""
        place = np.searchsorted(self.cpus, cpus)
        moved: Ints = place * self.stride + np.clip(walls - self.origin, 0, self.stride - 1)
        return moved


def build_slices(
    samples: SampleTable, window: Window, rows: pa.Table | None = None, lost: pa.Table | None = None
) -> Slices:
    """Build the slices of a window. `rows` are the cpu table's rows that overlap it, with their `wall` time; without
    them nothing is known of the time between slices. `lost` are rows of the sampling table with lost samples."""
    counted = _columns(rows, ("cpu", "wall", "span_ms", "idle", "iowait"))
    cpus = np.unique(np.concatenate([counted["cpu"], samples.cpus]))
    ends = counted["wall"] + counted["span_ms"] * MILLIS
    reach = Window(
        min([window.since, *samples.walls[:1].tolist(), *counted["wall"].tolist()]),
        max([window.until, *samples.walls[-1:].tolist(), *ends.tolist()]),
    )
    line = _Line.of(cpus, reach)
    ran = _ran(samples, line)
    idle = _idle(ran, counted, _columns(lost, ("cpu", "wall")), line, samples)
    threads, thread = _threads(samples)
    frames, frame = _frames(samples)
    every = _Stretches.merged(ran, thread, frame, _states(samples)).with_idle(*idle)
    return every.inside(window, line).named(cpus.tolist(), threads, frames, line)


def _columns(rows: pa.Table | None, names: tuple[str, ...]) -> dict[str, Ints]:
    if rows is None:
        return {name: np.zeros(0, np.int64) for name in names}
    return {name: rows.column(name).to_numpy().astype(np.int64) for name in names}


@dataclass(frozen=True, slots=True)
class _Ran:
    """The time that each sample covers, sorted by core and time: sample `order[i]` from `start[i]` to `stop[i]`."""

    order: Ints
    start: Ints
    stop: Ints


def _ran(samples: SampleTable, line: _Line) -> _Ran:
    stops = line.at(samples.cpus, samples.walls)
    order = np.argsort(stops, kind="stable")
    stop = stops[order]
    covered = samples.weights_us[order] * 1000
    before = np.concatenate([[np.iinfo(np.int64).min // 2], stop[:-1]])
    since = stop - before
    start = np.where(since <= covered * _LATE, before, stop - covered)
    # No slice extends into the preceding core.
    return _Ran(order, np.maximum(start, stop // line.stride * line.stride), stop)


def _idle(
    ran: _Ran, rows: dict[str, Ints], lost: dict[str, Ints], line: _Line, samples: SampleTable
) -> tuple[Ints, Ints]:
    """Intervals in which cores were idle: between slices, in rows whose counters agree with the samples."""
    start = line.at(rows["cpu"], rows["wall"])
    stop = line.at(rows["cpu"], rows["wall"] + rows["span_ms"] * MILLIS)
    length = np.maximum(stop - start, 1)
    rested = length * (rows["idle"] + rows["iowait"]) // 1000
    period = float(np.median(samples.weights_us)) * 1000 if len(samples) else 0.0
    expected = np.maximum(length / max(period, 1.0), 1.0)
    share = np.clip(rested / length, 0.0, 1.0)
    margin = period + _DEVIATIONS * period * np.sqrt(expected * share * (1 - share))
    missing = length - _covered(ran, start, stop) - rested
    agree = missing <= margin
    known = np.isin(lost["cpu"], line.cpus)
    places = np.sort(line.at(lost["cpu"][known], lost["wall"][known]))
    agree &= np.searchsorted(places, stop) == np.searchsorted(places, start)
    return _without(start[agree], stop[agree], ran.start, ran.stop)


def _covered(ran: _Ran, start: Ints, stop: Ints) -> Ints:
    """How much of each interval is covered by slices, which do not overlap."""
    if not len(ran.stop):
        return np.zeros(len(start), np.int64)
    totals = np.concatenate([[0], np.cumsum(ran.stop - ran.start)])

    def until(moments: Ints) -> Ints:
        after = np.searchsorted(ran.stop, moments, side="right")
        inside = np.minimum(after, len(ran.stop) - 1)
        part = np.where(after < len(ran.stop), np.maximum(moments - ran.start[inside], 0), 0)
        reached: Ints = totals[after] + part
        return reached

    return until(stop) - until(start)


def _without(start: Ints, stop: Ints, taken_start: Ints, taken_stop: Ints) -> tuple[Ints, Ints]:
    """The union of intervals minus the taken ones; touching intervals are joined."""
    points = np.concatenate([start, stop, taken_start, taken_stop])
    sizes = (len(start), len(stop), len(taken_start), len(taken_stop))
    wanted = np.repeat([1, -1, 0, 0], sizes)
    taken = np.repeat([0, 0, 1, -1], sizes)
    order = np.argsort(points, kind="stable")
    points = points[order]
    free = (np.cumsum(wanted[order]) > 0) & (np.cumsum(taken[order]) == 0)
    kept = np.flatnonzero(free[:-1] & (np.diff(points) > 0))
    begin, end = points[kept], points[kept + 1]
    fresh = np.concatenate([[True], begin[1:] != end[:-1]])[: len(begin)]
    last = np.concatenate([fresh[1:], [True]])[: len(begin)]
    return begin[fresh], end[last]


@dataclass(frozen=True, slots=True)
class _Stretches:
    """Slices on the number line of all cores."""

    start: Ints
    stop: Ints
    states: Ints
    thread: Ints
    frame: Ints
    samples: Ints

    @classmethod
    def merged(cls, ran: _Ran, thread: Ints, frame: Ints, states: Ints) -> "_Stretches":
        """Merge adjacent samples of one thread in one state into slices, named after their most frequent function."""
        order = ran.order
        thread, frame, states = thread[order], frame[order], states[order]
        alike = (thread[1:] == thread[:-1]) & (states[1:] == states[:-1]) & (ran.start[1:] == ran.stop[:-1])
        heads = np.flatnonzero(np.concatenate([[True], ~alike])[: len(order)])
        group = np.cumsum(np.concatenate([[True], ~alike])[: len(order)]) - 1
        lasts = np.concatenate([heads[1:], [len(order)]])[: len(heads)] - 1
        frames = int(frame.max(initial=0)) + 1
        pairs, members = unique_inverse(group * frames + frame)
        pairs = pairs[np.argsort(np.bincount(members, minlength=len(pairs)), kind="stable")]
        most = np.zeros(len(heads), np.int64)
        # The last of several assignments to a slice wins: that is the most frequent function.
        most[pairs // frames] = pairs % frames
        return cls(ran.start[heads], ran.stop[lasts], states[heads], thread[heads], most, lasts - heads + 1)

    def with_idle(self, start: Ints, stop: Ints) -> "_Stretches":
        nothing = np.full(len(start), NO_THREAD, np.int64)
        added = (start, stop, np.full(len(start), IDLE), nothing, nothing, np.zeros(len(start), np.int64))
        columns = [np.concatenate(pair) for pair in zip(self._columns(), added, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return _Stretches(*(column[order] for column in columns))

    def inside(self, window: Window, line: _Line) -> "_Stretches":
        """Clip the slices to a window."""
        core = self.start // line.stride * line.stride
        first, last = core + window.since - line.origin, core + window.until - line.origin
        start, stop = np.maximum(self.start, first), np.minimum(self.stop, last)
        kept = stop > start
        columns = (start, stop, *self._columns()[2:])
        return _Stretches(*(column[kept] for column in columns))

    def named(self, cpus: list[int], threads: list[Thread], frames: list[str], line: _Line) -> Slices:
        lines = self.start // line.stride
        offset = line.origin - lines * line.stride
        return Slices(
            cpus,
            threads,
            frames,
            lines,
            self.start + offset,
            self.stop + offset,
            self.states,
            self.thread,
            self.frame,
            self.samples,
        )

    def _columns(self) -> tuple[Ints, ...]:
        return self.start, self.stop, self.states, self.thread, self.frame, self.samples


def _threads(samples: SampleTable) -> tuple[list[Thread], Ints]:
    tasks, task = unique_inverse(samples.pids << 32 | samples.tids)
    names = max(1, len(samples.comms))
    pairs, thread = unique_inverse(task * names + samples.comm_index)
    both = tasks[pairs // names]
    columns = (both >> 32).tolist(), (both & 0xFFFFFFFF).tolist(), (pairs % names).tolist()
    return [Thread(pid, tid, samples.comms[comm]) for pid, tid, comm in zip(*columns, strict=True)], thread


def _frames(samples: SampleTable) -> tuple[list[str], Ints]:
    """The function that each sample was in: the innermost frame of its stack."""
    leaf = samples.stack_frames[samples.stack_offsets[1:] - 1]
    used, index = unique_inverse(leaf[samples.stack_index])
    return [samples.frames.names[each] for each in used.tolist()], index


def _states(samples: SampleTable) -> Ints:
    stacks = ResolvedStacks(samples.frames, samples.stack_offsets, samples.stack_frames, samples.unknown)
    found = np.full(len(samples.stacks), _UNKNOWN, np.int64)
    for number, state in enumerate(SAMPLED_STATES):
        found[stacks.in_state(state)] = number
    states: Ints = found[samples.stack_index]
    return states
