"""Samples of a window: summed by command and stack, for flame graphs, or one by one, for questions of when and where
that sums can't answer.

The sums have to be fast, so that path decodes only the row groups and columns that it needs, and works on numbers
(stack hashes, dictionary codes) until the names of the few remaining frames are needed.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import MILLIS, Window
from exhume.model.errors import UsageError
from exhume.store.format.names import SegmentName
from exhume.store.format.schema import UnreadableFile
from exhume.store.read.index import Segment
from exhume.store.read.progress import reader_threads, track
from exhume.store.read.reader import Noter, Request, read_available
from exhume.store.read.stacks import (
    FrameTable,
    Ids,
    Ints,
    ResolvedStacks,
    StackCache,
    StackNames,
    factorize,
    unique_inverse,
)

# At this many segments it pays to read them in parallel; and how many are read ahead of the summing.
_MANY = 8
_AHEAD = 4
# (command, stacks, index into stacks, count, weight), each pair of command and stack once.
_Sum = tuple[Ints, Ids, Ints, Ints, Ints]
# Rows that are collected before equal ones are summed, so that memory grows with the distinct stacks, not the time.
_FOLD_ROWS = 500_000


@dataclass(frozen=True, slots=True)
class ProfileFilter:
    """Selects samples. `stack_regex` is searched for in the names of a stack's frames, `frame` (kind, module, name)
    must be one of them, `leaf` (kernel or user) is where the sample was taken, and `state` the state of the core (one
    of SAMPLED_STATES). `container` and `pod` match a prefix of the id or name of the process's container and pod, a
    pod's name with or without its namespace. Docker's container names are not stored with processes, so
    `container_ids` lists further ids that such a name refers to."""

    cpus: Collection[int] | None = None
    comm: str | None = None
    pid: int | None = None
    stack_regex: str | None = None
    container: str | None = None
    pod: str | None = None
    leaf: str | None = None
    frame: tuple[str, str, str] | None = None
    state: str | None = None
    container_ids: tuple[str, ...] = ()

    @property
    def by_process(self) -> bool:
        return self.pid is not None or self.container is not None or self.pod is not None

    @property
    def by_stack(self) -> bool:
        return any(each is not None for each in (self.stack_regex, self.leaf, self.frame, self.state))

    @property
    def looks_at_samples(self) -> bool:
        """Whether anything but the core decides: then every sample has to be examined."""
        return self.by_process or self.by_stack or self.comm is not None

    @property
    def stack_key(self) -> tuple[str | None, str | None, tuple[str, str, str] | None, str | None]:
        """The criteria that `keeps` applies."""
        return self.stack_regex, self.leaf, self.frame, self.state

    def keeps(self, stacks: ResolvedStacks) -> npt.NDArray[np.bool_]:
        """Whether each stack is selected. Raises UsageError for an invalid regular expression."""
        kept = np.ones(len(stacks.offsets) - 1, np.bool_)
        if self.stack_regex is not None:
            kept &= stacks.matching(check_stack_regex(self.stack_regex))
        if self.leaf is not None:
            kept &= stacks.taken_in(("kernel",) if self.leaf == "kernel" else ("user", "jit"))
        if self.frame is not None:
            kept &= stacks.holding(self.frame)
        if self.state is not None:
            kept &= stacks.in_state(self.state)
        return kept


# A column of samples that is derived from their stacks: whether the sample was taken in kernel code.
IN_KERNEL = "in_kernel"
_LEAF_IN_KERNEL = ProfileFilter(leaf="kernel")


@dataclass(frozen=True, slots=True)
class StackProfile:
    """Sums by command and stack. Row i means: `counts[i]` samples, representing `weights_us[i]` microseconds of CPU, of
    `comms[comm_index[i]]` in `stacks[stack_index[i]]`."""

    comms: list[str]
    frames: FrameTable
    stack_offsets: Ints
    stack_frames: Ints
    comm_index: Ints
    stack_index: Ints
    counts: Ints
    weights_us: Ints
    blind_spots: list[str] = field(default_factory=list)

    @property
    def stacks(self) -> list[Ints]:
        """The frames of each stack, root first, as indexes into `frames`."""
        bounds = self.stack_offsets.tolist()
        return [self.stack_frames[a:b] for a, b in pairwise(bounds)]

    @property
    def samples(self) -> int:
        return int(self.counts.sum())

    @property
    def weight_us(self) -> int:
        return int(self.weights_us.sum())


def build_profile(
    segments: list[Segment], window: Window, wanted: ProfileFilter, note: Noter, cache: StackCache | None = None
) -> StackProfile:
    """Sum the samples of the window. Files that can't be read are noted and reported as blind spots."""
    sums = _Sums()
    names = StackNames() if cache is None else cache.names()
    blind: list[str] = []
    readings = [_Reading(segment, window, note, blind) for segment in segments]
    for reading, part in zip(track(readings), _parts(readings, wanted), strict=True):
        if part is not None:
            names.add(sums.add(part), reading.table)
        losses = reading.table("losses")
        rows = [] if losses is None else losses.to_pylist()
        blind += [loss_text(row["source"], row["count"], row["kind"], row["cpu"], row["text"]) for row in rows]
    comm, stacks, stack_index, counts, weights = sums.total()
    resolved = names.resolve(stacks)
    if wanted.by_stack:
        keep = wanted.keeps(resolved)[stack_index]
        comm, stack_index, counts, weights = comm[keep], stack_index[keep], counts[keep], weights[keep]
    if resolved.unknown:
        blind.append(f"{resolved.unknown} stacks are unknown: the recorder was stopped before it wrote them")
    return StackProfile(
        sums.comms, resolved.frames, resolved.offsets, resolved.indexes, comm, stack_index, counts, weights, blind
    )


def loss_text(source: str, count: int, kind: str, cpu: int | None, text: str) -> str:
    """Describe a loss as a blind spot."""
    where = "" if cpu is None else f" on core {cpu}"
    return f"{source}: {count} {kind}{where}: {text}"


def _parts(readings: "list[_Reading]", wanted: ProfileFilter) -> "Iterator[_Part | None]":
    """The sums of each segment; many segments are read by threads."""
    if len(readings) < _MANY:
        yield from (_part(reading, wanted) for reading in readings)
        return
    with reader_threads() as threads:
        # A few at a time: the pending sums of thousands of segments would take gigabytes.
        coming = deque(threads.submit(_part, reading, wanted) for reading in readings[:_AHEAD])
        for reading in [*readings[_AHEAD:], *[None] * len(coming)]:
            yield coming.popleft().result()
            if reading is not None:
                coming.append(threads.submit(_part, reading, wanted))


def _part(reading: "_Reading", wanted: ProfileFilter) -> "_Part | None":
    columns = ["comm", "stack", "weight_us", *(["pid"] if wanted.by_process else [])]
    rows = reading.table("samples", columns, wanted.cpus, dictionaries=["comm"])
    return None if rows is None else _Part.of(select_rows(rows, wanted, reading.table))


@dataclass(frozen=True, slots=True)
class _Reading:
    """One segment, read table by table for one window."""

    segment: Segment
    window: Window
    note: Noter
    blind: list[str] = field(default_factory=list)

    def table(
        self,
        table: str,
        columns: list[str] | None = None,
        cpus: Collection[int] | None = None,
        dictionaries: Sequence[str] = (),
    ) -> pa.Table | None:
        """The rows of a table that can be read."""
        return read_available(self.segment, Request(table, self.window, columns, cpus, dictionaries), self._note)

    def _note(self, segment: Segment, table: str, error: UnreadableFile) -> None:
        self.note(segment, table, error)
        self.blind.append(f"{segment.file(table)} was not read: {error}")


def select_rows(rows: pa.Table, wanted: ProfileFilter, read: Callable[[str, list[str]], pa.Table | None]) -> pa.Table:
    """Filter the samples of a segment by process; `read` returns other tables of that segment."""
    if wanted.pid is not None:
        rows = rows.filter(pc.equal(rows.column("pid"), wanted.pid))
    if wanted.comm is not None:
        names, values = factorize(rows.column("comm"))
        rows = rows.filter(pa.array(np.isin(values.to_numpy(zero_copy_only=False), [wanted.comm])[names]))
    for column, prefix, ids in (("container", wanted.container, wanted.container_ids), ("pod", wanted.pod, ())):
        if prefix is not None:
            processes = read("processes", ["pid", column, f"{column}_name"])
            pids = pa.array([], pa.int32())
            if processes is not None:
                named = _ids_named(processes, column, prefix)
                members = processes.filter(meant_by(processes.column(column), prefix, {*ids, *named}))
                pids = members.column("pid").combine_chunks()
            rows = rows.filter(pc.is_in(rows.column("pid"), value_set=pids))
    return rows


def _ids_named(processes: pa.Table, column: str, prefix: str) -> list[str]:
    """The ids of the pods or containers whose name begins with the prefix, with or without its namespace. A name may
    have been recorded for one of their processes and not yet for another."""
    names = processes.column(f"{column}_name")
    fits = pc.or_(pc.starts_with(names, prefix), pc.match_substring(names, f"/{prefix}"))
    found: list[str] = pc.unique(processes.filter(fits).column(column)).drop_null().to_pylist()
    return found


def meant_by(column: pa.ChunkedArray, prefix: str, ids: Collection[str]) -> pa.ChunkedArray:
    """Which ids in the column begin with the prefix or are among `ids`."""
    return pc.or_(pc.starts_with(column, prefix), pc.is_in(column, pa.array(sorted(ids), column.type)))


@dataclass(frozen=True, slots=True)
class _Part:
    """One segment's samples by (command, stack); both are indexes, into `comms` and `stacks`."""

    comms: list[str]
    stacks: Ids
    comm: Ints
    stack: Ints
    counts: Ints
    weights_us: Ints

    @classmethod
    def of(cls, rows: pa.Table) -> "_Part":
        comm_codes, comm_values = factorize(rows.column("comm"))
        stack_codes, stack_values = factorize(rows.column("stack"))
        stacks: Ids = stack_values.to_numpy()
        if rows.num_rows == 0:
            nothing = np.zeros(0, np.int64)
            return cls([], stacks, nothing, nothing, nothing, nothing)
        pairs, members = unique_inverse(comm_codes * len(stacks) + stack_codes)
        counts = np.bincount(members, minlength=len(pairs))
        weights = np.bincount(members, rows.column("weight_us").to_numpy(), len(pairs)).astype(np.int64)
        return cls(comm_values.to_pylist(), stacks, pairs // len(stacks), pairs % len(stacks), counts, weights)


class _Sums:
    """Counts and weights by (command, stack), segment after segment."""

    def __init__(self) -> None:
        self._comms: dict[str, int] = {}
        self._parts: list[_Sum] = []
        self._rows = 0
        self._fold_at = _FOLD_ROWS

    def add(self, part: _Part) -> Ids:
        """Add a segment and return the stacks that occur in it."""
        if len(part.comm):
            known = np.array([self._comms.setdefault(name, len(self._comms)) for name in part.comms])
            self._parts.append((known[part.comm], part.stacks, part.stack, part.counts, part.weights_us))
            self._rows += len(part.comm)
            if self._rows > self._fold_at:
                self._parts = [self.total()]
                self._rows = len(self._parts[0][0])
                self._fold_at = max(_FOLD_ROWS, 2 * self._rows)
        return part.stacks

    @property
    def comms(self) -> list[str]:
        return list(self._comms)

    def total(self) -> _Sum:
        """The sum of all segments."""
        if not self._parts:
            nothing = np.zeros(0, np.int64)
            return nothing, np.zeros(0, np.uint64), nothing, nothing, nothing
        if len(self._parts) == 1:
            return self._parts[0]
        comm, count, weight = (np.concatenate([part[place] for part in self._parts]) for place in (0, 3, 4))
        stacks, stack_index = unique_inverse(np.concatenate([part[1][part[2]] for part in self._parts]))
        pairs, members = unique_inverse(comm * len(stacks) + stack_index)
        return (
            pairs // len(stacks),
            stacks,
            pairs % len(stacks),
            np.bincount(members, count).astype(np.int64),
            np.bincount(members, weight).astype(np.int64),
        )


def filter_samples(  # noqa: PLR0917
    segments: Sequence[Segment],
    window: Window,
    wanted: ProfileFilter,
    columns: Sequence[str],
    note: Noter,
    cache: StackCache | None = None,
) -> Iterator[tuple[SegmentName, pa.Table]]:
    """The selected samples of the window, with these columns and `time_ms`, segment by segment. The column IN_KERNEL is
    derived from their stacks."""
    cache = cache or StackCache()
    split = IN_KERNEL in columns
    decisive = (("comm", wanted.comm is not None), ("pid", wanted.by_process), ("stack", wanted.by_stack or split))
    stored = [column for column in columns if column != IN_KERNEL]
    needed = list(dict.fromkeys(("time_ms", *stored, *(column for column, decides in decisive if decides))))
    for segment in track(segments):
        reading = _Reading(segment, window, note)
        texts = [column for column in needed if column == "comm"]
        rows = reading.table("samples", needed, wanted.cpus, texts)
        rows = None if rows is None else select_rows(rows, wanted, reading.table)
        if rows is not None and wanted.by_stack and rows.num_rows:
            rows = rows.filter(_counting(rows, wanted, reading, cache))
        if rows is None or not rows.num_rows:
            continue
        if split:
            rows = rows.append_column(IN_KERNEL, _counting(rows, _LEAF_IN_KERNEL, reading, cache))
        yield segment.name, rows


def _counting(rows: pa.Table, wanted: ProfileFilter, reading: _Reading, cache: StackCache) -> pa.Array:
    """For each sample, whether its stack is selected."""
    places, stacks = factorize(rows.column("stack"))
    passed = pc.is_in(stacks, value_set=_passing(stacks, wanted, reading, cache))
    return pa.array(passed.to_numpy(zero_copy_only=False)[places])


def _passing(stacks: pa.Array, wanted: ProfileFilter, reading: _Reading, cache: StackCache) -> pa.Array:
    """The stacks that pass the filter, including all of those given here that do. A hash always stands for the same
    stack, so each one is evaluated only once."""
    judged, passed = cache.filtered(wanted.stack_key)
    new = stacks.filter(pc.invert(pc.is_in(stacks, value_set=judged)))
    if not len(new):
        return passed
    names = cache.names()
    names.add(new.to_numpy(), reading.table)
    resolved = names.resolve(new.to_numpy())
    more = new.filter(pa.array(wanted.keeps(resolved)))
    # Another segment may have the names that are unknown here.
    if names.complete and not resolved.unknown:
        cache.add_filtered(wanted.stack_key, new, more)
    return pa.concat_arrays([passed, more])


@dataclass(frozen=True, slots=True)
class SampleTable:
    """Single samples in time order: sample i was taken at `walls[i]` (nanoseconds) on core `cpus[i]`, while thread
    `tids[i]` of process `pids[i]`, named `comms[comm_index[i]]`, ran `stacks[stack_index[i]]`; it represents
    `weights_us[i]` of CPU time. Frames are stored as in a StackProfile."""

    walls: Ints
    cpus: Ints
    pids: Ints
    tids: Ints
    comms: list[str]
    comm_index: Ints
    weights_us: Ints
    stacks: Ids
    stack_index: Ints
    frames: FrameTable
    stack_offsets: Ints
    stack_frames: Ints
    unknown: int = 0

    def __len__(self) -> int:
        return len(self.walls)

    def stack(self, index: int) -> Ints:
        """The frames of a stack, root first, as indexes into `frames`."""
        return self.stack_frames[self.stack_offsets[index] : self.stack_offsets[index + 1]]


def build_sample_table(  # noqa: PLR0917
    segments: Sequence[Segment],
    window: Window,
    wanted: ProfileFilter,
    note: Noter,
    cache: StackCache | None = None,
    most: int | None = None,
) -> SampleTable:
    """Read the samples of the window one by one, with the names of their frames. Raises UsageError if there are more
    than `most`."""
    names = StackNames() if cache is None else cache.names()
    count = 0
    parts: list[tuple[Ints, ...]] = [(np.zeros(0, np.int64),) * 6]
    stacks = [np.zeros(0, np.uint64)]
    known: dict[str, int] = {}
    columns = ["cpu", "pid", "tid", "comm", "stack", "weight_us"]
    for segment in segments:
        for name, rows in filter_samples([segment], window, wanted, columns, note, cache):
            count += rows.num_rows
            if most is not None and count > most:
                raise UsageError(f"more than {most:,} samples match; narrow the window, or choose cores or processes")
            codes, values = factorize(rows.column("comm"))
            here = np.array([known.setdefault(comm, len(known)) for comm in values.to_pylist()], np.int64)
            numbers = [rows.column(each).to_numpy().astype(np.int64) for each in ("cpu", "pid", "tid", "weight_us")]
            walls = rows.column("time_ms").to_numpy() * MILLIS + name.offset
            parts.append((walls, *numbers, here[codes]))
            stacks.append(rows.column("stack").to_numpy())
            names.add(np.unique(stacks[-1]), _Reading(segment, window, note).table)
    columns_of_all = (np.concatenate(column) for column in zip(*parts, strict=True))
    walls, cpus, pids, tids, weights, comm_index = columns_of_all
    # Inside a segment, samples are sorted by thread.
    order = np.lexsort((cpus, walls))
    distinct, stack_index = unique_inverse(np.concatenate(stacks)[order])
    resolved = names.resolve(distinct)
    return SampleTable(
        walls[order],
        cpus[order],
        pids[order],
        tids[order],
        list(known),
        comm_index[order],
        weights[order],
        distinct,
        stack_index,
        resolved.frames,
        resolved.offsets,
        resolved.indexes,
        resolved.unknown,
    )


@dataclass(frozen=True, slots=True)
class Moments:
    """When (wall nanoseconds) and on which core samples were taken, and the CPU time that each represents."""

    walls: Ints
    cpus: Ints
    weights_us: Ints


def moments_of_samples(found: Iterable[tuple[SegmentName, pa.Table]]) -> Moments:
    """Convert the samples of segments, which must have `cpu` and `weight_us`, to arrays."""
    parts = [(np.zeros(0, np.int64),) * 3]
    for name, rows in found:
        times, cpus, weights = (rows.column(column).to_numpy() for column in ("time_ms", "cpu", "weight_us"))
        parts.append((times * MILLIS + name.offset, cpus.astype(np.int64), weights.astype(np.int64)))
    return Moments(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def check_stack_regex(text: str) -> str:
    """Validate an RE2 regular expression and return it. RE2 runs in time linear in the length of a name, so that no
    expression can keep a server busy. Raises UsageError if it is invalid."""
    try:
        pc.match_substring_regex(pa.array([""]), text)
    except pa.ArrowInvalid as error:
        # RE2 reports the problem, then the place: "missing ): (".
        why, _, where = str(error).removeprefix("Invalid regular expression: ").rpartition(": ")
        problem = f"{why} in {where!r}" if why else where
        raise UsageError(
            f"{text!r} is not a regular expression: {problem}; put \\ before what is meant literally"
        ) from None
    return text
