"""The view of a comparison: its JSON, and the selection of differences to show."""

from collections import Counter
from typing import Any

from exhume.fleet.compare import COMPARISON_VERSION, Comparison, Difference, Side, Unread, difference_text
from exhume.model.text import count
from exhume.present.serializer import Shape, Shapes, to_json

# Differences of low weight are shown, a few of them, only when there are no others.
LEAST_WEIGHT, LEAST_SHOWN, MOST_SHOWN = 0.4, 5, 20
# Weights from which a difference is grave, and notable.
GRAVE, NOTABLE = 0.8, 0.5


def compare_json(comparison: Comparison) -> dict[str, Any]:
    """The documented shape of `exhume compare --json`."""

    def with_text(difference: Difference, _: object) -> dict[str, str]:
        return {"text": difference_text(difference, comparison.a.label, comparison.b.label)}

    shapes: Shapes = {Side: Shape(omit=("counts",)), Difference: Shape(add=with_text)}
    found: dict[str, Any] = to_json(comparison, None, shapes)
    return {"version": COMPARISON_VERSION, "different": bool(comparison.differences), **found}


def shown_differences(comparison: Comparison, *, everything: bool = False) -> tuple[Difference, ...]:
    """The differences that get a line each."""
    found = comparison.differences
    if everything:
        return found
    worthy = sum(each.weight >= LEAST_WEIGHT for each in found)
    return found[: min(MOST_SHOWN, max(LEAST_SHOWN, worthy))]


def rest_text(comparison: Comparison, shown: int) -> str:
    """A summary of the differences without a line of their own: `41 x package, 12 x kernel module`."""
    kinds = Counter(each.title for each in comparison.differences[shown:])
    return ", ".join(f"{number:,} x {title}" for title, number in kinds.most_common())


def subtitle(comparison: Comparison) -> str:
    sides = [f"{side.label}: {side.detail}" for side in (comparison.a, comparison.b) if side.detail]
    counted = f"{count(comparison.compared, 'attribute')} compared, {len(comparison.differences):,} differ"
    return " · ".join((*sides, counted))


def unread_text(unread: Unread) -> str:
    return f"{unread.section}: not read on {unread.side} ({unread.reason})"
