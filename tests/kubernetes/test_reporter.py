"""The recorder's side: what starts a child, faults of the API, and no effect on the recorder."""

import logging
import socket
import time

import numpy as np
import pytest
from tests.kubernetes.pretend_api import PretendApi, answering, broken, failing
from tests.notify.conftest import finding, incident_rows, report_of, tick_at, until

from exhume.kubernetes import reporter as module
from exhume.kubernetes.reporter import KubernetesReporter
from exhume.kubernetes.taint import TAINT_KEY, TaintPolicy
from exhume.model.clock import NANOS
from exhume.notify.outbox import Backoff

pytestmark = pytest.mark.slow

CALM = {"cpu": [{name: np.array([1, 2]) for name in ("system", "irq", "softirq", "steal")}]}


@pytest.fixture
def reporter(api):
    made = []

    def reporter(policy=None):
        made.append(KubernetesReporter("node-1", 300 * NANOS, policy, backoff=Backoff(0.05, 0.2)))
        made[-1].start()
        return made[-1]

    yield reporter
    for each in made:
        each.close(1)


def sent(each):
    until("the newest state is sent", lambda: each.outbox.delivered and not each.outbox.pending)


def test_conditions_appear_and_clear(reporter, api):
    each = reporter()
    each.observe(tick_at(1), CALM, [])
    until("the first report", lambda: "CPUStarved" in api.conditions())
    each.observe(tick_at(2), {**CALM, **{k: [v] for k, v in incident_rows(NANOS, "nic-reset").items()}}, [])
    until("the reset", lambda: api.conditions()["NICReset"] == ("True", "NicReset"))
    each.deliver(report_of(finding("rt-hog")))
    until("the diagnosis", lambda: api.conditions()["CPUStarved"] == ("True", "RtHog"))
    until("the event", lambda: len(api.events) == 1)
    each.observe(tick_at(400), CALM, [])
    until("it clears", lambda: {api.conditions()[type_][0] for type_ in ("CPUStarved", "NICReset")} == {"False"})


def test_an_earlier_recorders_condition_clears(reporter, api):
    api.nodes["node-1"]["status"]["conditions"].append(
        {"type": "CPUStarved", "status": "True", "reason": "Old", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    )
    each = reporter()
    each.observe(tick_at(1), CALM, [])
    sent(each)
    assert api.conditions()["CPUStarved"] == ("True", "Old")
    each.observe(tick_at(302), CALM, [])
    until("it clears", lambda: api.conditions()["CPUStarved"][0] == "False")


def test_a_quiet_node_starts_a_child_for_the_heartbeat_only(reporter, api):
    each = reporter()
    each.observe(tick_at(1), CALM, [])
    sent(each)
    requests = len(api.requests)
    for second in range(2, 1800):
        each.observe(tick_at(second), CALM, [])
    assert each.outbox.pending == 0 and len(api.requests) == requests
    each.observe(tick_at(1801), CALM, [])
    until("the heartbeat", lambda: len(api.requests) > requests)


def test_an_api_that_fails_in_all_ways_gets_the_newest_state_only(reporter, api, caplog):
    api.faults = [failing(500), broken, failing(429, Retry_After="0"), failing(409), failing(409), failing(409)]
    with caplog.at_level(logging.WARNING):
        each = reporter()
        each.observe(tick_at(1), CALM, [])
        for number in range(50):
            each.deliver(report_of(finding(f"cause-{number}")))
        until("it gets there", lambda: api.conditions().get("CPUStarved") == ("True", "Cause49"))
        until("all is sent", lambda: not each.outbox.pending and len(api.events) >= 32)
        until("it is logged", lambda: "delivers again" in caplog.text)
    # Some may have been sent before the others came.
    assert 32 <= len(api.events) <= 50
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 2 and "delivers again" in warnings[1]


def test_an_api_that_is_away_does_not_keep_the_recorder_waiting(reporter, api, monkeypatch):
    monkeypatch.setattr(module, "CHILD_TIMEOUT_S", 2.0)
    api.faults = [lambda handler: time.sleep(1) for _ in range(100)]
    each = reporter()
    began = time.thread_time()
    for second in range(1, 601):
        each.observe(tick_at(second), CALM, [])
    assert time.thread_time() - began < 2
    began = time.monotonic()
    each.close(0.5)
    assert time.monotonic() - began < 2


def test_an_api_that_is_away_for_ten_minutes_gets_what_is_true_then_and_every_incident(
    reporter, tmp_path, monkeypatch, caplog
):
    state = PretendApi()
    state.add_node("node-1")
    # Nothing listens there: connections are refused.
    reserved = socket.socket()
    reserved.bind(("127.0.0.1", 0))
    port = reserved.getsockname()[1]
    state.url = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("KUBECONFIG", str(state.kubeconfig(tmp_path / "kubeconfig")))
    each = reporter()
    each.observe(tick_at(1), {**CALM, **{k: [v] for k, v in incident_rows(NANOS, "nic-reset").items()}}, [])
    spent = time.thread_time()
    for second in range(2, 602):
        each.observe(tick_at(second), CALM, [])
        if second in (100, 300, 590):
            each.deliver(report_of(finding(f"cause-{second}")))
    assert time.thread_time() - spent < 2
    until("the outage is logged", lambda: "--kubernetes" in caplog.text)
    assert each.outbox.delivered == 0
    reserved.close()
    with answering(state, port):
        sent(each)
        # The reset is over, the newest diagnosis is not.
        assert state.conditions()["NICReset"][0] == "False"
        assert state.conditions()["CPUStarved"] == ("True", "Cause590")
        assert {event["reason"] for event in state.events.values()} == {"Cause100", "Cause300", "Cause590"}


def test_the_taint_comes_and_goes(reporter, api):
    for number in range(2, 12):
        api.add_node(f"node-{number}")
    each = reporter(TaintPolicy("NoSchedule", 0.1, 60 * NANOS, 600 * NANOS))

    def taints():
        return [taint["key"] for taint in api.nodes["node-1"]["spec"]["taints"]]

    each.observe(tick_at(1), CALM, [])
    sent(each)
    each.deliver(report_of(finding("rt-hog")))
    hot = {"cpu": [{**CALM["cpu"][0], "system": np.array([990, 0])}]}
    for second in range(2, 64):
        each.observe(tick_at(second), hot, [])
    until("the taint", lambda: taints() == [TAINT_KEY])
    for second in (400, 900, 1001):
        each.observe(tick_at(second), CALM, [])
    until("it goes", lambda: taints() == [])


def test_the_cost_of_observing(reporter, api):
    """A tick of 96 cores costs less than 0.03% of a second."""
    each = reporter()
    rows = {"cpu": [{name: np.zeros(96, np.int64) for name in ("system", "irq", "softirq", "steal")}]}
    each.observe(tick_at(1), rows, [])
    sent(each)
    each.deliver(report_of(finding()))
    sent(each)
    costs = []
    for second in range(2, 250):
        began = time.thread_time_ns()
        each.observe(tick_at(second), rows, [])
        costs.append(time.thread_time_ns() - began)
    assert sorted(costs)[len(costs) // 2] < 300_000


def pods_of(*uids):
    return {"processes": [{"pod": list(uids)}], **CALM}


def lists(api):
    return sum(path == "/api/v1/pods" for _, path in api.requests)


def test_owners_and_labels_come_with_the_first_report(reporter, api):
    api.add_pod("prod/db-0", "uid-db", "apps/v1 StatefulSet db")
    each, labels = reporter(), []
    each.on_labels = labels.append
    each.observe(tick_at(1), pods_of("uid-db", None), [])
    sent(each)
    assert each.pod_owners.of("uid-db") == "statefulset/db"
    assert [known.name for known in each.pod_owners.take(10)] == ["prod/db-0"]
    each.observe(tick_at(2), CALM, [])
    assert labels == [{"zone": "a", "instance-type": "m5.large"}]
    for second in range(3, 60):
        each.observe(tick_at(second), pods_of("uid-db"), [])
    assert each.outbox.pending == 0 and lists(api) == 1


def test_new_pods_are_asked_for_together_and_at_a_bounded_rate(reporter, api):
    each = reporter()
    each.observe(tick_at(1), CALM, [])
    sent(each)
    rounds = []
    for second in range(2, 1700):
        # A pod that comes and goes each second: the API has none of them.
        delivered = each.outbox.delivered
        each.observe(tick_at(second), pods_of(f"uid-{second}"), [])
        if each.outbox.pending or each.outbox.delivered > delivered:
            rounds.append(second)
            until("it is asked", lambda before=delivered: each.outbox.delivered > before)
    assert rounds[0] == 12, "pods that come within ten seconds are one question"
    assert len(rounds) <= module.NAMES_BURST + 1700 // 600 + 1
    assert lists(api) == 1 + len(rounds)


def test_a_pod_that_the_first_list_had_is_not_asked_for(reporter, api):
    api.add_pod("prod/db-0", "uid-db", "apps/v1 StatefulSet db")
    each = reporter()
    each.observe(tick_at(1), CALM, [])
    each.observe(tick_at(2), pods_of("uid-db"), [])
    sent(each)
    for second in range(3, 40):
        each.observe(tick_at(second), CALM, [])
    assert lists(api) == 1


def test_names_are_retried_with_the_job_and_denials_with_the_heartbeat(reporter, api):
    api.add_pod("prod/db-0", "uid-db", "apps/v1 StatefulSet db")
    # The node, its patch; then the list fails.
    original, failures = api.answer, [failing(500), failing(429, Retry_After="0"), broken]

    def answer(method, path, query, body):
        if path == "/api/v1/pods" and failures:
            return 503, {"kind": "Status", "code": 503, "message": failures.pop() and "made by the test"}
        return original(method, path, query, body)

    api.answer = answer
    each = reporter()
    each.observe(tick_at(1), CALM, [])
    until("the owner", lambda: "uid-db" in each.pod_owners)
    sent(each)
    api.denied = {"LIST pods"}
    api.add_pod("prod/new-0", "uid-new", "apps/v1 StatefulSet new")
    each.observe(tick_at(2), pods_of("uid-new"), [])
    asked = lists(api)
    each.observe(tick_at(13), CALM, [])
    until("it is asked", lambda: lists(api) > asked)
    sent(each)
    for second in range(14, 1700):
        each.observe(tick_at(second), pods_of("uid-new"), [])
    assert lists(api) == asked + 1
    api.denied = set()
    each.observe(tick_at(1801), CALM, [])
    until("the heartbeat asks again", lambda: each.pod_owners.of("uid-new") == "statefulset/new")
