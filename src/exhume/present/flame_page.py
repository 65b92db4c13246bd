"""What a flame graph says around its frames: title, window, filters, blind spots. Shared by its surfaces."""

from dataclasses import dataclass, field
from functools import cache

import numpy as np

from exhume.model.text import count, percent, points
from exhume.present.flame import COMM_KIND, NODE_STATES, ROOT_KIND, FlameTree, Ints
from exhume.present.palette import GREW, SHRANK, STATES, UNCHANGED, blend

SHADES = {state.name: state.hue for state in STATES if state.name in ("system", "softirq", "user")}
GROUND = "#b9bcc0"  # the whole and the processes, which are neither kernel nor user code


@dataclass(frozen=True, slots=True)
class FlamePage:
    """The words of one flame graph."""

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


def describe(tree: FlameTree, node: int) -> str:
    """One frame in words: where it is from and what it weighs on either side."""
    label = int(tree.label[node])
    module, kind = tree.labels.modules[label], tree.labels.kinds[label]
    where = f"{shown_name(module or kind)}, " if kind not in (ROOT_KIND, COMM_KIND) else ""
    said = (
        f"{where}{percent(tree.share[node], 2)}, "
        f"{count(int(tree.samples[node]), 'sample')}, {cpu_time(int(tree.weight[node]))}"
    )
    if tree.differential:
        said += f"; baseline {percent(tree.base_share[node], 2)}, {points(tree.delta[node])}"
    return said


def fills(tree: FlameTree, nodes: Ints) -> list[str]:
    """The colours of nodes: by state, or by how much each grew or shrank when there is a baseline."""
    if tree.differential:
        largest = max(float(np.abs(tree.delta).max()), 1e-9)
        # The square root keeps small changes visible beside a large one.
        return [
            blend(UNCHANGED, GREW if delta > 0 else SHRANK, (abs(delta) / largest) ** 0.5)
            for delta in tree.delta[nodes].tolist()
        ]
    return [
        _shade(state, label % 7)
        for state, label in zip(tree.state[nodes].tolist(), tree.label[nodes].tolist(), strict=True)
    ]


@cache
def _shade(state: int, variant: int) -> str:
    """The state's hue, a little lighter or darker by label, so that neighbours can be told apart."""
    return blend(SHADES.get(NODE_STATES[state], GROUND), "#ffffff", 0.18 + variant * 0.055)
