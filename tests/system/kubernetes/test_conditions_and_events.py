"""Conditions, events, a taint and RBAC against a real API server."""

import json
from collections.abc import Iterator

import numpy as np
import pytest
from tests.notify.conftest import finding, incident_rows, report_of, tick_at
from tests.system.kubernetes.own_cluster import Cluster, own_api_server, until

from exhume.kubernetes.reporter import KubernetesReporter
from exhume.kubernetes.taint import TAINT_KEY, TaintPolicy
from exhume.model.clock import NANOS
from exhume.notify.outbox import Backoff

pytestmark = [pytest.mark.kubernetes, pytest.mark.root]

CALM = {"cpu": [{name: np.array([1]) for name in ("system", "irq", "softirq", "steal")}]}
HOT = {"cpu": [{**CALM["cpu"][0], "system": np.array([990])}]}
# What docs/kubernetes-conditions.md lists.
RULES = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "get", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
]


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    with own_api_server() as cluster:
        for number in range(1, 11):
            cluster.apply(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": f"node-{number}", "labels": {"topology.kubernetes.io/zone": "a"}},
                }
            )
        yield cluster


@pytest.fixture
def reporter(server, monkeypatch):
    """A reporter with the rights of a role, as the admin sees it."""
    made = []

    def reporter(policy=None, kubeconfig=None):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig or server.kubeconfig))
        made.append(KubernetesReporter("node-1", 300 * NANOS, policy, backoff=Backoff(0.2, 1.0)))
        made[-1].start()
        return made[-1]

    yield reporter
    for each in made:
        each.close(1)


def conditions(server):
    found = server.get("node", "node-1")["status"].get("conditions", [])
    return {each["type"]: (each["status"], each["reason"]) for each in found}


def test_conditions_and_events_appear_and_clear(server, reporter):
    each = reporter()
    each.observe(tick_at(1), CALM, [])
    until("the first report", lambda: conditions(server).get("CPUStarved") == ("False", "NoStarvation"))
    marks = {table: [columns] for table, columns in incident_rows(NANOS, "nic-reset", device="eth0").items()}
    each.observe(tick_at(2), {**CALM, **marks}, [])
    victims = {"waiting": {"by_owner": [{"kind": "pod", "id": "uid-1", "name": "default/web-1", "seconds": 4.0}]}}
    each.deliver(report_of(finding("rt-hog"), accounting=victims))
    until("both are set", lambda: conditions(server).get("NICReset", "")[0] == "True")
    until("starved", lambda: conditions(server)["CPUStarved"] == ("True", "RtHog"))
    until("two events", lambda: len(server.get("events")["items"]) == 2)
    each.deliver(report_of(finding("rt-hog")))
    until("it is counted", lambda: max(event["count"] for event in server.get("events")["items"]) == 2)
    described = server.kubectl("describe", "node", "node-1")
    assert "RtHog" in described and "rt-hog on core 3" in described
    each.observe(tick_at(400), CALM, [])
    until("both clear", lambda: {conditions(server)[type_][0] for type_ in ("CPUStarved", "NICReset")} == {"False"})


def test_a_condition_of_an_earlier_recorder_clears(server, reporter):
    first = reporter()
    first.observe(tick_at(1), CALM, [])
    first.deliver(report_of(finding("rt-hog")))
    until("it is set", lambda: conditions(server).get("CPUStarved", "")[0] == "True")
    first.close(2)
    second = reporter()
    second.observe(tick_at(1), CALM, [])
    until("it is read", lambda: second.outbox.delivered >= 1)
    assert conditions(server)["CPUStarved"][0] == "True"
    second.observe(tick_at(400), CALM, [])
    until("it clears", lambda: conditions(server)["CPUStarved"][0] == "False")


def test_the_taint_comes_and_goes(server, reporter):
    each = reporter(TaintPolicy("PreferNoSchedule", 0.1, 60 * NANOS, 600 * NANOS))

    def taints():
        return [taint["key"] for taint in server.get("node", "node-1")["spec"].get("taints", [])]

    each.observe(tick_at(1), CALM, [])
    until("the first report", lambda: each.outbox.delivered >= 1)
    each.deliver(report_of(finding("rt-hog")))
    for second in range(2, 64):
        each.observe(tick_at(second), HOT, [])
    until("the taint", lambda: TAINT_KEY in taints())
    for second in (400, 900, 1001):
        each.observe(tick_at(second), CALM, [])
    until("it goes", lambda: TAINT_KEY not in taints())


def test_the_documented_rights_suffice_and_less_is_named(server, reporter, tmp_path, caplog):
    """RBAC of a real server, with the token of a service account."""
    config = json.loads(server.kubeconfig.read_text())
    server.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "exhume", "namespace": "kube-system"}}
    )
    # A token of the account; 1.20 makes one by the token request API.
    raw = server.kubectl(
        "create",
        "--raw",
        "/api/v1/namespaces/kube-system/serviceaccounts/exhume/token",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
    )
    for user in config["users"]:
        user["user"] = {"token": json.loads(raw)["status"]["token"]}
    limited = tmp_path / "kubeconfig"
    limited.write_text(json.dumps(config))
    each = reporter(kubeconfig=limited)
    each.observe(tick_at(1), CALM, [])
    until("the denial is named", lambda: "may not change conditions (403" in caplog.text)
    each.close(1)
    meta = {"name": "exhume"}
    subject = {"kind": "ServiceAccount", "name": "exhume", "namespace": "kube-system"}
    role = {"kind": "ClusterRole", "name": "exhume", "apiGroup": "rbac.authorization.k8s.io"}
    rbac = "rbac.authorization.k8s.io/v1"
    server.apply(
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": meta, "rules": RULES},
        {"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": meta, "roleRef": role, "subjects": [subject]},
    )
    allowed = reporter(kubeconfig=limited)
    allowed.observe(tick_at(1), CALM, [])
    allowed.deliver(report_of(finding("softirq-storm")))
    until("the condition", lambda: conditions(server).get("CPUStarved") == ("True", "SoftirqStorm"))
    until("the event", lambda: "SoftirqStorm" in {event["reason"] for event in server.get("events")["items"]})
