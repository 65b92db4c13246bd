"""The report of a flame graph."""

from typing import Any

import numpy as np

from exhume.model.clock import MILLIS, Window
from exhume.present.events_view import visible
from exhume.present.flame import FlameCaption, largest_changes, shown_name
from exhume.present.html.template import render
from exhume.store.read.flame_tree import NODE_STATES, FlameTree, Ints

# A report has to be small enough for a ticket: beyond this many frames, the thinnest are left out and counted.
MAX_FRAMES = 20_000
# The report of a flame graph alone has its window as text, in the caption.
_NO_WINDOW = Window(0, 0)


def flame_report(tree: FlameTree, caption: FlameCaption) -> str:
    """A flame graph as one HTML file."""
    return render(
        "flame",
        {
            "title": visible(caption.title),
            "window": caption.window,
            "filters": [visible(each) for each in caption.filters],
            "flame": flame_data(tree, caption),
        },
    )


def flame_data(
    tree: FlameTree, caption: FlameCaption, window: Window = _NO_WINDOW, base: Window | None = None
) -> dict[str, Any]:
    """The columns of a tree, parents first, as `/api/flame` has them."""
    kept = _kept(tree)
    place = np.zeros(len(tree), np.int64)
    place[kept] = np.arange(len(kept))
    labels, label = np.unique(tree.label[kept], return_inverse=True)
    names, modules, kinds = tree.labels.names, tree.labels.modules, tree.labels.kinds
    return {
        "since": window.since // MILLIS,
        "until": window.until // MILLIS,
        "base_since": None if base is None else base.since // MILLIS,
        "base_until": None if base is None else base.until // MILLIS,
        "baseline": caption.baseline,
        "differential": tree.differential,
        "samples": int(tree.samples[0]),
        "weight_us": int(tree.weight[0]),
        "base_samples": int(tree.base_samples[0]),
        "base_weight_us": int(tree.base_weight[0]),
        "blind_spots": [visible(each) for each in caption.blind_spots],
        "states": list(NODE_STATES),
        "labels": {
            "name": [visible(shown_name(names[index])) for index in labels],
            "module": [visible(modules[index]) for index in labels],
            "kind": [kinds[index] for index in labels],
        },
        "label": label.tolist(),
        "parent": place[tree.parent[kept]].tolist(),
        "weight": tree.weight[kept].tolist(),
        "samples_of": tree.samples[kept].tolist(),
        "base_weight": tree.base_weight[kept].tolist() if tree.differential else [],
        "state": tree.state[kept].tolist(),
        "dropped": len(tree) - len(kept),
        "changes": [visible(each) for each in largest_changes(tree, 5)],
    }


def _kept(tree: FlameTree) -> Ints:
    if len(tree) <= MAX_FRAMES:
        return np.arange(len(tree))
    # A child is never wider than its parent, so cutting by width leaves no orphans; ties stay out.
    thinnest = np.partition(tree.width, -MAX_FRAMES)[-MAX_FRAMES]
    return np.flatnonzero(tree.width > thinnest)
