"""What changed most between a window and its baseline, by function."""

import numpy as np

from exhume.model.text import percent, points
from exhume.present.flame import NODE_STATES, FlameTree, Floats, Ints, shown_name


def largest_changes(tree: FlameTree, most: int = 3) -> list[str]:
    """The functions whose own time changed most, in words; nothing without a baseline."""
    if not tree.differential:
        return []
    now, before = _own_shares(tree, tree.self_weight), _own_shares(tree, tree.self_base_weight)
    delta = now - before
    order = np.argsort(-np.abs(delta), kind="stable")[:most].tolist()
    return [
        f"{shown_name(tree.labels.names[label])}: {percent(before[label])} -> {percent(now[label])} "
        f"of CPU time in itself ({points(delta[label])})"
        for label in order
        if abs(delta[label]) >= 0.00005
    ]


def _own_shares(tree: FlameTree, own: Ints) -> Floats:
    code = tree.state != NODE_STATES.index("")
    sums = np.bincount(tree.label[code], weights=own[code], minlength=len(tree.labels.names))
    return sums / max(int(own.sum()), 1)
