"""Stacks by hash: grouping rows by stack, and resolving the names of frames, which every segment repeats."""

import threading
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.store.format.schema import schema_of

Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint64]
_Key = TypeVar("_Key", np.int64, np.uint64)

UNKNOWN_FRAME = "[unknown]"
# Everything below one of these frames runs as softirq or interrupt work, whichever process was interrupted.
SOFTIRQ_ENTRIES = frozenset({"__do_softirq", "handle_softirqs", "do_softirq", "run_ksoftirqd", "irq_exit_rcu"})
# Core states that stacks reveal. There are no samples while a core is in iowait, idle or taken by the hypervisor.
SAMPLED_STATES = ("user", "system", "softirq")

# This many stacks take some 60 MB.
_MAX_CACHED_STACKS = 200_000
_MAX_CACHED_FILTERS = 8
_UNKNOWN = ("", "", UNKNOWN_FRAME)
_NO_STACKS = pa.array([], pa.uint64())
_NO_FRAMES = schema_of("frames").empty_table()


def factorize(column: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """The column as indexes into its distinct values, and those values."""
    encoded = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = encoded.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], column.type).dictionary_encode()
    return whole.indices.to_numpy(zero_copy_only=False).astype(np.int64), whole.dictionary


def unique_inverse(keys: npt.NDArray[_Key]) -> tuple[npt.NDArray[_Key], Ints]:
    """The distinct keys, and each key as an index into them, like numpy.unique with return_inverse, but faster, by
    hashing instead of sorting. The order is that of first occurrence."""
    encoded = pa.array(keys).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy().astype(np.int64)


def concat_ranges(starts: Ints, lengths: Ints) -> Ints:
    """The concatenation of arange(start, start + length) for each pair."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Ints = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return numbers


@dataclass(frozen=True, slots=True)
class FrameTable:
    """Distinct frames, stored column by column."""

    kinds: list[str]
    modules: list[str]
    names: list[str]


@dataclass(frozen=True, slots=True)
class ResolvedStacks:
    """Stack i consists of the frames `indexes[offsets[i]:offsets[i + 1]]`, root first."""

    frames: FrameTable
    offsets: Ints
    indexes: Ints
    unknown: int

    def matching(self, pattern: str) -> npt.NDArray[np.bool_]:
        """For each stack, whether the RE2 pattern matches the name of one of its frames."""
        found = pc.match_substring_regex(pa.array(self.frames.names, pa.string()), pattern)
        return self._with_any(found.to_numpy(zero_copy_only=False).astype(np.int64))

    def holding(self, frame: tuple[str, str, str]) -> npt.NDArray[np.bool_]:
        """For each stack, whether it contains this frame (kind, module, name)."""
        every = zip(self.frames.kinds, self.frames.modules, self.frames.names, strict=True)
        return self._with_any(np.array([each == frame for each in every], np.int64))

    def taken_in(self, kinds: Collection[str]) -> npt.NDArray[np.bool_]:
        """For each stack, whether its leaf frame is of one of these kinds."""
        of_kind = np.array([kind in kinds for kind in self.frames.kinds], np.bool_)
        found = np.zeros(len(self.offsets) - 1, np.bool_)
        filled = self.offsets[1:] > self.offsets[:-1]
        found[filled] = of_kind[self.indexes[self.offsets[1:][filled] - 1]]
        return found

    def in_state(self, state: str) -> npt.NDArray[np.bool_]:
        """For each stack, whether the core was in the given state, one of SAMPLED_STATES."""
        if state == "user":
            return self.taken_in(("user", "jit"))
        frames = zip(self.frames.kinds, self.frames.names, strict=True)
        entries = [kind == "kernel" and name in SOFTIRQ_ENTRIES for kind, name in frames]
        in_softirq = self._with_any(np.array(entries, np.int64))
        return self.taken_in(("kernel",)) & (in_softirq if state == "softirq" else ~in_softirq)

    def _with_any(self, hits: Ints) -> npt.NDArray[np.bool_]:
        running = np.concatenate(([0], np.cumsum(hits[self.indexes])))
        return (running[self.offsets[1:]] - running[self.offsets[:-1]]) > 0


class StackNames:
    """Stacks and the names of their frames, collected from the tables of segments; a hash stands for the same stack in
    all of them. With `whole_segments`, every stack of a segment that is read is added, not only the requested ones:
    for names that are cached for other queries. Thread-safe."""

    def __init__(self, *, whole_segments: bool = False) -> None:
        self._whole_segments = whole_segments
        self._lock = threading.Lock()
        self._stacks = np.zeros(0, np.uint64)
        # The same stacks in ascending order, and the position of each, as of the last lookup.
        self._ascending, self._order = self._stacks, np.zeros(0, np.int32)
        # 32-bit, because tens of thousands of stacks are held and have 26 frames each. -1 is an unknown frame.
        self._lengths = self._indexes = np.zeros(0, np.int32)
        self._frame_ids = _NO_STACKS
        self._columns: tuple[list[str], ...] = ([], [], [])
        # False once a segment lacked a frame of its own stacks: another segment may have it.
        self.complete = True

    def __len__(self) -> int:
        return len(self._stacks)

    def add(self, stacks: Ids, read: Callable[[str], pa.Table | None]) -> None:
        """Add the stacks that are not known yet from a segment's tables."""
        missing = self._missing(stacks)
        table = read("stacks") if len(missing) else None
        if table is None:
            return
        here = table.column("stack")
        if self._whole_segments:
            new = pa.array(self._places(here.to_numpy()) < 0)
        else:
            new = pc.is_in(here, value_set=pa.array(missing))
        found = table.filter(new)
        if not found.num_rows:
            return
        frames = read("frames")
        # Another thread may have added some in the meantime: those are then present twice, and the first one counts.
        with self._lock:
            self._learn(found, _NO_FRAMES if frames is None else frames)

    def _missing(self, stacks: Ids) -> Ids:
        return stacks[self._places(stacks) < 0]

    def _places(self, stacks: Ids) -> Ints:
        """The position of each of these stacks among all known ones, -1 if it is unknown."""
        if not len(self._stacks):
            return np.full(len(stacks), -1, np.int64)
        with self._lock:
            if len(self._order) != len(self._stacks):
                # A stable sort, so that the first of duplicate stacks is found.
                self._order = np.argsort(self._stacks, kind="stable").astype(np.int32)
                self._ascending = self._stacks[self._order]
            ascending, order = self._ascending, self._order
        at = np.minimum(np.searchsorted(ascending, stacks), len(ascending) - 1)
        return np.where(ascending[at] == stacks, order[at].astype(np.int64), -1)

    def _learn(self, stacks: pa.Table, frames: pa.Table) -> None:
        lists = stacks.column("frames").combine_chunks()
        ids = frames.column("frame").combine_chunks()
        at = pc.fill_null(pc.index_in(lists.flatten(), value_set=ids), len(ids)).to_numpy()
        used = np.flatnonzero(np.bincount(at, minlength=len(ids) + 1)[:-1])
        self.complete &= not np.any(at == len(ids))
        here = ids.take(pa.array(used))
        fresh = pc.invert(pc.is_in(here, value_set=self._frame_ids))
        new = pa.array(used).filter(fresh)
        for column, name in zip(self._columns, ("kind", "module", "name"), strict=True):
            column.extend(frames.column(name).take(new).to_pylist())
        self._frame_ids = pa.concat_arrays([self._frame_ids, here.filter(fresh)])
        places = np.full(len(ids) + 1, -1, np.int32)
        places[used] = pc.index_in(here, value_set=self._frame_ids).to_numpy()
        lengths = pc.list_value_length(lists).to_numpy().astype(np.int32, copy=False)
        self._stacks = np.concatenate([self._stacks, stacks.column("stack").to_numpy()])
        self._lengths = np.concatenate([self._lengths, lengths])
        self._indexes = np.concatenate([self._indexes, places[at]])

    def resolve(self, stacks: Ids) -> ResolvedStacks:
        """Resolve distinct stacks to named frames; an unknown stack becomes a single unknown frame."""
        place = self._places(stacks)
        known = place >= 0
        rows = place[known]
        with self._lock:
            all_stacks, all_lengths, all_indexes = self._stacks, self._lengths, self._indexes
            frames = len(self._frame_ids)
        lengths = np.ones(len(stacks), np.int64)
        lengths[known] = all_lengths[rows]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        starts = np.cumsum(all_lengths, dtype=np.int64) - all_lengths
        members = all_indexes[concat_ranges(starts[rows], lengths[known])].astype(np.int64)
        named = members >= 0
        # If all known stacks are requested, so are all frames. Another thread may append frames in the meantime.
        if len(rows) < len(all_stacks):
            used, members[named] = unique_inverse(members[named])
            columns = [[column[index] for index in used.tolist()] for column in self._columns]
        else:
            columns = [column[:frames] for column in self._columns]
        members[~named] = len(columns[0])
        indexes = np.full(int(offsets[-1]), len(columns[0]), np.int64)
        indexes[concat_ranges(offsets[:-1][known], lengths[known])] = members
        unknown = int(len(stacks) - known.sum())
        if unknown or not named.all():
            columns = [[*column, text] for column, text in zip(columns, _UNKNOWN, strict=True)]
        return ResolvedStacks(FrameTable(*columns), offsets, indexes, unknown)


class StackCache:
    """Names and filtered stacks, cached up to a limit for other queries: a node runs the same code for hours."""

    def __init__(self) -> None:
        self._names = StackNames(whole_segments=True)
        self._filtered: dict[Hashable, tuple[pa.Array, pa.Array]] = {}

    def names(self) -> StackNames:
        """Names for one query: the cached ones, or new empty ones if those grew too large or are incomplete. Queries
        that hold the old ones may keep using them."""
        if len(self._names) > _MAX_CACHED_STACKS or not self._names.complete:
            self._names = StackNames(whole_segments=True)
        return self._names

    def filtered(self, key: Hashable) -> tuple[pa.Array, pa.Array]:
        """The stacks that a filter was applied to, and those of them that passed."""
        return self._filtered.get(key, (_NO_STACKS, _NO_STACKS))

    def add_filtered(self, key: Hashable, stacks: pa.Array, passed: pa.Array) -> None:
        """Add stacks that the filter was applied to, and those of them that passed."""
        known = self._filtered.pop(key, (_NO_STACKS, _NO_STACKS))
        if len(known[0]) > _MAX_CACHED_STACKS:
            known = (_NO_STACKS, _NO_STACKS)
        self._filtered[key] = (pa.concat_arrays([known[0], stacks]), pa.concat_arrays([known[1], passed]))
        while len(self._filtered) > _MAX_CACHED_FILTERS:
            self._filtered.pop(next(iter(self._filtered)), None)
