"""The HTML template of all reports, and a flame graph in the form that the page and the reports share."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from exhume.model.clock import MILLIS, Window
from exhume.model.errors import ExhumeError
from exhume.present.events_view import visible
from exhume.present.flame import FlameCaption, largest_changes, shown_name
from exhume.store.read.flame_tree import NODE_STATES, FlameTree, Ints, Labels

if TYPE_CHECKING:
    # This is all that a command that writes a file needs from the server's package.
    from exhume.present.web.schemas import Labels as FlameLabels

Kind = Literal["flame", "diagnosis", "verify", "compare"]

# `web/report.html` contains each of these once, outside scripts and styles.
_TITLE, _DATA = "<!--report-title-->", "<!--report-data-->"


def render(kind: Kind, data: Mapping[str, Any]) -> str:
    """Render the report as one HTML file. `data` is one of the report shapes in `schemas.py` without its kind."""
    before, _, rest = template().partition(_TITLE)
    between, _, after = rest.partition(_DATA)
    content = embedded_json({"kind": kind, **data})
    return "".join((before, escape(str(data["title"])), between, content, after))


def embedded_json(data: Any) -> str:
    """JSON that is safe inside a script element: no string in it can end the element or open a comment."""
    encoded = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def template() -> str:
    """The built template: scripts and styles inlined, with a content security policy that allows them by hash."""
    try:
        return files("exhume.present").joinpath("web", "report", "report.html").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ExhumeError("the report template is not built; run `make web`, or install a released wheel") from None


# A report must be small enough to attach to a ticket: above this many frames, the thinnest are dropped and counted.
MAX_FRAMES = 20_000
# A standalone flame graph states its window as text, in the caption.
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
    """The `FlameShape` of a report."""
    kept = np.ones(len(tree), np.bool_)
    if len(tree) > MAX_FRAMES:
        # A child is never wider than its parent, so cutting by width leaves no orphans; frames as wide as the limit are
        # dropped.
        kept = tree.width > np.partition(tree.width, -MAX_FRAMES)[-MAX_FRAMES]
    shown = thin_out(tree, kept)
    labels = shown.labels
    return {
        **flame_fields(shown.tree, window, base),
        **{name: values.tolist() for name, values in shown.columns.items()},
        "baseline": caption.baseline,
        "blind_spots": [visible(each) for each in caption.blind_spots],
        "labels": {
            **labels,
            "name": [visible(shown_name(name)) for name in labels["name"]],
            "module": [visible(module) for module in labels["module"]],
        },
        "dropped": len(tree) - len(shown.tree),
        "changes": [visible(each) for each in largest_changes(tree, 5)],
    }


def flame_fields(tree: FlameTree, window: Window, base: Window | None) -> dict[str, Any]:
    """The scalar fields of a `FlameShape`."""
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


# A function whose frames were all dropped is still named if its own time is at least this share of the total.
_NAMED_SHARE = 1 / 2000


@dataclass(frozen=True, slots=True)
class ThinnedTree:
    """A tree without its thin frames, and the columns and labels of its `FlameShape`. Own times of frames and times of
    functions are those of the full tree: the time of dropped frames is not added to their callers."""

    tree: FlameTree
    columns: dict[str, Ints]
    labels: "FlameLabels"


def thin_out(tree: FlameTree, kept: npt.NDArray[np.bool_]) -> ThinnedTree:
    """The tree of the given nodes, whose parents must be among them."""
    times, whole, base = tree.functions, max(1, int(tree.weight[0])), max(1, int(tree.base_weight[0]))
    named = (times.own / whole >= _NAMED_SHARE) | (times.base_own / base >= _NAMED_SHARE)
    named[tree.label[kept]] = True
    shown = only(tree, kept, named)
    both = slice(None) if tree.differential else slice(0)
    columns = {
        "label": shown.label,
        "parent": shown.parent,
        "weight": shown.weight,
        "own": tree.self_weight[kept],
        "samples_of": shown.samples,
        "base_weight": shown.base_weight[both],
        "base_own": tree.self_base_weight[kept][both],
        "state": shown.state,
    }
    labels: FlameLabels = {
        "name": shown.labels.names,
        "module": shown.labels.modules,
        "kind": shown.labels.kinds,
        "own": times.own[named].tolist(),
        "total": times.total[named].tolist(),
        "base_own": times.base_own[named][both].tolist(),
    }
    return ThinnedTree(shown, columns, labels)


def only(tree: FlameTree, kept: npt.NDArray[np.bool_], named: npt.NDArray[np.bool_] | None = None) -> FlameTree:
    """The tree of the given nodes, whose parents must be among them, with the given labels; by default only labels in
    use."""
    if named is None:
        named = np.zeros(len(tree.labels.names), np.bool_)
        named[tree.label[kept]] = True
    labels, label = np.flatnonzero(named), (np.cumsum(named) - 1)[tree.label[kept]]
    of_labels = (tree.labels.names, tree.labels.modules, tree.labels.kinds)
    return FlameTree(
        Labels(*([values[i] for i in labels.tolist()] for values in of_labels)),
        label,
        (np.cumsum(kept) - 1)[tree.parent[kept]],
        tree.depth[kept],
        tree.weight[kept],
        tree.samples[kept],
        tree.base_weight[kept],
        tree.base_samples[kept],
        tree.differential,
    )
