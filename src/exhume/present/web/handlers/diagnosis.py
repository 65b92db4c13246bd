"""The diagnosis of a window or an incident, and the incidents that the recorder marked."""

import json
from datetime import UTC

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.finding import Diagnosis
from exhume.present.diagnosis_view import diagnosis_json
from exhume.present.events_view import Moment, moments_of
from exhume.present.web.handle import RecordingHandle
from exhume.present.web.params import DiagnosisParams, MomentParams, NoParams
from exhume.present.web.query import ms, window_of
from exhume.present.web.reply import Explanation, Incident, Refusal, Reply
from exhume.present.web.schemas import IncidentShape
from exhume.store.read.cached import CachedRecording

AROUND_MS = 120_000
LONGEST_MS = 24 * 3_600_000
NOTHING_RECORDED = "nothing was recorded in that time: choose another"


def diagnosis(handle: RecordingHandle, params: DiagnosisParams) -> Reply:
    """What starved the node in a window, or nearest to a moment."""
    at, since, until = params.at, params.since, params.until
    if at is not None and since is None and until is None:
        since, until = max(0, at - AROUND_MS), at + AROUND_MS
    # Raises RecordingError where there is none.
    handle.recording()
    window = window_of(handle, since, until)
    if window.nanos > LONGEST_MS * MILLIS:
        raise Refusal(413, "a diagnosis covers a day at most: choose a shorter time")
    if window.empty:
        raise Refusal(404, NOTHING_RECORDED)
    return Reply(_json(_diagnose(handle, window, None if at is None else at * MILLIS)))


def explain(handle: RecordingHandle, params: MomentParams) -> Explanation | None:
    """The diagnosis of one incident; None where nothing of it is left."""
    window = Window(params.since, params.until).clamp(handle.span())
    if window.empty:
        return None
    found = _diagnose(handle, window, params.at)
    if not found.findings:
        return Explanation({}, _json(found))
    finding = found.findings[0]
    fields = {
        "cause": finding.cause,
        "title": finding.title,
        "severity": str(finding.severity),
        "confidence": finding.confidence,
        "summary": finding.summary,
    }
    return Explanation(fields, _json(found))


def incident(handle: RecordingHandle, params: MomentParams) -> Reply:
    """The diagnosis of one incident, as an answer."""
    found = explain(handle, params)
    if found is None:
        raise Refusal(404, NOTHING_RECORDED)
    return Reply(found.body)


def incidents(handle: RecordingHandle, params: NoParams) -> list[Incident]:
    """The incidents that the recorder marked, in order."""
    return [_incident(moment) for moment in moments_of(handle.marks())]


def _incident(moment: Moment) -> Incident:
    first, last = moment.marks[0], moment.marks[-1]
    ends = [mark.wall + int((mark.value or 0) * NANOS) for mark in moment.marks if mark.cpu is not None]
    shape = IncidentShape(
        id=f"{ms(first.wall)}-{first.cpu if first.cpu is not None else 'x'}",
        since=ms(first.wall),
        until=ms(max([last.wall + NANOS, *ends])),
        at=ms(moment.at),
        text=first.text,
        marks=len(moment.marks),
        cpus=sorted({mark.cpu for mark in moment.marks if mark.cpu is not None}),
        state="waiting",
        cause=None,
        title=None,
        severity=None,
        confidence=None,
        summary=None,
    )
    return Incident(shape, MomentParams(since=moment.window.since, until=moment.window.until, at=moment.at))


def _diagnose(handle: RecordingHandle, window: Window, at: int | None) -> Diagnosis:
    # Loaded with the first diagnosis: the first view does not wait for it.
    from exhume.diagnose.engine import diagnose

    return diagnose(CachedRecording(handle.recording()), window, at=at)


def _json(found: Diagnosis) -> bytes:
    return json.dumps(
        diagnosis_json(found, UTC, millis=True), ensure_ascii=False, allow_nan=False, separators=(",", ":")
    ).encode()
