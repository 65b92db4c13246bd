"""The samples of a window, summed by command and stack: what a flame graph is drawn from.

This is the path that has to be quick, so it decodes only the row groups and columns that it needs, and works on
numbers (stack hashes, dictionary codes) until the names of the few frames that are left are wanted.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import Window
from exhume.model.errors import UsageError
from exhume.store.format.schema import UnreadableFile
from exhume.store.read.index import Segment
from exhume.store.read.progress import reader_threads, track
from exhume.store.read.reader import Request, read_segment
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

# Segments from which on it pays to read them side by side, and how many are read before they are summed.
_MANY = 8
_AHEAD = 4
# Rows of segments that are kept before equal ones are summed: memory follows the distinct stacks, not the time.
_FOLD_ROWS = 500_000

Noter = Callable[[Segment, str, UnreadableFile], None]


@dataclass(frozen=True, slots=True)
class ProfileFilter:
    """Which samples count. `stack_regex` is searched in the names of a stack's frames, `frame` (kind, module, name) has
    to be one of them, `leaf` (kernel or user) is where the sample was taken, and `state` what the core was in (one of
    SAMPLED_STATES); `container` and `pod` match the beginning of the id or of the name of the process's container and
    pod, a pod's with or without its namespace. Names that Docker gave are not with the processes: `container_ids` are
    those that are meant by one, too."""

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
        """Whether anything but the core decides: then every sample has to be looked at."""
        return self.by_process or self.by_stack or self.comm is not None

    @property
    def stack_key(self) -> tuple[str | None, str | None, tuple[str, str, str] | None, str | None]:
        """What `keeps` goes by."""
        return self.stack_regex, self.leaf, self.frame, self.state

    def keeps(self, stacks: ResolvedStacks) -> npt.NDArray[np.bool_]:
        """For each stack, whether it counts. Raises UsageError for what is not a regular expression."""
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


@dataclass(frozen=True, slots=True)
class StackProfile:
    """Sums by command and stack. Row i says: `counts[i]` samples, standing for `weights_us[i]` microseconds of CPU, of
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
        """The frames of each stack, as indexes into `frames`, root first."""
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
    """Sum the samples of the window. Files that can't be read are noted, and their absence is a blind spot."""
    sums = _Sums()
    names = StackNames() if cache is None else cache.names()
    blind: list[str] = []
    readings = [_Reading(segment, window, note, blind) for segment in segments]
    for reading, part in zip(track(readings), _parts(readings, wanted), strict=True):
        if part is not None:
            names.add(sums.add(part), reading.table)
        blind.extend(_losses(reading))
    return _finish(sums, names, wanted, blind)


def _parts(readings: "list[_Reading]", wanted: ProfileFilter) -> "Iterator[_Part | None]":
    """The sums of each segment; many segments are read by threads."""
    if len(readings) < _MANY:
        yield from (_part(reading, wanted) for reading in readings)
        return
    with reader_threads() as threads:
        # A few at a time: sums of thousands of segments that wait for their names would take gigabytes.
        coming = deque(threads.submit(_part, reading, wanted) for reading in readings[:_AHEAD])
        for reading in [*readings[_AHEAD:], *[None] * len(coming)]:
            yield coming.popleft().result()
            if reading is not None:
                coming.append(threads.submit(_part, reading, wanted))


def _part(reading: "_Reading", wanted: ProfileFilter) -> "_Part | None":
    rows = reading.table("samples", _columns_for(wanted), wanted.cpus, dictionaries=["comm"])
    return None if rows is None else _Part.of(select_rows(rows, wanted, reading.table))


@dataclass(frozen=True, slots=True)
class _Reading:
    """One segment, read table by table for one window."""

    segment: Segment
    window: Window
    note: Noter
    blind: list[str]

    def table(
        self,
        table: str,
        columns: list[str] | None = None,
        cpus: Collection[int] | None = None,
        dictionaries: Sequence[str] = (),
    ) -> pa.Table | None:
        try:
            return read_segment(self.segment, Request(table, self.window, columns, cpus, dictionaries))
        except UnreadableFile as error:
            self.note(self.segment, table, error)
            self.blind.append(f"{self.segment.file(table)} was not read: {error}")
            return error.rows


def _columns_for(wanted: ProfileFilter) -> list[str]:
    return ["comm", "stack", "weight_us", *(["pid"] if wanted.by_process else [])]


def select_rows(rows: pa.Table, wanted: ProfileFilter, read: Callable[[str, list[str]], pa.Table | None]) -> pa.Table:
    """The samples of a segment that count by process; `read` gives other tables of that segment."""
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
    """The ids of the pods or containers whose name begins like that, the namespace left out or not. A name may have
    been recorded for one of their processes and not yet for another."""
    names = processes.column(f"{column}_name")
    fits = pc.or_(pc.starts_with(names, prefix), pc.match_substring(names, f"/{prefix}"))
    found: list[str] = pc.unique(processes.filter(fits).column(column)).drop_null().to_pylist()
    return found


def meant_by(column: pa.ChunkedArray, prefix: str, ids: Collection[str]) -> pa.ChunkedArray:
    """Which of these ids begin like that, or are among some."""
    return pc.or_(pc.starts_with(column, prefix), pc.is_in(column, pa.array(sorted(ids), column.type)))


def _losses(reading: _Reading) -> list[str]:
    """What was not sampled in this segment's part of the window, as text."""
    said = []
    losses = reading.table("losses")
    if losses is not None:
        for row in losses.to_pylist():
            where = "" if row["cpu"] is None else f" on core {row['cpu']}"
            said.append(f"{row['source']}: {row['count']} {row['kind']}{where}: {row['text']}")
    return said


@dataclass(frozen=True, slots=True)
class _Part:
    """One segment's samples by (command, stack): commands and stacks by their place in `comms` and `stacks`."""

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
        self._parts: list[tuple[Ints, Ids, Ints, Ints]] = []
        self._rows = 0
        self._fold_at = _FOLD_ROWS

    def add(self, part: _Part) -> Ids:
        """Add a segment; returns the stacks that it shows."""
        if len(part.comm):
            known = np.array([self._comms.setdefault(name, len(self._comms)) for name in part.comms])
            self._parts.append((known[part.comm], part.stacks[part.stack], part.counts, part.weights_us))
            self._rows += len(part.comm)
            if self._rows > self._fold_at:
                comm, stacks, index, counts, weights = self.total()
                self._parts = [(comm, stacks[index], counts, weights)]
                self._rows = len(comm)
                self._fold_at = max(_FOLD_ROWS, 2 * self._rows)
        return part.stacks

    @property
    def comms(self) -> list[str]:
        return list(self._comms)

    def total(self) -> tuple[Ints, Ids, Ints, Ints, Ints]:
        """(command, stacks, index into stacks, count, weight), each pair of command and stack once."""
        if not self._parts:
            nothing = np.zeros(0, np.int64)
            return nothing, np.zeros(0, np.uint64), nothing, nothing, nothing
        comm, stack, count, weight = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        stacks, stack_index = unique_inverse(stack)
        pairs, members = unique_inverse(comm * len(stacks) + stack_index)
        return (
            pairs // len(stacks),
            stacks,
            pairs % len(stacks),
            np.bincount(members, count).astype(np.int64),
            np.bincount(members, weight).astype(np.int64),
        )


def _finish(sums: _Sums, names: StackNames, wanted: ProfileFilter, blind: list[str]) -> StackProfile:
    comm, stacks, stack_index, counts, weights = sums.total()
    resolved = names.resolve(stacks)
    if wanted.by_stack:
        keep = wanted.keeps(resolved)[stack_index]
        comm, stack_index, counts, weights = comm[keep], stack_index[keep], counts[keep], weights[keep]
    if resolved.unknown:
        blind = [*blind, f"{resolved.unknown} stacks are unknown: the recorder was stopped before it wrote them"]
    return StackProfile(
        sums.comms, resolved.frames, resolved.offsets, resolved.indexes, comm, stack_index, counts, weights, blind
    )


def check_stack_regex(text: str) -> str:
    """The same text, if it is a regular expression of RE2: those take time by the length of a name and no more, so that
    no expression can keep a server busy. Raises UsageError where it is none."""
    try:
        pc.match_substring_regex(pa.array([""]), text)
    except pa.ArrowInvalid as error:
        # RE2 reports what is wrong, then where: "missing ): (".
        why, _, where = str(error).removeprefix("Invalid regular expression: ").rpartition(": ")
        problem = f"{why} in {where!r}" if why else where
        raise UsageError(
            f"{text!r} is not a regular expression: {problem}; put \\ before what is meant literally"
        ) from None
    return text
