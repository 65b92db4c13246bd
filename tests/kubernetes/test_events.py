"""Events on the node, the victims and the culprit."""

import re

from tests.notify.conftest import WALL, finding, report_of

from exhume.kubernetes.events import MAX_MESSAGE, VICTIMS, events_of
from exhume.model.clock import NANOS
from exhume.notify.report import Mark


def owner(name, seconds, kind="pod", id_="uid-1"):
    return {"kind": kind, "id": id_, "name": name, "seconds": seconds, "share": 0.1}


def waiting(*rows):
    return {"waiting": {"by_owner": list(rows)}}


def test_the_node_the_victims_and_the_culprit():
    culprit = finding("rt-hog", culprit={"pod": "uid-9", "pod_name": "ops/spinner-1"})
    rows = [owner("shop/web-1", 4.0), owner("shop/small", 0.5), owner("x.service", 9.0, kind="unit")]
    node, victim, blamed = events_of(report_of(culprit, accounting=waiting(*rows)))
    assert (node.kind, node.namespace, node.object_name, node.uid, node.reason) == (
        *("Node", "default", "node-1", "node-1"),
        "RtHog",
    )
    assert (victim.namespace, victim.object_name, victim.uid, victim.reason) == ("shop", "web-1", "uid-1", "CPUStarved")
    assert (blamed.namespace, blamed.object_name, blamed.uid, blamed.reason) == ("ops", "spinner-1", "uid-9", "RtHog")
    assert "4.0 s" in victim.message


def test_the_worst_victims_only():
    rows = [owner(f"shop/web-{n}", 10.0 + n, id_=f"uid-{n}") for n in range(20)]
    found = events_of(report_of(finding(), accounting=waiting(*rows)))
    assert [each.object_name for each in found[1:]] == ["web-19", "web-18", "web-17"]
    assert len(found) == VICTIMS + 1


def test_names_are_the_same_within_the_hour_and_valid():
    def name(wall, cause="rt-hog"):
        return events_of(report_of(finding(cause), marks=[Mark(0, wall, "core", "x")], node="Node_A"))[0].name

    hour = WALL // (3600 * NANOS) * 3600 * NANOS
    assert name(hour) == name(hour + 3599 * NANOS)
    assert len({name(hour), name(hour + 3600 * NANOS), name(hour, "other")}) == 3
    node_1 = events_of(report_of(finding()))[0].name
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", node_1)


def test_no_diagnosis_is_still_an_event():
    (node,) = events_of(report_of(verdict="unknown"))
    assert (node.reason, node.kind) == ("Unexplained", "Node")


def test_messages_are_bounded():
    assert len(events_of(report_of(finding(summary="x" * 5000)))[0].message) == MAX_MESSAGE
