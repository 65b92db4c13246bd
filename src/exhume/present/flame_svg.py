"""A flame graph as one self-contained SVG file: search, zoom and reset work in any browser, without a network."""

import re
from collections.abc import Iterator
from html import escape
from importlib.resources import files

import numpy as np

from exhume.model.text import count
from exhume.present.flame import FlameTree, Ints
from exhume.present.flame_page import SHADES, FlamePage, describe, fills, shown_name
from exhume.present.palette import BY_NAME, GREW, SHRANK

WIDTH, MARGIN, ROW, HEADER, FOOTER = 1200, 10, 17, 78, 40
CHARACTER = 6.65  # advance of the 11 px monospace face
# Thinner than this can't be seen nor hit; the file says how many were left out.
THINNEST = 0.1
# Characters that XML 1.0 does not allow at all, not even as references.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_svg(tree: FlameTree, page: FlamePage) -> str:
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
            f"<style>{_asset('flame_svg.css')}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}"/>',
            *_header(tree, page),
            *_nothing(tree),
            '<g id="frames">',
            *_frames(tree, drawn, inner),
            "</g>",
            *_footer(tree, page, len(drawn), height),
            f"<script><![CDATA[\n{_asset('flame_svg.js')}]]></script>",
            "</svg>\n",
        ]
    )


def _header(tree: FlameTree, page: FlamePage) -> Iterator[str]:
    yield f'<text class="title" x="{MARGIN}" y="24">{text(page.title)}</text>'
    yield f'<text class="quiet" x="{MARGIN}" y="42">{text(page.subtitle(tree))}</text>'
    entries = [("grew", GREW), ("shrank", SHRANK)] if tree.differential else list(SHADES.items())
    x = MARGIN
    for name, hue in entries:
        meaning = name if tree.differential else f"{name}: {BY_NAME[name].meaning}"
        yield f'<rect x="{x}" y="55" width="10" height="10" rx="2" fill="{hue}"/>'
        yield f'<text class="quiet" x="{x + 15}" y="64">{meaning}</text>'
        x += round(len(meaning) * CHARACTER) + 36
    yield f'<text id="matched" class="strong" x="{WIDTH - 330}" y="64" text-anchor="end"></text>'
    yield (
        f'<foreignObject id="controls" x="{WIDTH - 320}" y="48" width="310" height="28" visibility="hidden">'
        '<div xmlns="http://www.w3.org/1999/xhtml" class="controls">'
        '<input id="search" type="search" placeholder="search (regular expression)  /" aria-label="search frames"/>'
        '<button id="reset" type="button">reset</button></div></foreignObject>'
    )


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
            f'<g class="f" data-x="{left:.8g}" data-w="{share:.8g}">'
            f"<title>{text(name)}\n{text(describe(tree, node))}</title>"
            f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW - 1}" rx="1" fill="{colour}"/>'
            f'<text x="{x + 3:.2f}" y="{y + 12}">{text(shown)}</text></g>'
        )


def _footer(tree: FlameTree, page: FlamePage, drawn: int, height: int) -> Iterator[str]:
    notes = list(page.blind_spots)
    if not tree.empty and drawn < len(tree):
        notes.append(f"{count(len(tree) - drawn, 'frame')} too thin to draw")
    yield f'<text id="details" class="strong" x="{MARGIN}" y="{height - 24}"></text>'
    yield f'<text class="quiet" x="{MARGIN}" y="{height - 8}">{text(" · ".join(notes))}</text>'


def text(raw: str) -> str:
    """Any string as XML text or attribute value."""
    return escape(_FORBIDDEN.sub("\ufffd", raw), quote=True)


def _asset(name: str) -> str:
    return files("exhume.present").joinpath("assets", name).read_text(encoding="utf-8")
