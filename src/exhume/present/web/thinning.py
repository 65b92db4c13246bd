"""A tree without the frames that are too thin to be drawn: their time stays with their parents."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exhume.present.flame import FlameTree, Labels


@dataclass(frozen=True, slots=True)
class Thinned:
    tree: FlameTree
    dropped: int


def thinned(tree: FlameTree, least: float) -> Thinned:
    """Keep the nodes whose width is at least this part of the whole. A child is never wider than its parent, so what is
    kept hangs together; labels that nothing refers to go too."""
    kept = tree.width >= least
    kept[0] = True
    return Thinned(only(tree, kept), int((~kept).sum()))


def only(tree: FlameTree, kept: npt.NDArray[np.bool_]) -> FlameTree:
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
