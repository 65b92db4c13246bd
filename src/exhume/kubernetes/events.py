"""Kubernetes events about an incident: on the node, on pods that waited for a core, and on the culprit."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from exhume.kubernetes.conditions import reason_of
from exhume.model.clock import NANOS
from exhume.model.finding import EntityKind
from exhume.notify.report import Report

# The API accepts 1,024 characters (pkg/apis/core/validation/events.go, NoteLengthLimit).
MAX_MESSAGE = 1000
# Pods that waited for less were hardly affected; only the worst few are named.
VICTIM_S, VICTIMS = 1.0, 3
# Repeated events within this time are combined into one with a count: servers keep events for an hour by default.
SERIES_NS = 3600 * NANOS
# Events of cluster-scoped objects go here, as the kubelet's do.
NODE_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class EventSpec:
    """An event to create, or to count again if it exists. `name` is the same for the same cause, object and hour."""

    name: str
    kind: str
    namespace: str
    object_name: str
    uid: str
    reason: str
    message: str
    at: int

    def to_json(self) -> dict[str, Any]:
        return {field: getattr(self, field) for field in self.__slots__}


def events_of(report: Report) -> list[EventSpec]:
    """The events of a report. In the kubelet's events about a node the uid is the node's name, and `kubectl describe
    node` looks for that."""
    text = f"{report.summary} [{report.cause}, {report.severity}, {report.confidence:.0%} sure]"
    node, reason = _Object("Node", NODE_NAMESPACE, report.node, report.node), reason_of(report.cause)
    found = [_event(report, node, reason, text)]
    for victim, seconds in _victims(report):
        waited = f"its threads waited {seconds:.1f} s for a core of node {report.node}: {report.summary}"
        found.append(_event(report, victim, "CPUStarved", f"{waited} [{report.cause}]"))
    found += [_event(report, culprit, reason, text) for culprit in _culprits(report)]
    return found


class _Object(NamedTuple):
    """The object that an event is about."""

    kind: str
    namespace: str
    name: str
    uid: str


def _event(report: Report, target: _Object, reason: str, message: str) -> EventSpec:
    at = report.marks[0].wall
    series = "\0".join((report.node, report.cause, *target, reason, str(at // SERIES_NS)))
    suffix = hashlib.sha256(series.encode("utf-8", "replace")).hexdigest()[:16]
    return EventSpec(f"{target.name[:200].lower()}.{suffix}", *target, reason, message[:MAX_MESSAGE], at)


def _victims(report: Report) -> Iterator[tuple[_Object, float]]:
    """The pods that waited longest, with their waiting time in seconds."""
    waiting = (report.diagnosis.get("accounting") or {}).get("waiting") or {}
    rows = [row for row in waiting.get("by_owner", ()) if row["kind"] == EntityKind.POD and row["seconds"] >= VICTIM_S]
    for row in sorted(rows, key=lambda row: -float(row["seconds"]))[:VICTIMS]:
        namespace, slash, pod = str(row["name"]).partition("/")
        if slash and row["id"]:
            yield _Object("Pod", namespace, pod, str(row["id"])), float(row["seconds"])


def _culprits(report: Report) -> Iterator[_Object]:
    for finding in report.findings[:1]:
        culprit: Mapping[str, Any] = finding.get("culprit") or {}
        namespace, slash, pod = str(culprit.get("pod_name") or "").partition("/")
        if slash and culprit.get("pod"):
            yield _Object("Pod", namespace, pod, str(culprit["pod"]))
