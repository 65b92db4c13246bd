"""What is known of the recording as a whole, for the page: also while nothing is recorded yet."""

import numpy as np

from exhume.model.clock import NANOS
from exhume.model.errors import RecordingError
from exhume.model.window import Window
from exhume.present.web.asked import ms
from exhume.present.web.opened import Opened
from exhume.present.web.shapes import Cost, Loss, RecordingShape
from exhume.store.read.core_grid import MEASURES, STATES
from exhume.store.read.recording import Recording

VERSION = 1
YOUNG_S = 60
COST_S = 60
_NO_LIMIT = 200


def about(here: Opened) -> RecordingShape:
    """What is recorded, from where, and what was lost."""
    live = here.live()
    try:
        found = here.recording()
        facts, span = found.facts, found.span()
    except RecordingError as error:
        return _nothing(live, str(error))
    if span is None:
        return _nothing(live, "the recorder has begun; its first second is coming")
    losses: dict[tuple[str, str], Loss] = {}
    for loss in here.losses():
        kept = losses.setdefault((loss.source, loss.kind), Loss(source=loss.source, kind=loss.kind, count=0, text=""))
        kept.count += loss.count
        kept.text = loss.text
    young = span.seconds < YOUNG_S
    return RecordingShape(
        version=VERSION,
        state="young" if young else "ready",
        hint=_young_words(span, live) if young else "",
        node=facts.node,
        kernel=facts.kernel,
        arch=facts.arch,
        boot=facts.boot_id,
        cores=facts.cores,
        timezone=facts.timezone,
        since=ms(span.since),
        until=ms(span.until),
        live=live,
        rate_hz=facts.rate_hz,
        event_source=facts.event_source,
        segments=len(found.segments),
        lost=sum(loss.count for loss in losses.values()),
        losses=list(losses.values()),
        gaps=[(ms(gap.since), ms(gap.until)) for gap in found.gaps(span)],
        missing=[str(missing) for missing in facts.sources_missing],
        skipped=[f"{skipped.path.relative_to(found.directory)}: {skipped.reason}" for skipped in found.skipped][
            :_NO_LIMIT
        ],
        measures=list(MEASURES),
        states=list(STATES),
        cost=_cost(found, span),
    )


def _cost(found: Recording, span: Window) -> Cost | None:
    rows = found.read(
        "self", Window(span.until - COST_S * NANOS, span.until), ["span_ms", "user_us", "system_us", "rss_kb"]
    )
    if not rows.num_rows:
        return None
    used, span_us, rss = (
        rows.column("user_us").to_numpy().astype(np.int64) + rows.column("system_us").to_numpy(),
        rows.column("span_ms").to_numpy().astype(np.int64) * 1000,
        rows.column("rss_kb").to_numpy(),
    )
    percent = 100 * float(used.sum()) / max(1.0, float(span_us.sum()))
    return Cost(cpu_percent=round(percent, 3), memory_mb=round(float(rss[-1]) / 1000, 1))


def _young_words(span: Window, live: bool) -> str:
    said = f"recorded {span.seconds:.0f} s so far"
    return f"{said}; each second comes as it is recorded" if live else said


def _nothing(live: bool, why: str) -> RecordingShape:
    return RecordingShape(
        version=VERSION,
        state="empty",
        hint=why,
        node="",
        kernel="",
        arch="",
        boot="",
        cores=0,
        timezone="UTC",
        since=0,
        until=0,
        live=live,
        rate_hz=0,
        event_source="",
        segments=0,
        lost=0,
        losses=[],
        gaps=[],
        missing=[],
        skipped=[],
        measures=list(MEASURES),
        states=list(STATES),
        cost=None,
    )


def lost_count(here: Opened) -> int:
    """How much was lost in all."""
    try:
        return sum(loss.count for loss in here.losses())
    except RecordingError:
        return 0


def skipped_count(here: Opened) -> int:
    """How many files are known that could not be read."""
    try:
        return min(len(here.recording().skipped), _NO_LIMIT)
    except RecordingError:
        return 0
