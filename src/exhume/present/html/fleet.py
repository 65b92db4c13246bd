"""A fleet report as one HTML file without scripts, made of tables and sentences."""

from collections.abc import Iterator, Sequence
from datetime import tzinfo
from html import escape

from exhume.fleet.report import FleetReport
from exhume.present.events_view import visible
from exhume.present.fleet_view import Part, headline, parts, subtitle, verdict
from exhume.present.palette import GREEN, ORANGE, RED

_COLOURS = {"separated": RED, "clustered": ORANGE, "scattered": ORANGE, "at-risk": ORANGE, "healthy": GREEN}
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
.verdict { background: %s; color: #000; padding: .1rem .5rem; border-radius: .2rem; }
.dim { opacity: .7; } p { margin: .3rem 0; }
table { border-collapse: collapse; margin: .5rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .8rem .15rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; border-bottom: 1px solid; } .right { text-align: right; }
div { overflow-x: auto; }
"""


def fleet_report(report: FleetReport, zone: tzinfo | None, by: Sequence[str] = ()) -> str:
    """The report as one HTML file."""
    found = verdict(report)
    body = "".join(part for each in parts(report, zone, by) for part in _part(each))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{_text(f'fleet: {found}')}</title><style>{_STYLE % _COLOURS[found]}</style></head><body>"
        f'<h1><span class="verdict">{_text(found)}</span> {_text(headline(report))}</h1>'
        f'<p class="dim">{_text(subtitle(report, zone))}</p>{body}</body></html>\n'
    )


def _part(part: Part) -> Iterator[str]:
    yield f"<section><h2>{_text(part.title[:1].upper() + part.title[1:])}</h2>"
    yield from (f"<p>{_text(each)}</p>" for each in part.sentences)
    if part.rows:
        yield "<div><table><thead>"
        yield _row(part.header, "th", part.right)
        yield "</thead><tbody>"
        yield from (_row(row, "td", part.right) for row in part.rows)
        yield "</tbody></table></div>"
    yield "</section>"


def _row(cells: Sequence[str], tag: str, right: Sequence[int]) -> str:
    scope = ' scope="col"' if tag == "th" else ""
    sides = [' class="right"' if place in right else "" for place in range(len(cells))]
    made = (f"<{tag}{scope}{side}>{_text(cell)}</{tag}>" for side, cell in zip(sides, cells, strict=True))
    return f"<tr>{''.join(made)}</tr>"


def _text(text: str) -> str:
    return escape(visible(text))
