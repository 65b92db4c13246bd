"""A flame graph: the stacks of a profile merged into one tree of frames, with a weight on every node.

With a baseline, both sides are merged into the same tree, so a frame that only one side has is there as well. The
tree is kept as arrays and grown a level at a time, because an hour of a large node has hundreds of thousands of stacks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat

import numpy as np
import numpy.typing as npt

from exhume.store.read.profile import StackProfile
from exhume.store.read.stacks import SOFTIRQ_ENTRIES, unique_inverse

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# The whole and the processes are in no state.
NODE_STATES = ("", "system", "softirq", "user")
ROOT_KIND, COMM_KIND = "all", "comm"


@dataclass(frozen=True, slots=True)
class Labels:
    """What nodes are called; a node refers to its label by index."""

    names: list[str]
    modules: list[str]
    kinds: list[str]


@dataclass(frozen=True, slots=True)
class FunctionTimes:
    """Microseconds of CPU time by label: in a function itself, and with what it called (one that calls itself counts
    once); of the baseline, in itself."""

    own: Ints
    total: Ints
    base_own: Ints


@dataclass(frozen=True)
class FlameTree:
    """Nodes level by level, parents before children; node 0 is the whole. Weights are microseconds of CPU time and
    inclusive. The baseline's are zero where there is none."""

    labels: Labels
    label: Ints
    parent: Ints
    depth: Ints
    weight: Ints
    samples: Ints
    base_weight: Ints
    base_samples: Ints
    differential: bool

    def __len__(self) -> int:
        return len(self.label)

    @property
    def empty(self) -> bool:
        return int(self.weight[0]) == 0 and int(self.base_weight[0]) == 0

    @cached_property
    def share(self) -> Floats:
        """Each node's share of its own side, so sides of different length can be compared."""
        return _shares(self.weight)

    @cached_property
    def base_share(self) -> Floats:
        return _shares(self.base_weight)

    @cached_property
    def delta(self) -> Floats:
        """How much the share grew (or shrank, below zero) against the baseline; inclusive."""
        return self.share - self.base_share

    @cached_property
    def width(self) -> Floats:
        """Share of the picture. With a baseline it is the mean of both sides: the only width that adds up at every
        level and gives frames of either side room."""
        if not self.differential:
            return self.share
        sides = [side for side in (self.share, self.base_share) if side[0] > 0]
        return np.sum(sides, axis=0) / len(sides) if sides else self.share

    @cached_property
    def self_weight(self) -> Ints:
        return self._own(self.weight)

    @cached_property
    def self_base_weight(self) -> Ints:
        return self._own(self.base_weight)

    def _own(self, weight: Ints) -> Ints:
        return weight - _add_up(self.parent[1:], weight[1:], len(weight))

    @cached_property
    def x(self) -> Floats:
        """Left edge, siblings side by side in the order of `order`."""
        order = self.order
        before = np.cumsum(self.width[order]) - self.width[order]
        parents = self._group[order]
        first_of_parent = np.concatenate(([True], parents[1:] != parents[:-1]))
        group = np.cumsum(first_of_parent) - 1
        offset = np.empty(len(self))
        offset[order] = before - before[first_of_parent][group]
        edges = np.zeros(len(self))
        for start, stop in self.levels[1:]:
            edges[start:stop] = edges[self.parent[start:stop]] + offset[start:stop]
        return edges

    @cached_property
    def order(self) -> Ints:
        """Nodes by parent, the widest sibling first; names decide between equals, so a picture can be reproduced."""
        rank = np.empty(len(self.labels.names), np.int64)
        rank[sorted(range(len(rank)), key=lambda index: (self.labels.names[index], index))] = np.arange(len(rank))
        return np.lexsort((rank[self.label], -self.width, self._group))

    @cached_property
    def _group(self) -> Ints:
        """The parent of each node; the whole, which is its own parent, stands apart from its children."""
        groups = self.parent.copy()
        groups[0] = -1
        return groups

    @cached_property
    def levels(self) -> list[tuple[int, int]]:
        """Where each depth's nodes begin and end."""
        starts = np.flatnonzero(np.diff(self.depth, prepend=-1))
        stops = [*starts[1:], len(self)]
        return [(int(start), int(stop)) for start, stop in zip(starts, stops, strict=True)]

    @cached_property
    def state(self) -> Ints:
        """Which state of a core each node stands for, as an index into NODE_STATES."""
        system, softirq, user = (NODE_STATES.index(state) for state in ("system", "softirq", "user"))
        of_kind = {"kernel": system, "user": user, "jit": user}
        states = np.array([of_kind.get(kind, 0) for kind in self.labels.kinds], np.int64)[self.label]
        kernel = states == system
        inside = np.array([name in SOFTIRQ_ENTRIES for name in self.labels.names])[self.label] & kernel
        for start, stop in self.levels[1:]:
            inside[start:stop] |= inside[self.parent[start:stop]]
        states[inside & kernel] = softirq
        return states

    @cached_property
    def functions(self) -> FunctionTimes:
        """Time by function, over all its places."""
        labels = len(self.labels.names)
        outermost = self._outermost()
        return FunctionTimes(
            _add_up(self.label, self.self_weight, labels),
            _add_up(self.label[outermost], self.weight[outermost], labels),
            _add_up(self.label, self.self_base_weight, labels),
        )

    def _outermost(self) -> npt.NDArray[np.bool_]:
        """The nodes that no node of the same function is above."""
        found = np.ones(len(self), np.bool_)
        # Only what is also further out may call itself: of most functions nothing is looked at.
        least = np.full(len(self.labels.names), len(self.levels), np.int64)
        np.minimum.at(least, self.label, self.depth)
        left = np.flatnonzero(least[self.label] < self.depth)
        above = self.parent[left]
        while left.size:
            same = self.label[above] == self.label[left]
            found[left[same]] = False
            further = ~same & (self.depth[above] > least[self.label[left]])
            left, above = left[further], self.parent[above[further]]
        return found

    def name(self, node: int) -> str:
        return self.labels.names[int(self.label[node])]

    def path(self, node: int) -> list[int]:
        """The nodes from the process down to a node."""
        found = []
        while node:
            found.append(node)
            node = int(self.parent[node])
        return found[::-1]


def build_tree(current: StackProfile, baseline: StackProfile | None = None) -> FlameTree:
    """Merge the stacks of a profile, and of a baseline if there is one, into one tree. Each process name is a root."""
    labels = _LabelTable()
    rows = _Rows.of((side for side in (current, baseline) if side is not None), labels)
    total = len(labels.names)
    everything = np.arange(len(rows.comm))
    node = np.zeros(len(rows.comm), np.int64)
    labels_of, parents_of = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
    sums = [rows.sums(node, everything, 1)]
    alive, made, depth = everything, 1, 0
    while alive.size:
        here = rows.comm[alive] if depth == 0 else rows.frames[rows.start[alive] + depth - 1]
        keys, member = unique_inverse(node[alive] * total + here)
        labels_of.append(keys % total)
        parents_of.append(keys // total)
        sums.append(rows.sums(member, alive, len(keys)))
        node[alive] = made + member
        made += len(keys)
        depth += 1
        alive = alive[rows.length[alive] >= depth]
    weights, samples, base_weights, base_samples = np.concatenate(sums, axis=1)
    return FlameTree(
        Labels(labels.names, labels.modules, labels.kinds),
        np.concatenate(labels_of),
        np.concatenate(parents_of),
        np.repeat(np.arange(len(labels_of)), [len(level) for level in labels_of]),
        weights,
        samples,
        base_weights,
        base_samples,
        baseline is not None,
    )


class _LabelTable:
    """Names shared by both sides: the same frame is the same label, whichever side it came from."""

    def __init__(self) -> None:
        self.names, self.modules, self.kinds = ["all"], [""], [ROOT_KIND]
        self._index = {(ROOT_KIND, "", "all"): 0}

    def add(self, kinds: Iterable[str], modules: Iterable[str], names: Iterable[str]) -> Ints:
        """The label of each; there are thousands, so the loops are those of dict and list."""
        keys = list(zip(kinds, modules, names, strict=False))
        index = self._index
        new = [key for key in dict.fromkeys(keys) if key not in index]
        index.update(zip(new, range(len(self.names), len(self.names) + len(new)), strict=True))
        self.kinds += [kind for kind, _, _ in new]
        self.modules += [module for _, module, _ in new]
        self.names += [name for _, _, name in new]
        return np.fromiter(map(index.__getitem__, keys), np.int64, len(keys))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Weighted stacks as arrays; `frames` holds all stacks end to end, `start` and `length` cut one out of it."""

    comm: Ints
    start: Ints
    length: Ints
    frames: Ints
    values: Ints  # four rows: weight, samples, and the same of the baseline

    @classmethod
    def of(cls, sides: Iterable[StackProfile], labels: _LabelTable) -> "_Rows":
        parts, offset = [], 0
        for index, side in enumerate(sides):
            comms = labels.add(repeat(COMM_KIND), repeat(""), side.comms)
            frames = labels.add(side.frames.kinds, side.frames.modules, side.frames.names)
            starts, lengths = side.stack_offsets[:-1] + offset, np.diff(side.stack_offsets)
            values = np.zeros((4, len(side.comm_index)), np.int64)
            values[2 * index : 2 * index + 2] = side.weights_us, side.counts
            at = side.stack_index
            parts.append((comms[side.comm_index], starts[at], lengths[at], frames[side.stack_frames], values))
            offset += len(side.stack_frames)
        return cls(*(np.concatenate(column, axis=-1) for column in zip(*parts, strict=True)))

    def sums(self, member: Ints, rows: Ints, groups: int) -> Ints:
        """The values of some rows, added up by group."""
        return np.stack([_add_up(member, values[rows], groups) for values in self.values])


def _add_up(member: Ints, values: Ints, groups: int) -> Ints:
    # bincount adds in float64, which is exact up to 2^53 us: 285 years of CPU time.
    return np.bincount(member, weights=values, minlength=groups).astype(np.int64)


def _shares(weight: Ints) -> Floats:
    total = int(weight[0])
    return weight / total if total else np.zeros(len(weight))
