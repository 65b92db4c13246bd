"""A flame graph: the stacks of a profile merged into one tree of frames, with a weight on every node.

With a baseline, both sides are merged into the same tree, so it also has frames that occur on only one side. The tree
is stored as arrays and built from them without Python loops: an hour of a large node has hundreds of thousands of
stacks.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count, islice, repeat

import numpy as np
import numpy.typing as npt

from exhume.store.format.layout import order_by_prefix
from exhume.store.read.profile import StackProfile
from exhume.store.read.stacks import SOFTIRQ_ENTRIES, concat_ranges

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# The root and the process nodes have no state.
NODE_STATES = ("", "system", "softirq", "user")
ROOT_KIND, COMM_KIND = "all", "comm"


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of nodes; a node refers to its label by index."""

    names: list[str]
    modules: list[str]
    kinds: list[str]


@dataclass(frozen=True, slots=True)
class FunctionTimes:
    """Microseconds of CPU time by label: in the function itself, in it and its callees (recursion counts once), and in
    the baseline in the function itself."""

    own: Ints
    total: Ints
    base_own: Ints


@dataclass(frozen=True)
class FlameTree:
    """Nodes level by level, parents before children; node 0 is the root. Weights are microseconds of CPU time and
    inclusive. Without a baseline, its weights are zero."""

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
        """Growth of the inclusive share over the baseline; negative if it shrank."""
        return self.share - self.base_share

    @cached_property
    def width(self) -> Floats:
        """Width as a share of the picture. With a baseline it is the mean of both sides: the only width that adds up at
        every level and leaves room for the frames of either side."""
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
        """The left edge of each node, with siblings next to each other in the order of `order`."""
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
        """Nodes by parent, the widest sibling first; ties are broken by name, so that pictures are reproducible."""
        rank = np.empty(len(self.labels.names), np.int64)
        rank[sorted(range(len(rank)), key=lambda index: (self.labels.names[index], index))] = np.arange(len(rank))
        return np.lexsort((rank[self.label], -self.width, self._group))

    @cached_property
    def _group(self) -> Ints:
        """The parent of each node; the root, which is its own parent, is in a different group from its children."""
        groups = self.parent.copy()
        groups[0] = -1
        return groups

    @cached_property
    def levels(self) -> list[tuple[int, int]]:
        """Where the nodes of each depth begin and end."""
        starts = np.flatnonzero(np.diff(self.depth, prepend=-1))
        stops = [*starts[1:], len(self)]
        return [(int(start), int(stop)) for start, stop in zip(starts, stops, strict=True)]

    @cached_property
    def state(self) -> Ints:
        """The core state that each node stands for, as an index into NODE_STATES."""
        system, softirq, user = (NODE_STATES.index(state) for state in ("system", "softirq", "user"))
        of_kind = defaultdict(int, {"kernel": system, "user": user, "jit": user})
        labels = len(self.labels.names)
        states = np.fromiter(map(of_kind.__getitem__, self.labels.kinds), np.int64, labels)[self.label]
        kernel = states == system
        entries = np.fromiter(map(SOFTIRQ_ENTRIES.__contains__, self.labels.names), np.bool_, labels)
        inside = entries[self.label] & kernel
        for start, stop in self.levels[1:]:
            inside[start:stop] |= inside[self.parent[start:stop]]
        states[inside & kernel] = softirq
        return states

    @cached_property
    def functions(self) -> FunctionTimes:
        """Time by function, summed over all nodes."""
        labels = len(self.labels.names)
        outermost = self._outermost()
        return FunctionTimes(
            _add_up(self.label, self.self_weight, labels),
            _add_up(self.label[outermost], self.weight[outermost], labels),
            _add_up(self.label, self.self_base_weight, labels),
        )

    def _outermost(self) -> npt.NDArray[np.bool_]:
        """Nodes without an ancestor of the same function."""
        found = np.ones(len(self), np.bool_)
        # Only a function that also occurs further out can be recursive: most functions need no walk at all.
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
    """Merge the stacks of a profile, and of a baseline if there is one, into one tree. Process names are its roots."""
    sides = [current] if baseline is None else [current, baseline]
    labels, labels_of = _merge_labels(sides)
    paths = _Paths.of(sides, labels_of)
    # What follows has one value per step of each path, in a narrow type: most of the time is memory traffic.
    lengths, longest = paths.lengths, int(paths.lengths.max())
    begin = np.cumsum(lengths) - lengths
    steps = np.arange(len(paths.labels), dtype=np.int32)
    depth = (steps - np.repeat(begin.astype(np.int32), lengths)).astype(np.min_scalar_type(longest))
    # Paths with the same beginning are adjacent: a step is a new node once its path differs from the preceding one.
    before = np.repeat(np.concatenate(([0], lengths[:-1])).astype(np.int32), lengths)
    same = (depth < before) & (paths.labels == paths.labels[steps - before])
    left = np.minimum.reduceat(np.where(same, depth.dtype.type(longest), depth), begin)
    new = depth >= np.repeat(left, lengths)
    # Level by level; numpy sorts narrow integers with a radix sort.
    order = np.argsort(depth, kind="stable")
    new_by_level = new[order]
    node = np.empty(len(order), np.int32)
    node[order] = np.cumsum(new_by_level, dtype=np.int32) - 1
    first = order[new_by_level]
    path = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)[order]
    starts = np.flatnonzero(new_by_level)
    sums = np.zeros((4, len(first)), np.int64)
    for values, out in zip(paths.values, sums, strict=False):
        np.add.reduceat(values[path], starts, out=out)
    weight, samples, base_weight, base_samples = sums
    label, parent, level = (
        each.astype(np.int64) for each in (paths.labels[first], node[np.maximum(first - 1, 0)], depth[first])
    )
    differential = baseline is not None
    return FlameTree(labels, label, parent, level, weight, samples, base_weight, base_samples, differential)


def _merge_labels(sides: Sequence[StackProfile]) -> tuple[Labels, list[Ints]]:
    """Merge the labels of all sides; return them, and for each side those of its commands and then of its frames. Equal
    frames share a label, whichever side they came from."""
    columns: tuple[list[str], ...] = (["all"], [""], [ROOT_KIND])
    found: list[Ints] = []
    for side in sides:
        comms, frames = len(side.comms), side.frames
        own: Iterable[Iterable[str]] = (
            [*side.comms, *frames.names],
            [*repeat("", comms), *frames.modules],
            [*repeat(COMM_KIND, comms), *frames.kinds],
        )
        if found:
            # There are thousands, so iteration is left to dict and list.
            keys = list(zip(*own, strict=True))
            merged = dict(zip(dict.fromkeys(chain(zip(*columns, strict=True), keys)), count(), strict=False))
            found.append(np.fromiter(map(merged.__getitem__, keys), np.int64, len(keys)))
            own = zip(*islice(merged, len(columns[0]), None), strict=True)
        else:
            # Within one side every command and frame is unique: there is nothing to compare with.
            found.append(np.arange(1, 1 + comms + len(frames.names)))
        for column, more in zip(columns, own, strict=False):
            column.extend(more)
    return Labels(*columns), found


@dataclass(frozen=True, slots=True)
class _Paths:
    """Weighted paths from the root to a leaf, with those that begin alike next to each other. `labels` is the
    concatenation of all paths. The first path is the root alone, with zero weight."""

    lengths: Ints
    labels: npt.NDArray[np.int32]
    values: Ints  # weight and samples of each side

    @classmethod
    def of(cls, sides: Sequence[StackProfile], labels_of: Sequence[Ints]) -> "_Paths":
        parts, stacks = [], 0
        for index, (side, labels) in enumerate(zip(sides, labels_of, strict=True)):
            values = np.zeros((2 * len(sides), len(side.comm_index)), np.int64)
            values[2 * index : 2 * index + 2] = side.weights_us, side.counts
            frames = labels[len(side.comms) + side.stack_frames]
            lengths = np.diff(side.stack_offsets)
            parts.append((labels[side.comm_index], stacks + side.stack_index, values, frames, lengths))
            stacks += len(lengths)
        comm, stack, values, frames, lengths = (np.concatenate(column, axis=-1) for column in zip(*parts, strict=True))
        small = frames.astype(np.int32)
        rank = np.empty_like(lengths)
        rank[order_by_prefix(small, lengths).to_numpy()] = np.arange(len(lengths))
        order = np.lexsort((rank[stack], comm))
        stack = stack[order]
        # The root and the process precede the frames.
        path_lengths = np.concatenate(([1], 2 + lengths[stack]))
        starts = np.concatenate(([0], (np.cumsum(lengths) - lengths)[stack]))
        found = np.pad(small, (2, 0))[concat_ranges(starts, path_lengths)]
        begin = np.cumsum(path_lengths) - path_lengths
        found[begin] = 0
        found[begin[1:] + 1] = comm[order]
        return cls(path_lengths, found, np.pad(values[:, order], ((0, 0), (1, 0))))


def _add_up(member: Ints, values: Ints, groups: int) -> Ints:
    # bincount adds in float64, which is exact up to 2^53 us: 285 years of CPU time.
    return np.bincount(member, weights=values, minlength=groups).astype(np.int64)


def _shares(weight: Ints) -> Floats:
    total = int(weight[0])
    return weight / total if total else np.zeros(len(weight))
