"""A comparison of two nodes or groups as one HTML file."""

from typing import Any

from exhume.fleet.compare import Comparison, Difference, Share, difference_text
from exhume.model.text import percent
from exhume.present.compare_view import GRAVE, NOTABLE, subtitle, unread_text
from exhume.present.events_view import visible
from exhume.present.html.flame import render

# More rows are not readable; the JSON has all of them.
MOST_ROWS = 2000


def compare_report(comparison: Comparison) -> str:
    """The comparison as one HTML file."""
    return render("compare", compare_data(comparison))


def compare_data(comparison: Comparison) -> dict[str, Any]:
    """The data of the report."""
    a, b, found = visible(comparison.a.label), visible(comparison.b.label), comparison.differences
    return {
        "title": f"{a} and {b}",
        "verdict": "different" if found else "identical",
        "sentence": visible(comparison.sentence),
        "subtitle": visible(subtitle(comparison)),
        "a": a,
        "b": b,
        "rows": [_row(each, comparison) for each in found[:MOST_ROWS]],
        "left_out": max(0, len(found) - MOST_ROWS),
        "not_compared": [visible(unread_text(each)) for each in comparison.unread],
    }


def _row(difference: Difference, comparison: Comparison) -> dict[str, Any]:
    weight = difference.weight
    return {
        "text": visible(difference_text(difference, comparison.a.label, comparison.b.label)),
        "name": visible(difference.name),
        "title": difference.title,
        "weight": weight,
        "level": "critical" if weight >= GRAVE else "warning" if weight >= NOTABLE else "info",
        "a": _cell(difference.a),
        "b": _cell(difference.b),
    }


def _cell(share: Share) -> str:
    of = "" if share.share >= 1.0 else f" ({percent(share.share, 0)})"
    because = f" because of {share.because}" if share.because else ""
    return visible(f"{'none' if share.value is None else share.value}{because}{of}")
