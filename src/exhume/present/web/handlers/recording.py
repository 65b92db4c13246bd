"""The recording as a whole, also while nothing is recorded yet."""

from dataclasses import asdict

import numpy as np

from exhume.model.clock import NANOS, Window
from exhume.model.errors import RecordingError
from exhume.present.events_view import moments_of
from exhume.present.web.handle import RecordingHandle
from exhume.present.web.params import FilesParams, NoParams
from exhume.present.web.query import ms
from exhume.present.web.reply import Reply, json_reply
from exhume.present.web.schemas import Cost, LiveShape, Loss, MissingSource, RecordingShape
from exhume.store.read.core_grid import MEASURES, STATES
from exhume.store.read.progress import raise_if_cancelled
from exhume.store.read.recording import Recording

VERSION = 1
YOUNG_S = 60
COST_S = 60
_MAX_SKIPPED = 200
_FILES_AT_A_TIME = 60


def recording(handle: RecordingHandle, params: NoParams) -> Reply:
    """What is recorded, from where, and what was lost; also while nothing is recorded yet."""
    return json_reply(_shape(handle))


def status(handle: RecordingHandle, params: NoParams) -> LiveShape:
    """What changes while a recording grows."""
    span = handle.span()
    try:
        incidents = len(moments_of(handle.marks()))
        lost = sum(loss.count for loss in handle.losses())
        skipped = min(len(handle.recording().skipped), _MAX_SKIPPED)
    except RecordingError:
        incidents = lost = skipped = 0
    return LiveShape(
        since=ms(span.since), until=ms(span.until), live=handle.live(), lost=lost, skipped=skipped, incidents=incidents
    )


def check_files(handle: RecordingHandle, params: FilesParams) -> tuple[str, bool]:
    """Find files that can't be read, some segments at a time; returns the last segment checked, and whether there are
    more."""
    recording = handle.recording()
    sealed = [segment for segment in recording.segments if segment.sealed]
    names = [str(segment.name) for segment in sealed]
    first = names.index(params.after) + 1 if params.after in names else 0
    chunk = sealed[first : first + _FILES_AT_A_TIME]
    for segment in chunk:
        raise_if_cancelled()
        recording.look_at_files(segment)
    return str(chunk[-1].name) if chunk else params.after, first + len(chunk) < len(sealed)


def _shape(handle: RecordingHandle) -> RecordingShape:
    live = handle.live()
    try:
        found = handle.recording()
        facts, span = found.facts, found.span()
    except RecordingError as error:
        return _nothing(live, str(error))
    if span is None:
        return _nothing(live, "the recorder has begun; its first second is coming")
    losses: dict[tuple[str, str], Loss] = {}
    for loss in handle.losses():
        kept = losses.setdefault((loss.source, loss.kind), Loss(source=loss.source, kind=loss.kind, count=0, text=""))
        kept.count += loss.count
        kept.text = loss.text
    young = span.seconds < YOUNG_S
    return RecordingShape(
        version=VERSION,
        state="young" if young else "ready",
        hint=_young_hint(span, live) if young else "",
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
        missing=[MissingSource(**asdict(missing)) for missing in facts.sources_missing],
        skipped=[f"{skipped.path.relative_to(found.directory)}: {skipped.reason}" for skipped in found.skipped][
            :_MAX_SKIPPED
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


def _young_hint(span: Window, live: bool) -> str:
    hint = f"recorded {span.seconds:.0f} s so far"
    return f"{hint}; each second comes as it is recorded" if live else hint


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
