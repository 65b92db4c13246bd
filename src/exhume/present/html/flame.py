"""The template of all reports, and a flame graph as the page and the reports have it."""

import json
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from exhume.model.clock import MILLIS, Window
from exhume.model.errors import ExhumeError
from exhume.present.events_view import visible
from exhume.present.flame import FlameCaption, largest_changes, shown_name
from exhume.store.read.flame_tree import NODE_STATES, FlameTree, Ints, Labels

Kind = Literal["flame", "diagnosis", "verify", "compare"]

# `web/report.html` has both once, outside of scripts and styles.
_TITLE, _DATA = "<!--report-title-->", "<!--report-data-->"


def render(kind: Kind, data: Mapping[str, Any]) -> str:
    """The report as one HTML file. `data` is one of the reports of `schemas.py` without its kind."""
    before, _, rest = template().partition(_TITLE)
    between, _, after = rest.partition(_DATA)
    content = embedded_json({"kind": kind, **data})
    return "".join((before, escape(str(data["title"])), between, content, after))


def embedded_json(data: Any) -> str:
    """JSON for a script element: no string in it can end the element or open a comment."""
    encoded = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def template() -> str:
    """The built template: scripts and styles inlined, with a policy that allows them by hash."""
    try:
        return files("exhume.present").joinpath("web", "report", "report.html").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ExhumeError("the report template is not built; run `make web`, or install a released wheel") from None


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
    """A `FlameShape` for a report."""
    shown = tree
    if len(tree) > MAX_FRAMES:
        # A child is never wider than its parent, so cutting by width leaves no orphans; ties stay out.
        shown = only(tree, tree.width > np.partition(tree.width, -MAX_FRAMES)[-MAX_FRAMES])
    labels = shown.labels
    return {
        **flame_fields(shown, window, base),
        **{name: values.tolist() for name, values in flame_columns(shown).items()},
        "baseline": caption.baseline,
        "blind_spots": [visible(each) for each in caption.blind_spots],
        "labels": {
            "name": [visible(shown_name(name)) for name in labels.names],
            "module": [visible(module) for module in labels.modules],
            "kind": labels.kinds,
        },
        "dropped": len(tree) - len(shown),
        "changes": [visible(each) for each in largest_changes(tree, 5)],
    }


def flame_fields(tree: FlameTree, window: Window, base: Window | None) -> dict[str, Any]:
    """The fields of a `FlameShape` that are numbers or the same everywhere."""
    return {
        "since": window.since // MILLIS,
        "until": window.until // MILLIS,
        "base_since": None if base is None else base.since // MILLIS,
        "base_until": None if base is None else base.until // MILLIS,
        "differential": tree.differential,
        "samples": int(tree.samples[0]),
        "weight_us": int(tree.weight[0]),
        "base_samples": int(tree.base_samples[0]),
        "base_weight_us": int(tree.base_weight[0]),
        "states": list(NODE_STATES),
    }


def flame_columns(tree: FlameTree) -> dict[str, Ints]:
    """The columns of a `FlameShape`, parents first."""
    return {
        "label": tree.label,
        "parent": tree.parent,
        "weight": tree.weight,
        "samples_of": tree.samples,
        "base_weight": tree.base_weight if tree.differential else tree.base_weight[:0],
        "state": tree.state,
    }


def only(tree: FlameTree, kept: npt.NDArray[np.bool_]) -> FlameTree:
    """The tree of these nodes, whose parents are among them; labels that nothing refers to go too."""
    labels, label = np.unique(tree.label[kept], return_inverse=True)
    of_labels = (tree.labels.names, tree.labels.modules, tree.labels.kinds)
    return FlameTree(
        Labels(*([values[i] for i in labels.tolist()] for values in of_labels)),
        label.astype(np.int64),
        (np.cumsum(kept) - 1)[tree.parent[kept]],
        tree.depth[kept],
        tree.weight[kept],
        tree.samples[kept],
        tree.base_weight[kept],
        tree.base_samples[kept],
        tree.differential,
    )
