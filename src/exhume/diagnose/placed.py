"""Where a culprit belongs, by the names that people know: a uid tells nobody which pod took the core."""

from dataclasses import replace

import numpy as np

from exhume.diagnose.belongings import container_names
from exhume.diagnose.case import Case
from exhume.model.finding import Culprit, Evidence, Finding, Link, Role


def with_names(case: Case, finding: Finding) -> Finding:
    """The finding with the names of its culprit's container and pod; the pod's is told in the chain where nothing in
    the finding says it yet."""
    culprit = _named(case, finding.culprit)
    finding = replace(finding, culprit=culprit)
    told = (finding.summary, *(link.text for link in finding.chain))
    if culprit.pod_name is None or culprit.comm is None or any(culprit.pod_name in text for text in told):
        return finding
    who = culprit.comm if culprit.pid is None else f"{culprit.comm} (pid {culprit.pid})"
    where = f"container {culprit.container_name}" if culprit.container_name else f"pod {culprit.pod_name}"
    link = Link(Role.CULPRIT, case.focus.since, f"{who} runs in {where}", _told_by(case, culprit))
    # Behind what is already told of the culprit, before what it comes from.
    at = sum(each.role is not Role.ROOT_CAUSE for each in finding.chain)
    return replace(finding, chain=(*finding.chain[:at], link, *finding.chain[at:]))


def _named(case: Case, culprit: Culprit) -> Culprit:
    pod, container = culprit.pod, culprit.container
    called = None
    if container is not None:
        called = case.names_in_pods.get(container)
        if called is None and (docker := container_names(case).get(container)) is not None:
            called = docker.name
    return replace(culprit, container_name=called, pod_name=case.pod_names.get(pod) if pod is not None else None)


def _told_by(case: Case, culprit: Culprit) -> tuple[Evidence, ...]:
    """The row that told the name, where the recording still reaches back to it."""
    rows = case.now("processes").matching("pod_name", culprit.pod_name or "")
    span = case.recording.span()
    if not len(rows) or span is None:
        return ()
    at = int(np.max(rows.wall))
    if not span.since <= at < span.until:
        return ()
    match = (("pod", culprit.pod or ""),)
    return (Evidence("processes", "pod_name", "last", culprit.pod_name or "", at, at + 1, match=match),)
