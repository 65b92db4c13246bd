"""A flame graph as the page shows it: without thin frames, zoomed into a frame, without hidden ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from exhume.store.read.flame_tree import FlameTree, Labels

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Pruned:
    """A tree without its thin frames, and how many those were."""

    tree: FlameTree
    dropped: int


def prune(tree: FlameTree, least: float) -> Pruned:
    """Keep the nodes whose width is at least this part of the whole. A child is never wider than its parent, so what is
    kept hangs together; labels that nothing refers to go too."""
    kept = tree.width >= least
    kept[0] = True
    return Pruned(only(tree, kept), int((~kept).sum()))


def only(tree: FlameTree, kept: Mask) -> FlameTree:
    """The tree of these nodes, whose parents are among them."""
    place = np.cumsum(kept) - 1
    labels, label = np.unique(tree.label[kept], return_inverse=True)
    named = Labels(
        *(
            [values[i] for i in labels.tolist()]
            for values in (tree.labels.names, tree.labels.modules, tree.labels.kinds)
        )
    )
    return FlameTree(
        named,
        label.astype(np.int64),
        place[tree.parent[kept]],
        tree.depth[kept],
        tree.weight[kept],
        tree.samples[kept],
        tree.base_weight[kept],
        tree.base_samples[kept],
        tree.differential,
    )


def apply_view(tree: FlameTree, root: Sequence[str], hide: Sequence[str]) -> FlameTree:
    """What is left of a tree: hidden frames go with all that they called, and what called them shrinks; the names in
    `root` lead, as far as they lead anywhere, to the frame that fills the width."""
    if hide:
        names = set(hide)
        hidden = np.array([name in names for name in tree.labels.names], np.bool_)[tree.label]
        hidden[0] = False
        tree = _left(tree, ~_below(tree, hidden))
    node = _node_at(tree, root)
    if node:
        chosen = np.zeros(len(tree), np.bool_)
        chosen[node] = True
        tree = _left(tree, _below(tree, chosen))
    return tree


def _below(tree: FlameTree, marked: Mask) -> Mask:
    """The marked nodes and everything under them."""
    found = marked.copy()
    for depth in range(1, int(tree.depth.max(initial=0)) + 1):
        level = np.flatnonzero(tree.depth == depth)
        found[level] |= found[tree.parent[level]]
    return found


def _left(tree: FlameTree, kept: Mask) -> FlameTree:
    """The tree with the own time of these nodes alone, and without the nodes that have none left."""

    def left(inclusive: Ints) -> Ints:
        return _summed(tree, np.where(kept, _own(tree, inclusive), 0))

    smaller = replace(
        tree,
        weight=left(tree.weight),
        samples=left(tree.samples),
        base_weight=left(tree.base_weight),
        base_samples=left(tree.base_samples),
    )
    alive = (smaller.weight > 0) | (smaller.base_weight > 0)
    alive[0] = True
    return only(smaller, alive)


def _own(tree: FlameTree, inclusive: Ints) -> Ints:
    own = inclusive.copy()
    np.subtract.at(own, tree.parent[1:], inclusive[1:])
    return own


def _summed(tree: FlameTree, own: Ints) -> Ints:
    total = own.copy()
    for depth in range(int(tree.depth.max(initial=0)), 0, -1):
        level = np.flatnonzero(tree.depth == depth)
        np.add.at(total, tree.parent[level], total[level])
    return total


def _node_at(tree: FlameTree, names: Sequence[str]) -> int:
    node = 0
    for name in names:
        children = np.flatnonzero(tree.parent == node)
        found = [child for child in children.tolist() if child and tree.labels.names[tree.label[child]] == name]
        if not found:
            break
        node = max(found, key=lambda child: float(tree.width[child]))
    return node
