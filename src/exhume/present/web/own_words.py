"""What the recorder itself has to say on the timeline: what it lost, and when the clock that people see was set."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from exhume.model.clock import MILLIS, NANOS
from exhume.model.text import duration
from exhume.model.window import Window
from exhume.present.web.opened import Opened

LOST = "lost"
CLOCK = "clock-set"
# Less is the clock being slewed, which cuts segments too.
LEAST_STEP_NS = NANOS


def own_words(here: Opened, window: Window) -> list[dict[str, Any]]:
    """Rows like those of events."""
    losses = (
        (loss.wall, LOST, f"{loss.source}: {loss.count} {loss.kind}{loss.text and f', {loss.text}'}")
        for loss in here.losses()
    )
    return [
        {"wall": wall, "kind": kind, "severity": "warning", "source": "recorder", "text": text}
        for wall, kind, text in (*losses, *_clock_sets(here))
        if window.since <= wall < window.until
    ]


def _clock_sets(here: Opened) -> Iterator[tuple[int, str, str]]:
    """Segments are cut where wall time moves against the recorder's clock: their names tell it."""
    for before, after in pairwise(here.recording().segments):
        step = after.name.offset - before.name.offset
        if before.name.boot != after.name.boot or abs(step) < LEAST_STEP_NS:
            continue
        told = f"forward by {duration(step)}, or the node slept" if step > 0 else f"back by {duration(-step)}"
        what = "nothing is missing between" if step > 0 else "what was recorded at the same times lies on each other"
        yield after.name.wall_ms * MILLIS, CLOCK, f"the clock was set {told}: {what}"
