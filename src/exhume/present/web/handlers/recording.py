"""The recording as a whole, available even before anything is recorded."""

from contextlib import suppress
from dataclasses import asdict
from typing import Any

from exhume.diagnose.moments import moments_of
from exhume.model.clock import NANOS, Window
from exhume.model.errors import RecordingError
from exhume.model.tables import loss_total
from exhume.present.web.handle import RecordingHandle, ms
from exhume.present.web.params import FilesParams, QueryParams, RecordingParams
from exhume.present.web.schemas import Cost, LiveShape, Loss, Reply, json_reply
from exhume.store.read.core_grid import MEASURES, STATES
from exhume.store.read.health import HARMLESS_LOSSES
from exhume.store.read.progress import raise_if_cancelled
from exhume.store.read.recording import SelfCost
from exhume.store.write.lock import being_recorded

VERSION = 1
YOUNG_S = 60
COST_S = 60
_MAX_SKIPPED = 200
_FILES_AT_A_TIME = 60


def recording(handle: RecordingHandle, params: RecordingParams) -> Reply:
    """What is recorded, from which node, and what was lost; also available before anything is recorded."""
    shape: dict[str, Any] = {
        "version": VERSION,
        "state": "empty",
        "hint": "the recorder has begun; its first second is coming",
        **dict.fromkeys(("node", "kernel", "arch", "boot", "event_source"), ""),
        **dict.fromkeys(("cores", "since", "until", "rate_hz", "segments", "lost"), 0),
        **{name: [] for name in ("losses", "gaps", "missing", "skipped")},
        "labels": {},
        "timezone": "UTC",
        "live": being_recorded(handle.directory),
        "compared": handle.compared,
        "measures": list(MEASURES),
        "states": list(STATES),
        "cost": None,
    }
    try:
        found = handle.recording()
        facts, span = found.facts, found.span()
    except RecordingError as error:
        return json_reply({**shape, "hint": str(error)})
    if span is None:
        return json_reply(shape)
    losses: dict[tuple[str, str], Loss] = {}
    for loss in handle.losses():
        if loss.kind in HARMLESS_LOSSES:
            continue
        key = (loss.source, loss.kind)
        # A rate change counts once: its count is the new rate in Hz, not a number of losses.
        count = loss_total(loss.kind, loss.count) + (losses[key]["count"] if key in losses else 0)
        losses[key] = {"source": loss.source, "kind": loss.kind, "count": count, "text": loss.text}
    cost = found.self_cost(Window(span.until - COST_S * NANOS, span.until))
    young = span.seconds < YOUNG_S
    coming = "; each second comes as it is recorded" if shape["live"] else ""
    shape |= {
        "state": "young" if young else "ready",
        "hint": f"recorded {span.seconds:.0f} s so far{coming}" if young else "",
        "node": facts.node,
        "labels": facts.labels,
        "kernel": facts.kernel,
        "arch": facts.arch,
        "boot": facts.boot_id,
        "cores": facts.cores,
        "timezone": facts.timezone,
        "since": ms(span.since),
        "until": ms(span.until),
        # The current rate: a recorder over its budget lowers it.
        "rate_hz": cost.newest_rate_hz or facts.rate_hz,
        "event_source": facts.event_source,
        "segments": len(found.segments),
        "lost": sum(loss["count"] for loss in losses.values()),
        "losses": list(losses.values()),
        "gaps": [(ms(gap.since), ms(gap.until)) for gap in found.gaps(span)],
        "missing": [asdict(each) for each in facts.sources_missing],
        "skipped": [
            f"{each.path.relative_to(found.directory)}: {each.reason}" for each in found.skipped[:_MAX_SKIPPED]
        ],
        "cost": _cost(cost),
    }
    return json_reply(shape)


def _cost(cost: SelfCost) -> Cost | None:
    if not cost.seconds:
        return None
    return {"cpu_percent": round(cost.cpu_percent_mean, 3), "memory_mb": round(cost.rss_kb_max / 1000, 1)}


def status(handle: RecordingHandle, params: QueryParams) -> LiveShape:
    """The properties of a recording that change while it grows."""
    span = handle.span()
    shape: LiveShape = {
        "since": ms(span.since),
        "until": ms(span.until),
        "live": being_recorded(handle.directory),
        "lost": 0,
        "skipped": 0,
        "incidents": 0,
    }
    with suppress(RecordingError):
        shape["incidents"] = len(moments_of(handle.marks()))
        shape["lost"] = sum(
            loss_total(loss.kind, loss.count) for loss in handle.losses() if loss.kind not in HARMLESS_LOSSES
        )
        shape["skipped"] = min(len(handle.recording().skipped), _MAX_SKIPPED)
    return shape


def check_files(handle: RecordingHandle, params: FilesParams) -> tuple[str, bool]:
    """Check some segments for unreadable files; returns the last segment checked, and whether more remain."""
    recording = handle.recording()
    sealed = [segment for segment in recording.segments if segment.sealed]
    names = [str(segment.name) for segment in sealed]
    first = names.index(params.after) + 1 if params.after in names else 0
    chunk = sealed[first : first + _FILES_AT_A_TIME]
    for segment in chunk:
        raise_if_cancelled()
        recording.look_at_files(segment)
    return str(chunk[-1].name) if chunk else params.after, first + len(chunk) < len(sealed)
