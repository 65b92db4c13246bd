"""Requests to the API, against a small server with faults."""

import json
import socket
import subprocess
from dataclasses import asdict

import httpx2
import pytest
from lightkube import Client
from tests.kubernetes.pretend_api import broken, failing
from tests.notify.conftest import WALL, finding, report_of

from exhume.kubernetes.api import Reporter
from exhume.kubernetes.conditions import QUIET, ConditionType
from exhume.kubernetes.events import events_of
from exhume.kubernetes.taint import TAINT_KEY
from exhume.model.isolation import isolated_python

UNKNOWN = dict.fromkeys(map(str, ConditionType))


def state(status=True, reason="RtHog"):
    return {"status": status, "reason": reason, "message": "m", "since": WALL}


def job(conditions=None, events=(), taint=None, names=None):
    specs = [event.to_json() for event in events]
    wanted = {"events": specs, "taint": taint, "names": names}
    return {"node": "node-1", "conditions": {**UNKNOWN, **(conditions or {})}, **wanted}


@pytest.fixture
def run(api):
    def run(what, node="node-1"):
        with Client(timeout=httpx2.Timeout(2)) as client:
            return Reporter(client, node).run(what)

    return run


def test_the_first_report_clears_what_is_not_known_and_keeps_the_kubelets(run, api):
    result = run(job())
    assert not result.problems
    assert api.conditions() == {
        "Ready": ("True", "KubeletReady"),
        **{str(type_): ("False", reason) for type_, (reason, _) in QUIET.items()},
    }


def test_what_is_set_is_found_again_after_a_restart(run, api):
    run(job({"NICReset": state()}))
    result = run(job())
    assert api.conditions()["NICReset"] == ("True", "RtHog")
    assert result.conditions["NICReset"]["status"] is True
    assert result.conditions["NICReset"]["since"] == WALL
    run(job({"NICReset": state(False, "NoReset")}))
    assert api.conditions()["NICReset"] == ("False", "NoReset")


def test_repeated_events_are_counted(run, api):
    events = events_of(report_of(finding("rt-hog")))
    for _ in range(3):
        assert run(job(events=events)).events_done == [events[0].name]
    (event,) = api.events.values()
    assert (event["count"], event["type"], event["source"]["host"]) == (3, "Warning", "node-1")


def test_an_event_that_expired_meanwhile_is_sent_again(run, api):
    """It existed when it was to be created, and is gone when it is to be counted."""
    events = events_of(report_of(finding()))
    original, refusals = api.answer, [True]

    def expired(method, path, query, body):
        if method == "POST" and refusals:
            refusals.pop()
            return 409, {"kind": "Status", "code": 409, "message": "already exists"}
        return original(method, path, query, body)

    api.answer = expired
    first = run(job(events=events))
    assert [(each.part, each.retry) for each in first.problems] == [("events", True)]
    assert run(job(events=events)).events_done == [events[0].name]


def test_a_conflict_is_tried_again_at_once(run, api):
    api.faults = [failing(409)]
    assert not run(job()).problems
    assert api.conditions()["CPUStarved"][0] == "False"


@pytest.mark.parametrize(
    ("fault", "retry_after"),
    [
        (failing(429, Retry_After="37"), 37.0),
        (failing(500), 0.0),
        (failing(503, b"<html>", "text/html"), 0.0),
        (failing(502, b"", ""), 0.0),
        (failing(200, b"<html>", "text/html"), 0.0),
        (failing(200, b"[]"), 0.0),
        (broken, 0.0),
    ],
    ids=["429", "500", "html-503", "bare-502", "html-200", "list", "broken"],
)
def test_faults_are_one_problem_that_is_retried(run, api, fault, retry_after):
    api.faults = [fault]
    problem = run(job()).problems[0]
    assert (problem.part, problem.retry, problem.retry_after_s) == ("conditions", True, retry_after)
    assert "secret-token" not in problem.text


def test_a_denial_names_what_is_denied_and_the_rest_is_done(run, api):
    api.denied = {"PATCH nodes/status"}
    result = run(job(events=events_of(report_of(finding()))))
    assert [(each.part, each.retry) for each in result.problems] == [("conditions", True)]
    assert result.problems[0].retry_after_s >= 60
    assert len(api.events) == 1


def test_denied_events_are_not_retried(run, api):
    api.denied = {"POST events"}
    result = run(job(events=events_of(report_of(finding()))))
    assert [(each.part, each.retry) for each in result.problems] == [("events", False)]
    assert api.conditions()["CPUStarved"][0] == "False"


def test_a_node_of_another_name(run):
    (problem, *_) = run(job(), node="other").problems
    assert "--node-name" in problem.text


def taint(wanted, share=0.1):
    return {"wanted": wanted, "effect": "NoSchedule", "share": share}


def our_taints(api, name="node-1"):
    return [each["effect"] for each in api.nodes[name]["spec"]["taints"] if each["key"] == TAINT_KEY]


@pytest.fixture
def zone(api):
    for number in range(2, 11):
        api.add_node(f"node-{number}")
    for number in range(11, 20):
        api.add_node(f"node-{number}", zone="b", taints=[{"key": TAINT_KEY, "effect": "NoSchedule"}])
    other = {"key": "dedicated", "effect": "NoSchedule", "value": "batch"}
    api.nodes["node-1"]["spec"]["taints"] = [other]
    return other


def test_a_taint_within_the_share_of_its_zone(run, api, zone):
    assert run(job(taint=taint(True))).tainted
    assert our_taints(api) == ["NoSchedule"]
    assert not run(job(taint=taint(False))).tainted
    assert [each["key"] for each in api.nodes["node-1"]["spec"]["taints"]] == ["dedicated"]


def test_no_taint_where_others_of_the_zone_have_it(run, api, zone):
    api.nodes["node-2"]["spec"]["taints"] = [{"key": TAINT_KEY, "effect": "NoSchedule"}]
    result = run(job(taint=taint(True)))
    assert not result.tainted and [each.part for each in result.problems] == ["taint"]
    assert our_taints(api) == []


def test_two_nodes_at_once_do_not_exceed_the_share(run, api, zone):
    """Another node gets its taint between our look and ours: the later one takes it back."""
    original = api.answer

    def meanwhile(method, path, query, body):
        found = original(method, path, query, body)
        if method == "PATCH" and "taints" in (body.get("spec") or {}) and not our_taints(api, "node-2"):
            earlier = {"key": TAINT_KEY, "effect": "NoSchedule", "timeAdded": "2020-01-01T00:00:00Z"}
            api.nodes["node-2"]["spec"]["taints"] = [earlier]
        return found

    api.answer = meanwhile
    assert not run(job(taint=taint(True))).tainted
    assert (our_taints(api), our_taints(api, "node-2")) == ([], ["NoSchedule"])


def test_a_taint_survives_a_conflict(run, api, zone):
    # The node's conditions, then the node and the zone are read; the patch of the taints conflicts.
    api.faults = []
    original, conflicts = api.answer, [True]

    def conflicting(method, path, query, body):
        if method == "PATCH" and "taints" in (body.get("spec") or {}) and conflicts:
            conflicts.pop()
            api.nodes["node-1"]["metadata"]["resourceVersion"] = "77"
        return original(method, path, query, body)

    api.answer = conflicting
    assert run(job(taint=taint(True))).tainted and not conflicts


def child(what, **environment):
    done = subprocess.run(
        isolated_python("exhume.kubernetes.api"),
        input=json.dumps(what),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_child_as_a_process(api, tmp_path):
    found = child(job({"CPUStarved": state()}), KUBECONFIG=str(api.kubeconfig(tmp_path / "config")))
    assert found["problems"] == []
    assert api.conditions()["CPUStarved"] == ("True", "RtHog")
    assert set(found) == set(asdict(Reporter(None, "x").result))


def test_no_access_is_one_sentence(tmp_path):
    (problem,) = child(job(), HOME=str(tmp_path))["problems"]
    assert problem["retry"] and "KUBECONFIG" in problem["text"]


def test_nothing_listens(api, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        api.url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        found = child(job(), KUBECONFIG=str(api.kubeconfig(tmp_path / "config")))
    assert [each["retry"] for each in found["problems"]] == [True]
