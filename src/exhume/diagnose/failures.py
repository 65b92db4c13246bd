"""Which failures of jobs an incident explains: those that other programs reported during it or soon after.

A job that is starved fails when a timeout of its own is over: a lost heartbeat, a collective operation, a health check.
Their defaults are between some seconds and two minutes.
"""

from collections.abc import Sequence

from exhume.model.clock import NANOS, Wall, Window
from exhume.model.finding import Finding, JobFailure, Severity
from exhume.model.job_event import FAILURES, JOB_FAILED, SOURCE
from exhume.store.read.recording import Recording

# How long after the trouble a failure may still be its consequence.
AFTER_NS = 120 * NANOS
# More are counted by `exhume events`; a list of thousands explains nothing.
MOST = 50
# A job that failed is reported once for each of its nodes, with one time that is converted at several ticks.
_SAME_NS = NANOS


def explained_failures(recording: Recording, findings: Sequence[Finding]) -> list[JobFailure]:
    """The failures that came during or after the time of a finding above `info`, in their order, each with the first
    finding that fits. A job that was reported for several nodes is listed once."""
    severe = [finding for finding in findings if finding.severity is not Severity.INFO]
    if not severe:
        return []
    window = Window(min(each.focus[0] for each in severe), max(each.focus[1] for each in severe) + AFTER_NS)
    explained = []
    reported: dict[str, Wall] = {}
    for event in recording.events(window, FAILURES):
        # Of a sender, and not a line that is called the same.
        if event.source != SOURCE:
            continue
        # An actor runs on one node: each report of one is another failure.
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
