"""Which parts of a window were recorded at all."""

from collections.abc import Iterable

from exhume.model.clock import NANOS
from exhume.model.window import Window

# A tick may end late, and segments meet to the millisecond only: less than this is no gap.
SHORTEST_GAP_NS = NANOS


def gaps_between(spans: Iterable[Window], window: Window) -> list[Window]:
    """The parts of the window that no span covers. One that is empty covers nothing, wherever it stands."""
    found = []
    covered = window.since
    for span in sorted((each for each in spans if not each.empty), key=lambda span: span.since):
        if span.since - covered > SHORTEST_GAP_NS and covered < window.until:
            found.append(Window(covered, min(span.since, window.until)))
        covered = max(covered, span.until)
    if window.until - covered > SHORTEST_GAP_NS:
        found.append(Window(covered, window.until))
    return found
