"""A flame graph as one SVG file without scripts, and the texts shared by all forms: caption, names, CPU times."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html import escape

import numpy as np

from exhume.model.text import count, percent, points
from exhume.present.palette import BY_NAME, GREW, SHRANK, UNCHANGED, blend
from exhume.store.read.flame_tree import COMM_KIND, NODE_STATES, ROOT_KIND, FlameTree, Floats, Ints

WIDTH, MARGIN, ROW, HEADER, FOOTER = 1200, 10, 17, 78, 28
CHARACTER = 6.65  # advance width of the 11 px monospace font
# Thinner frames can be neither seen nor clicked; the file states how many were left out.
THINNEST = 0.1
SHADES = {name: BY_NAME[name].hue for name in ("system", "softirq", "user")}
GROUND = "#b9bcc0"  # the root and the process frames, which are neither kernel nor user code
STYLE = """
.page { fill: #ffffff; }
text { fill: #16181d; }
.quiet { fill: #5b616b; }
.title { font: 600 17px system-ui, sans-serif; }
.strong { font-weight: 600; }
.f text { fill: #101216; pointer-events: none; }
@media (prefers-color-scheme: dark) {
  .page { fill: #14161a; }
  text { fill: #e8eaed; }
  .quiet { fill: #a3aab5; }
}
"""
# Characters that XML 1.0 forbids, even as character references.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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
    """CPU time in a suitable unit."""
    if weight_us < 10_000:
        return f"{weight_us:,} us CPU"
    if weight_us < 10_000_000:
        return f"{weight_us / 1e3:,.0f} ms CPU"
    return f"{weight_us / 1e6:,.1f} s CPU"


def shown_name(raw: str) -> str:
    """A name on one line, with whitespace collapsed."""
    return " ".join(raw.split()) or "(no name)"


def largest_changes(tree: FlameTree, most: int = 3) -> list[str]:
    """The functions whose own time changed most, as text; empty without a baseline."""
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


def render_svg(tree: FlameTree, caption: FlameCaption, *, up: bool = False) -> str:
    """Render a tree as SVG, with the root at the top or at the bottom."""
    inner = WIDTH - 2 * MARGIN
    place = f'x="{WIDTH // 2}" y="{HEADER + ROW * 2}" text-anchor="middle"'
    nothing = [f'<text class="strong" {place}>no samples in this window</text>'] if tree.empty else []
    notes = list(caption.blind_spots)
    drawn = np.flatnonzero(tree.width * inner >= THINNEST)
    depth = int(tree.depth[drawn].max()) + 1 if len(drawn) else 3
    height = HEADER + depth * ROW + FOOTER
    if not tree.empty and len(drawn) < len(tree):
        notes.append(f"{count(len(tree) - len(drawn), 'frame')} too thin to draw")
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
            f'font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="11">',
            f"<style>{STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}"/>',
            *_header(tree, caption),
            *nothing,
            '<g id="frames">',
            *_frames(tree, drawn, inner, depth if up else None),
            "</g>",
            f'<text class="quiet" x="{MARGIN}" y="{height - 8}">{text(" · ".join(notes))}</text>',
            "</svg>\n",
        ]
    )


def _header(tree: FlameTree, caption: FlameCaption) -> Iterator[str]:
    yield f'<text class="title" x="{MARGIN}" y="24">{text(caption.title)}</text>'
    yield f'<text class="quiet" x="{MARGIN}" y="42">{text(caption.subtitle(tree))}</text>'
    entries = [("grew", GREW), ("shrank", SHRANK)] if tree.differential else list(SHADES.items())
    x = MARGIN
    for name, hue in entries:
        meaning = name if tree.differential else f"{name}: {BY_NAME[name].meaning}"
        yield f'<rect x="{x}" y="55" width="10" height="10" rx="2" fill="{hue}"/>'
        yield f'<text class="quiet" x="{x + 15}" y="64">{meaning}</text>'
        x += round(len(meaning) * CHARACTER) + 36


def _frames(tree: FlameTree, drawn: Ints, inner: int, rows: int | None) -> Iterator[str]:
    """The frames as SVG: bottom-up over `rows` rows, or top-down if `rows` is None."""

    @cache
    def texts(label: int) -> tuple[str, str, str]:
        """The short name of a label, its full title as XML, and its location as XML; cached, as thousands of frames
        share them."""
        name, module, kind = (column[label] for column in (tree.labels.names, tree.labels.modules, tree.labels.kinds))
        where = "" if kind in (ROOT_KIND, COMM_KIND) else f"{shown_name(module or kind)}, "
        return shown_name(name), text(shown_name(name)), text(where)

    numbers = (tree.label, tree.x, tree.width, tree.depth, tree.share, tree.samples, tree.weight)
    baseline = (tree.base_share, tree.delta)
    columns = zip(*(column[drawn].tolist() for column in (*numbers, *baseline)), fills(tree, drawn), strict=True)
    for label, left, wide, depth, share, samples, weight, base_share, delta, colour in columns:
        row = depth if rows is None else rows - 1 - depth
        x, width, y = MARGIN + left * inner, wide * inner, HEADER + row * ROW
        room = int((width - 6) / CHARACTER)
        name, title, where = texts(label)
        shown = "" if room < 3 else title if len(name) <= room else text(name[: room - 1] + "…")
        against = f"; baseline {percent(base_share, 2)}, {points(delta)}" if tree.differential else ""
        yield (
            '<g class="f">'
            f"<title>{title}\n{where}{percent(share, 2)}, {count(samples, 'sample')}, {cpu_time(weight)}"
            f"{against}</title>"
            f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW - 1}" rx="1" fill="{colour}"/>'
            f'<text x="{x + 3:.2f}" y="{y + 12}">{shown}</text></g>'
        )


def text(raw: str) -> str:
    """A string escaped for XML text or an attribute value; forbidden characters are replaced."""
    return escape(_FORBIDDEN.sub("\ufffd", raw), quote=True)


def fills(tree: FlameTree, nodes: Ints) -> list[str]:
    """The fill colours of nodes: by state, or by growth and shrinkage if there is a baseline."""
    if tree.differential:
        largest = max(float(np.abs(tree.delta).max()), 1e-9)
        # The square root keeps small changes visible next to a large one.
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
    """The state's hue, slightly lighter or darker by label, so that neighbouring frames differ."""
    return blend(SHADES.get(NODE_STATES[state], GROUND), "#ffffff", 0.18 + variant * 0.055)
