"""Stack and frame hashes -> names, for the few stacks that a profile shows."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

UNKNOWN_FRAME = "[unknown]"

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

    def matching(self, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
        """For each stack, whether the pattern is found in the name of one of its frames."""
        hits = np.array([pattern.search(name) is not None for name in self.frames.names], dtype=np.int64)
        running = np.concatenate(([0], np.cumsum(hits[self.indexes])))
        return (running[self.offsets[1:]] - running[self.offsets[:-1]]) > 0


class StackNames:
    """Collects what the segments tell about the stacks that were met; equal hashes are equal everywhere."""

    def __init__(self) -> None:
        self._known: Ids = np.zeros(0, np.uint64)
        self._ids: list[Ids] = []
        self._lengths: list[Ints] = []
        self._frame_ids: list[Ids] = []
        self._frames: dict[int, tuple[str, str, str]] = {}

    def add(self, stacks: Ids, read: Callable[[str], pa.Table | None]) -> None:
        """Learn the stacks that are not known yet from a segment's tables."""
        wanted = np.setdiff1d(stacks, self._known)
        if not len(wanted):
            return
        table = read("stacks")
        if table is None:
            return
        ids: Ids = table.column("stack").to_numpy()
        found, first = np.unique(ids, return_index=True)
        rows = first[np.isin(found, wanted, assume_unique=True)]
        lists = table.column("frames").take(pa.array(rows)).combine_chunks()
        frames: Ids = lists.flatten().to_numpy()
        self._ids.append(ids[rows])
        self._lengths.append(np.diff(lists.offsets.to_numpy()).astype(np.int64))
        self._frame_ids.append(frames)
        self._known = np.union1d(self._known, ids[rows])
        self._learn_frames(np.unique(frames), read)

    def _learn_frames(self, frames: Ids, read: Callable[[str], pa.Table | None]) -> None:
        wanted = [frame for frame in frames.tolist() if frame not in self._frames]
        if not wanted:
            return
        table = read("frames")
        if table is None:
            return
        here = np.isin(table.column("frame").to_numpy(), np.array(wanted, np.uint64))
        rows = table.filter(pa.array(here))
        names = zip(*(rows.column(name).to_pylist() for name in ("kind", "module", "name")), strict=True)
        self._frames.update(zip(rows.column("frame").to_pylist(), names, strict=True))

    def resolve(self, stacks: Ids) -> ResolvedStacks:
        """The stacks (sorted, each once) with their frames named; one that nobody told is a single unknown frame."""
        ids = np.concatenate([*self._ids, np.zeros(0, np.uint64)])
        lengths = np.concatenate([*self._lengths, np.zeros(0, np.int64)])
        values = np.concatenate([*self._frame_ids, np.zeros(0, np.uint64)])
        order = np.argsort(ids)
        place = np.searchsorted(ids, stacks, sorter=order)
        place = np.minimum(place, max(0, len(ids) - 1))
        told = ids[order[place]] == stacks if len(ids) else np.zeros(len(stacks), bool)
        rows = order[place[told]] if len(ids) else np.zeros(0, np.int64)

        out_lengths = np.ones(len(stacks), np.int64)
        out_lengths[told] = lengths[rows]
        offsets = np.concatenate(([0], np.cumsum(out_lengths)))
        starts = np.concatenate(([0], np.cumsum(lengths)))[:-1]
        taken = _ranges(starts[rows], lengths[rows])
        filled = _ranges(offsets[:-1][told], lengths[rows])

        used, codes = np.unique(values[taken], return_inverse=True)
        indexes = np.full(int(offsets[-1]), len(used), np.int64)
        indexes[filled] = codes
        unknown = int(len(stacks) - told.sum())
        return ResolvedStacks(self._frame_table(used.tolist(), unknown > 0), offsets, indexes, unknown)

    def _frame_table(self, ids: list[int], with_unknown: bool) -> FrameTable:
        nobody = ("", "", UNKNOWN_FRAME)
        rows = [self._frames.get(frame, nobody) for frame in ids] + [nobody] * with_unknown
        return FrameTable([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])


def _ranges(starts: Ints, lengths: Ints) -> Ints:
    """The numbers of all the ranges [start, start + length), one after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Ints = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return numbers
