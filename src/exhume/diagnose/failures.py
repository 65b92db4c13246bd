"""Find the job failures that an incident explains: those that other programs reported during it or soon after.

A starved job fails when one of its own timeouts expires: a lost heartbeat, a collective operation, a health check. The
default timeouts are between some seconds and two minutes.
"""

from collections.abc import Sequence

from exhume.model.clock import NANOS, Wall, Window
from exhume.model.finding import Finding, JobFailure, Severity
from exhume.model.job_event import FAILURES, JOB_FAILED, SOURCE
from exhume.store.read.recording import Recording

# A failure may still be a consequence this long after the trouble.
AFTER_NS = 120 * NANOS
# `exhume events` counts the rest; a list of thousands explains nothing.
MOST = 50
# A failed job is reported once for each of its nodes, with one timestamp that is converted at several ticks.
_SAME_NS = NANOS


def explained_failures(recording: Recording, findings: Sequence[Finding]) -> list[JobFailure]:
    """The failures during or shortly after a finding above `info`, in order, each with the first finding that fits. A
    job that was reported for several nodes is listed once."""
    severe = [finding for finding in findings if finding.severity is not Severity.INFO]
    if not severe:
        return []
    window = Window(min(each.focus[0] for each in severe), max(each.focus[1] for each in severe) + AFTER_NS)
    explained = []
    reported: dict[str, Wall] = {}
    for event in recording.events(window, FAILURES):
        # Only events of a sender; other lines may have the same kind.
        if event.source != SOURCE:
            continue
        # An actor runs on one node: each of its reports is another failure.
        if event.kind == JOB_FAILED and event.job is not None and event.member is not None:
            before = reported.get(event.job)
            reported[event.job] = event.wall
            if before is not None and event.wall - before < _SAME_NS:
                continue
        cause = next((each for each in severe if each.focus[0] <= event.wall < each.focus[1] + AFTER_NS), None)
        if cause is not None:
            after = round((event.wall - cause.focus[0]) / NANOS, 3)
            explained.append(JobFailure(event.wall, event.kind, event.text, cause.cause, after))
    return explained[:MOST]
