"""A flame graph as one SVG file without scripts: a picture for documents, with a tooltip on every frame."""

import re
from collections.abc import Iterator
from functools import cache
from html import escape

import numpy as np

from exhume.model.text import count, percent, points
from exhume.present.flame import FlameCaption, cpu_time, shown_name
from exhume.present.palette import BY_NAME, GREW, SHRANK, STATES, UNCHANGED, blend
from exhume.store.read.flame_tree import COMM_KIND, NODE_STATES, ROOT_KIND, FlameTree, Ints

WIDTH, MARGIN, ROW, HEADER, FOOTER = 1200, 10, 17, 78, 28
CHARACTER = 6.65  # advance of the 11 px monospace face
# Thinner than this can't be seen nor hit; the file says how many were left out.
THINNEST = 0.1
SHADES = {state.name: state.hue for state in STATES if state.name in ("system", "softirq", "user")}
GROUND = "#b9bcc0"  # the whole and the processes, which are neither kernel nor user code
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
# Characters that XML 1.0 does not allow at all, not even as references.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_svg(tree: FlameTree, caption: FlameCaption) -> str:
    """The picture of a tree."""
    inner = WIDTH - 2 * MARGIN
    drawn = np.flatnonzero(tree.width * inner >= THINNEST)
    depth = int(tree.depth[drawn].max()) + 1 if len(drawn) else 3
    height = HEADER + depth * ROW + FOOTER
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
            f'font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="11">',
            f"<style>{STYLE}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}"/>',
            *_header(tree, caption),
            *_nothing(tree),
            '<g id="frames">',
            *_frames(tree, drawn, inner),
            "</g>",
            *_footer(tree, caption, len(drawn), height),
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


def _nothing(tree: FlameTree) -> Iterator[str]:
    if tree.empty:
        place = f'x="{WIDTH // 2}" y="{HEADER + ROW * 2}" text-anchor="middle"'
        yield f'<text class="strong" {place}>no samples in this window</text>'


def _frames(tree: FlameTree, drawn: Ints, inner: int) -> Iterator[str]:
    columns = (drawn, tree.x[drawn], tree.width[drawn], tree.depth[drawn])
    for node, left, share, depth, colour in zip(
        *(column.tolist() for column in columns), fills(tree, drawn), strict=True
    ):
        x, width, y = MARGIN + left * inner, share * inner, HEADER + depth * ROW
        room = int((width - 6) / CHARACTER)
        name = shown_name(tree.name(node))
        shown = "" if room < 3 else name if len(name) <= room else name[: room - 1] + "…"
        yield (
            '<g class="f">'
            f"<title>{text(name)}\n{text(describe(tree, node))}</title>"
            f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW - 1}" rx="1" fill="{colour}"/>'
            f'<text x="{x + 3:.2f}" y="{y + 12}">{text(shown)}</text></g>'
        )


def _footer(tree: FlameTree, caption: FlameCaption, drawn: int, height: int) -> Iterator[str]:
    notes = list(caption.blind_spots)
    if not tree.empty and drawn < len(tree):
        notes.append(f"{count(len(tree) - drawn, 'frame')} too thin to draw")
    yield f'<text class="quiet" x="{MARGIN}" y="{height - 8}">{text(" · ".join(notes))}</text>'


def text(raw: str) -> str:
    """Any string as XML text or attribute value."""
    return escape(_FORBIDDEN.sub("\ufffd", raw), quote=True)


def describe(tree: FlameTree, node: int) -> str:
    """A frame as text: module, share, samples and CPU time, on either side."""
    label = int(tree.label[node])
    module, kind = tree.labels.modules[label], tree.labels.kinds[label]
    where = f"{shown_name(module or kind)}, " if kind not in (ROOT_KIND, COMM_KIND) else ""
    description = (
        f"{where}{percent(tree.share[node], 2)}, "
        f"{count(int(tree.samples[node]), 'sample')}, {cpu_time(int(tree.weight[node]))}"
    )
    if tree.differential:
        description += f"; baseline {percent(tree.base_share[node], 2)}, {points(tree.delta[node])}"
    return description


def fills(tree: FlameTree, nodes: Ints) -> list[str]:
    """The colours of nodes: by state, or by how much each grew or shrank when there is a baseline."""
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
    """The state's hue, a little lighter or darker by label, so that neighbours differ."""
    return blend(SHADES.get(NODE_STATES[state], GROUND), "#ffffff", 0.18 + variant * 0.055)
