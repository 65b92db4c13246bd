"""Columns as small numbers, and keys with their likes: what summing millions of rows is made of."""

import threading
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
_Key = TypeVar("_Key", np.int64, np.uint64)


def codes(column: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """The column as small numbers, and the values that they stand for."""
    encoded = column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = encoded.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], column.type).dictionary_encode()
    return whole.indices.to_numpy(zero_copy_only=False).astype(np.int64), whole.dictionary


def grouped(keys: npt.NDArray[_Key]) -> tuple[npt.NDArray[_Key], Ints]:
    """The distinct keys, and for each key the place of its like. Hashing beats the sorting of numpy.unique."""
    encoded = pa.array(keys).dictionary_encode()
    return encoded.dictionary.to_numpy(), encoded.indices.to_numpy().astype(np.int64)


UNKNOWN_FRAME = "[unknown]"
# Everything that runs below one of these runs as (soft) interrupt work, whoever was interrupted.
SOFTIRQ_ENTRIES = frozenset({"__do_softirq", "handle_softirqs", "do_softirq", "run_ksoftirqd", "irq_exit_rcu"})
# What a core can be seen doing by its stacks. Nobody is sampled while the core waits, idles or is taken away.
SAMPLED_STATES = ("user", "system", "softirq")

Ids = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class FrameTable:
    """Frames, column by column."""

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
        """For each stack, whether the pattern (of RE2) is found in the name of one of its frames."""
        found = pc.match_substring_regex(pa.array(self.frames.names, pa.string()), pattern)
        return self._with_any(found.to_numpy(zero_copy_only=False).astype(np.int64))

    def holding(self, frame: tuple[str, str, str]) -> npt.NDArray[np.bool_]:
        """For each stack, whether this frame (kind, module, name) is in it."""
        every = zip(self.frames.kinds, self.frames.modules, self.frames.names, strict=True)
        return self._with_any(np.array([each == frame for each in every], np.int64))

    def taken_in(self, kinds: Collection[str]) -> npt.NDArray[np.bool_]:
        """For each stack, whether its leaf is of one of these kinds."""
        of_kind = np.array([kind in kinds for kind in self.frames.kinds], np.bool_)
        found = np.zeros(len(self.offsets) - 1, np.bool_)
        filled = self.offsets[1:] > self.offsets[:-1]
        found[filled] = of_kind[self.indexes[self.offsets[1:][filled] - 1]]
        return found

    def in_state(self, state: str) -> npt.NDArray[np.bool_]:
        """For each stack, whether the core was in this one of SAMPLED_STATES."""
        if state == "user":
            return self.taken_in(("user", "jit"))
        frames = zip(self.frames.kinds, self.frames.names, strict=True)
        entries = [kind == "kernel" and name in SOFTIRQ_ENTRIES for kind, name in frames]
        in_softirq = self._with_any(np.array(entries, np.int64))
        return self.taken_in(("kernel",)) & (in_softirq if state == "softirq" else ~in_softirq)

    def _with_any(self, hits: Ints) -> npt.NDArray[np.bool_]:
        running = np.concatenate(([0], np.cumsum(hits[self.indexes])))
        return (running[self.offsets[1:]] - running[self.offsets[:-1]]) > 0


@dataclass(frozen=True, slots=True)
class _Told:
    """What one segment told: stacks, the number of frames of each, and those frames as indexes into `frame_ids`, which
    `frames` names in the same order."""

    stacks: Ids
    lengths: Ints
    indexes: Ints
    frame_ids: Ids
    frames: FrameTable


class StackNames:
    """Collects what the segments tell about the stacks that were met; equal hashes are equal everywhere."""

    def __init__(self) -> None:
        self._parts: list[_Told] = []
        self._known = pa.array([], pa.uint64())

    def add(self, stacks: Ids, read: Callable[[str], pa.Table | None]) -> None:
        """Learn the stacks that are not known yet from a segment's tables."""
        wanted = pa.array(stacks)
        wanted = wanted.filter(pc.invert(pc.is_in(wanted, value_set=self._known)))
        table = read("stacks") if len(wanted) else None
        if table is None:
            return
        rows = pc.index_in(wanted, value_set=table.column("stack")).drop_null()
        found = table.take(rows)
        lists = found.column("frames").combine_chunks()
        flat = lists.flatten().dictionary_encode()
        self._known = pa.concat_arrays([self._known, *found.column("stack").chunks])
        self._parts.append(
            _Told(
                found.column("stack").to_numpy(),
                pc.list_value_length(lists).to_numpy().astype(np.int64),
                flat.indices.to_numpy().astype(np.int64),
                flat.dictionary.to_numpy(),
                _frame_table(flat.dictionary, read("frames")),
            )
        )

    def resolve(self, stacks: Ids) -> ResolvedStacks:
        """The stacks, each given once, with their frames named; one that nobody told is a single unknown frame."""
        ids = np.concatenate([*(part.stacks for part in self._parts), np.zeros(0, np.uint64)])
        lengths = np.concatenate([*(part.lengths for part in self._parts), np.zeros(0, np.int64)])
        frames, values = self._merged_frames()
        place = pc.index_in(pa.array(stacks), value_set=pa.array(ids))
        told = place.is_valid().to_numpy(zero_copy_only=False)
        rows = place.drop_null().to_numpy().astype(np.int64)

        out_lengths = np.ones(len(stacks), np.int64)
        out_lengths[told] = lengths[rows]
        offsets = np.concatenate(([0], np.cumsum(out_lengths)))
        starts = np.concatenate(([0], np.cumsum(lengths)))[:-1]
        indexes = np.full(int(offsets[-1]), len(frames.names), np.int64)
        indexes[ranges(offsets[:-1][told], lengths[rows])] = values[ranges(starts[rows], lengths[rows])]
        unknown = int(len(stacks) - told.sum())
        if unknown:
            frames = FrameTable([*frames.kinds, ""], [*frames.modules, ""], [*frames.names, UNKNOWN_FRAME])
        return ResolvedStacks(frames, offsets, indexes, unknown)

    def _merged_frames(self) -> tuple[FrameTable, Ints]:
        """The frames of all segments, each once, and the stacks' frames as indexes into them."""
        if not self._parts:
            return FrameTable([], [], []), np.zeros(0, np.int64)
        if len(self._parts) == 1:
            return self._parts[0].frames, self._parts[0].indexes
        merged = pa.array(np.concatenate([part.frame_ids for part in self._parts])).dictionary_encode()
        codes = merged.indices.to_numpy().astype(np.int64)
        shifts = np.cumsum([0, *(len(part.frame_ids) for part in self._parts)])
        indexes = np.concatenate(
            [codes[shift + part.indexes] for part, shift in zip(self._parts, shifts[:-1], strict=True)]
        )
        _, firsts = np.unique(codes, return_index=True)
        columns = []
        for name in ("kinds", "modules", "names"):
            every = [value for part in self._parts for value in getattr(part.frames, name)]
            columns.append([every[first] for first in firsts.tolist()])
        return FrameTable(*columns), indexes


def _frame_table(frames: pa.Array, told: pa.Table | None) -> FrameTable:
    """The names of the frames; the ones that were not told are unknown."""
    if told is None:
        return FrameTable([""] * len(frames), [""] * len(frames), [UNKNOWN_FRAME] * len(frames))
    found = told.take(pc.index_in(frames, value_set=told.column("frame")))
    kinds, modules = (pc.fill_null(found.column(name), "").to_pylist() for name in ("kind", "module"))
    return FrameTable(kinds, modules, pc.fill_null(found.column("name"), UNKNOWN_FRAME).to_pylist())


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """The numbers of all the ranges [start, start + length), one after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Ints = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return numbers


UNTOLD = ("", "", UNKNOWN_FRAME)
# So many stacks take some 60 MB.
MOST_REMEMBERED = 200_000
_MOST_QUESTIONS = 8
_NO_STACKS = pa.array([], pa.uint64())


class _Known:
    """Stacks by their hash, and the frames that they consist of. Equal hashes are equal everywhere."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._stacks: dict[int, int] = {}
        self._lengths: list[Ints] = []
        self._indexes: list[Ints] = []
        self._frames: dict[int, int] = {}
        self._named: list[tuple[str, str, str]] = []
        # A frame that its segment did not tell: another segment may.
        self.whole = True

    def __len__(self) -> int:
        return len(self._stacks)

    def missing(self, stacks: Ids) -> Ids:
        return np.array([stack for stack in stacks.tolist() if stack not in self._stacks], np.uint64)

    def learn(self, stacks: Ids, lengths: Ints, frame_ids: Ids, indexes: Ints, told: pa.Table | None) -> None:
        """Stacks, the number of frames of each, and those frames as indexes into `frame_ids`, which `told` names."""
        new = np.array([place for place, frame in enumerate(frame_ids.tolist()) if frame not in self._frames], np.int64)
        names = _names_of(pa.array(frame_ids[new]), told)
        self.whole &= UNTOLD not in names
        for frame, name in zip(frame_ids[new].tolist(), names, strict=True):
            self._frames[frame] = len(self._named)
            self._named.append(name)
        places = np.array([self._frames[frame] for frame in frame_ids.tolist()], np.int64)
        before = len(self._lengths[0]) if self._lengths else 0
        self._stacks.update(zip(stacks.tolist(), range(before, before + len(stacks)), strict=True))
        self._lengths = [np.concatenate([*self._lengths, lengths])]
        self._indexes = [np.concatenate([*self._indexes, places[indexes]])]

    def resolve(self, stacks: Ids) -> ResolvedStacks:
        rows = np.array([self._stacks.get(stack, -1) for stack in stacks.tolist()], np.int64)
        told = rows >= 0
        rows = rows[told]
        nothing = np.zeros(0, np.int64)
        every_length, every_index = (each[0] if each else nothing for each in (self._lengths, self._indexes))
        lengths = np.ones(len(stacks), np.int64)
        lengths[told] = every_length[rows]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        starts = np.cumsum(every_length) - every_length
        used, members = grouped(every_index[ranges(starts[rows], lengths[told])])
        named = [self._named[place] for place in used.tolist()]
        indexes = np.full(int(offsets[-1]), len(named), np.int64)
        indexes[ranges(offsets[:-1][told], lengths[told])] = members
        unknown = int(len(stacks) - told.sum())
        columns = zip(*named, *([UNTOLD] if unknown else []), strict=True)
        kinds, modules, names = (list(column) for column in columns) if named or unknown else ([], [], [])
        return ResolvedStacks(FrameTable(kinds, modules, names), offsets, indexes, unknown)


class StackMemory:
    """What was learnt of stacks, for questions to come: a node runs the same code minute after minute."""

    def __init__(self, most: int = MOST_REMEMBERED) -> None:
        self._most = most
        self._known = _Known()
        self._decided: dict[Hashable, tuple[pa.Array, pa.Array]] = {}

    def known(self) -> _Known:
        """To look up and to add to. Begun anew when it grew large; who uses the old one may go on with it."""
        if len(self._known) > self._most or not self._known.whole:
            self._known = _Known()
        return self._known

    def decided(self, question: Hashable) -> tuple[pa.Array, pa.Array]:
        """The stacks that a question was put about, and those of them that the answer was yes for."""
        return self._decided.get(question, (_NO_STACKS, _NO_STACKS))

    def decide(self, question: Hashable, asked: pa.Array, kept: pa.Array) -> None:
        """Remember the answer about more stacks."""
        known = self._decided.pop(question, (_NO_STACKS, _NO_STACKS))
        if len(known[0]) > self._most:
            known = (_NO_STACKS, _NO_STACKS)
        self._decided[question] = (pa.concat_arrays([known[0], asked]), pa.concat_arrays([known[1], kept]))
        while len(self._decided) > _MOST_QUESTIONS:
            self._decided.pop(next(iter(self._decided)), None)


class RememberedNames:
    """As StackNames; what is in the memory need not be read again."""

    def __init__(self, memory: StackMemory) -> None:
        self._known = memory.known()

    @property
    def whole(self) -> bool:
        """Whether every frame that was met was told."""
        return self._known.whole

    def add(self, stacks: Ids, read: Callable[[str], pa.Table | None]) -> None:
        """Learn the stacks that are not known yet from a segment's tables."""
        with self._known.lock:
            wanted = self._known.missing(stacks)
        table = read("stacks") if len(wanted) else None
        if table is None:
            return
        # The segment's tables are decoded now: whatever they tell need not be read again.
        with self._known.lock:
            wanted = self._known.missing(table.column("stack").to_numpy())
        rows = pc.index_in(pa.array(wanted), value_set=table.column("stack")).drop_null()
        if not len(rows):
            return
        found = table.take(rows)
        lists = found.column("frames").combine_chunks()
        flat = lists.flatten().dictionary_encode()
        told = read("frames")
        with self._known.lock:
            # Somebody else may have learnt them meanwhile.
            if not len(self._known.missing(wanted)):
                return
            self._known.learn(
                found.column("stack").to_numpy(),
                pc.list_value_length(lists).to_numpy().astype(np.int64),
                flat.dictionary.to_numpy(),
                flat.indices.to_numpy().astype(np.int64),
                told,
            )

    def resolve(self, stacks: Ids) -> ResolvedStacks:
        """The stacks, each given once, with their frames named; one that nobody told is a single unknown frame."""
        with self._known.lock:
            return self._known.resolve(stacks)


def _names_of(frames: pa.Array, told: pa.Table | None) -> list[tuple[str, str, str]]:
    """Kind, module and name of the frames; the ones that were not told are unknown."""
    if told is None:
        return [UNTOLD] * len(frames)
    found = told.take(pc.index_in(frames, value_set=told.column("frame")))
    kinds, modules = (pc.fill_null(found.column(name), "").to_pylist() for name in ("kind", "module"))
    return list(zip(kinds, modules, pc.fill_null(found.column("name"), UNKNOWN_FRAME).to_pylist(), strict=True))


def names_with(memory: StackMemory | None) -> StackNames | RememberedNames:
    """Names for one question; with a memory, for those to come as well."""
    return StackNames() if memory is None else RememberedNames(memory)
