"""Stack and frame hashes -> names, for the few stacks that a profile shows."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

UNKNOWN_FRAME = "[unknown]"
# Everything that runs below one of these runs as (soft) interrupt work, whoever was interrupted.
SOFTIRQ_ENTRIES = frozenset({"__do_softirq", "handle_softirqs", "do_softirq", "run_ksoftirqd", "irq_exit_rcu"})
# What a core can be seen doing by its stacks. Nobody is sampled while the core waits, idles or is taken away.
SAMPLED_STATES = ("user", "system", "softirq")

Ints = npt.NDArray[np.int64]
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
