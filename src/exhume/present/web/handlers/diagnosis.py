"""The diagnosis of a window or an incident, and the incidents that the recorder marked."""

import platform
from datetime import UTC
from typing import Any

from exhume.diagnose.moments import best_finding, moments_of
from exhume.model.clock import MILLIS, Window
from exhume.model.finding import Diagnosis
from exhume.present.diagnosis_view import diagnosis_json
from exhume.present.web.handle import RecordingHandle, ms
from exhume.present.web.params import DiagnosisParams, MomentParams, RecordingParams, Refusal
from exhume.present.web.schemas import IncidentShape, Reply, json_reply
from exhume.store.read.cached import CachedRecording

AROUND_MS = 120_000
LONGEST_MS = 24 * 3_600_000
NOTHING_RECORDED = "nothing was recorded in that time: choose another"


def diagnosis(handle: RecordingHandle, params: DiagnosisParams) -> Reply:
    """What starved the node in a window, or nearest to a moment."""
    at, since, until = params.at, params.since, params.until
    if at is not None and since is None and until is None:
        since, until = max(0, at - AROUND_MS), at + AROUND_MS
    # Fail early: raises RecordingError if there is no recording.
    handle.recording()
    window = handle.window(since, until)
    if window.nanos > LONGEST_MS * MILLIS:
        raise Refusal(413, "a diagnosis covers a day at most: choose a shorter time")
    if window.empty:
        raise Refusal(404, NOTHING_RECORDED)
    return _reply(_diagnose(handle, window, None if at is None else at * MILLIS))


def explain(handle: RecordingHandle, params: MomentParams) -> tuple[dict[str, Any], bytes] | None:
    """The best finding of an incident (empty if nothing explains it), and the whole diagnosis as JSON; None if the
    window is no longer recorded."""
    window = Window(params.since, params.until).clamp(handle.span())
    if window.empty:
        return None
    found = _diagnose(handle, window, params.at)
    fields = ("cause", "title", "severity", "confidence", "summary")
    best = best_finding(found.findings, params.trigger)
    finding = {} if best is None else {name: getattr(best, name) for name in fields}
    return finding, _reply(found).body


def incident(handle: RecordingHandle, params: MomentParams) -> Reply:
    """The response with the diagnosis of one incident."""
    found = explain(handle, params)
    if found is None:
        raise Refusal(404, NOTHING_RECORDED)
    return Reply(found[1])


def incidents(handle: RecordingHandle, params: RecordingParams) -> list[tuple[IncidentShape, MomentParams]]:
    """The incidents that the recorder marked, in order, each with the parameters for requesting its diagnosis."""
    found: list[tuple[IncidentShape, MomentParams]] = []
    for moment in moments_of(handle.marks()):
        first = moment.marks[0]
        shape: IncidentShape = {
            "id": f"{ms(first.wall)}-{first.cpu if first.cpu is not None else 'x'}",
            "since": ms(moment.span.since),
            "until": ms(moment.span.until),
            "at": ms(moment.at),
            "text": first.text,
            "marks": len(moment.marks),
            "cpus": sorted({mark.cpu for mark in moment.marks if mark.cpu is not None}),
            "state": "waiting",
            "cause": None,
            "title": None,
            "severity": None,
            "confidence": None,
            "summary": None,
        }
        window = moment.window
        times = {"since": window.since, "until": window.until, "at": moment.at}
        found.append((shape, MomentParams(**times, trigger=moment.trigger, recording=params.recording)))
    return found


def _diagnose(handle: RecordingHandle, window: Window, at: int | None) -> Diagnosis:
    # Imported with the first diagnosis, so that the first view does not wait for it.
    from exhume.diagnose.engine import diagnose

    return diagnose(CachedRecording(handle.recording()), window, at=at).seen_from(platform.node())


def _reply(found: Diagnosis) -> Reply:
    return json_reply(diagnosis_json(found, UTC, millis=True))
