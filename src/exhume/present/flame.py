"""Texts of a flame graph: its caption, names of frames, CPU times, and what changed most against the baseline."""

from dataclasses import dataclass, field

import numpy as np

from exhume.model.text import count, percent, points
from exhume.store.read.flame_tree import NODE_STATES, FlameTree, Floats, Ints


@dataclass(frozen=True, slots=True)
class FlameCaption:
    """The text around a flame graph: title, window, filters, blind spots."""

    title: str
    window: str
    baseline: str = ""
    filters: list[str] = field(default_factory=list)
    blind_spots: list[str] = field(default_factory=list)

    def subtitle(self, tree: FlameTree) -> str:
        parts = [self.window, *self.filters, count(int(tree.samples[0]), "sample"), cpu_time(int(tree.weight[0]))]
        if tree.differential:
            parts.append(f"against {self.baseline} ({count(int(tree.base_samples[0]), 'sample')})")
        return " · ".join(parts)


def cpu_time(weight_us: int) -> str:
    """CPU time in the unit that suits it."""
    if weight_us < 10_000:
        return f"{weight_us:,} us CPU"
    if weight_us < 10_000_000:
        return f"{weight_us / 1e3:,.0f} ms CPU"
    return f"{weight_us / 1e6:,.1f} s CPU"


def shown_name(raw: str) -> str:
    """A name on one line, whatever is in it."""
    return " ".join(raw.split()) or "(no name)"


def largest_changes(tree: FlameTree, most: int = 3) -> list[str]:
    """The functions whose own time changed most, as text; nothing without a baseline."""
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
