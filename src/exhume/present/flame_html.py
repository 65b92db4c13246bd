"""A flame graph as one self-contained HTML page, drawn on a canvas: tens of thousands of frames stay fluid."""

import json
from importlib.resources import files
from typing import Any

import numpy as np

from exhume.present.flame import NODE_STATES, FlameTree, Ints
from exhume.present.flame_page import GROUND, SHADES, FlamePage, shown_name
from exhume.present.flame_svg import text
from exhume.present.palette import BY_NAME, GREW, SHRANK, UNCHANGED

# A file has to open quickly: beyond this many, the thinnest frames are left out and the page says how many.
MOST_FRAMES = 150_000


def render_html(tree: FlameTree, page: FlamePage) -> str:
    """The page of a tree. Everything is inside; the policy in its head forbids it to load anything."""
    template = _asset("flame.html")
    parts = {
        "title": text(page.title),
        "style": _asset("flame.css"),
        "data": embedded_json(_data(tree, page)),
        "script": _asset("flame.js"),
    }
    for name, content in parts.items():
        template = template.replace(f"<!--{name}-->", content, 1)
    return template


def embedded_json(data: Any) -> str:
    """JSON that can stand inside a script element whatever the strings in it say."""
    encoded = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data(tree: FlameTree, page: FlamePage) -> dict[str, Any]:
    kept = _kept(tree)
    # By depth, then from left to right: the page lays siblings out in the order in which it meets them.
    order = kept[np.lexsort((tree.x[kept], tree.depth[kept]))]
    place = np.zeros(len(tree), np.int64)
    place[order] = np.arange(len(order))
    labels, label = np.unique(tree.label[order], return_inverse=True)
    nodes = {
        "label": label.tolist(),
        "parent": place[tree.parent[order]].tolist(),
        "weight": tree.weight[order].tolist(),
        "samples": tree.samples[order].tolist(),
        "state": tree.state[order].tolist(),
    }
    if tree.differential:
        nodes["base"] = tree.base_weight[order].tolist()
        nodes["baseSamples"] = tree.base_samples[order].tolist()
    return {
        "version": 1,
        "title": page.title,
        "subtitle": page.subtitle(tree),
        "blindSpots": page.blind_spots,
        "leftOut": len(tree) - len(order),
        "differential": tree.differential,
        "empty": tree.empty,
        "colours": {"ground": GROUND, **SHADES, "grew": GREW, "shrank": SHRANK, "unchanged": UNCHANGED},
        "meanings": {name: BY_NAME[name].meaning for name in SHADES},
        "states": NODE_STATES,
        "names": [shown_name(tree.labels.names[index]) for index in labels],
        "modules": [shown_name(module) if (module := tree.labels.modules[index]) else "" for index in labels],
        "nodes": nodes,
    }


def _kept(tree: FlameTree) -> Ints:
    if len(tree) <= MOST_FRAMES:
        return np.arange(len(tree))
    # A child is never wider than its parent, so cutting by width leaves no orphans; ties stay in.
    thinnest = np.partition(tree.width, -MOST_FRAMES)[-MOST_FRAMES]
    return np.flatnonzero(tree.width > thinnest)


def _asset(name: str) -> str:
    return files("exhume.present").joinpath("assets", name).read_text(encoding="utf-8")
