"""Owners of pods and labels of the node, from a small API server with faults."""

import httpx2
import pytest
from lightkube import Client
from tests.kubernetes.pretend_api import broken, failing
from tests.kubernetes.test_api import job

from exhume.kubernetes import names as module
from exhume.kubernetes.api import Reporter

MIRROR = {"kubernetes.io/config.mirror": "hash-of-the-file"}
ASK = {"known": []}


@pytest.fixture
def run(api):
    def run(names=ASK):
        with Client(timeout=httpx2.Timeout(2)) as client:
            return Reporter(client, "node-1").run(job(names=names))

    return run


@pytest.fixture
def cluster(api):
    """One pod of each kind of owner, and one of another node."""
    api.add_pod("prod/web-5d4f8-x2", "uid-web", "apps/v1 ReplicaSet web-5d4f8", labels={"pod-template-hash": "5d4f8"})
    api.add_owner("prod/web-5d4f8", "replicasets", "apps/v1 Deployment web")
    api.add_pod("prod/bare-x1", "uid-bare", "apps/v1 ReplicaSet bare")
    api.add_owner("prod/bare", "replicasets")
    api.add_pod("prod/canary-77-q", "uid-rollout", "apps/v1 ReplicaSet canary-77")
    api.add_owner("prod/canary-77", "replicasets", "argoproj.io/v1alpha1 Rollout canary")
    api.add_pod("batch/nightly-29000000-k2", "uid-cron", "batch/v1 Job nightly-29000000")
    api.add_owner("batch/nightly-29000000", "jobs", "batch/v1 CronJob nightly")
    api.add_pod("batch/import-k2", "uid-job", "batch/v1 Job import")
    api.add_owner("batch/import", "jobs")
    api.add_pod("ml/train-head", "uid-ray", "ray.io/v1 RayCluster train")
    api.add_owner("ml/train", "rayclusters")
    api.add_pod("ml/serve-head", "uid-serve", "ray.io/v1 RayCluster serve-raycluster-1")
    api.add_owner("ml/serve-raycluster-1", "rayclusters", "ray.io/v1 RayService serve")
    api.add_pod("kube-system/agent-z", "uid-agent", "apps/v1 DaemonSet agent")
    api.add_pod("kube-system/etcd-node-1", "uid-mirror", "v1 Node node-1", annotations=MIRROR)
    api.add_pod("prod/alone", "uid-alone")
    api.add_pod("prod/elsewhere-1", "uid-elsewhere", "apps/v1 StatefulSet elsewhere", node="node-2")
    return api


OWNERS = {
    "uid-web": ("prod/web-5d4f8-x2", "deployment/web"),
    "uid-bare": ("prod/bare-x1", "replicaset/bare"),
    "uid-rollout": ("prod/canary-77-q", "rollout.argoproj.io/canary"),
    "uid-cron": ("batch/nightly-29000000-k2", "cronjob/nightly"),
    "uid-job": ("batch/import-k2", "job/import"),
    "uid-ray": ("ml/train-head", "raycluster.ray.io/train"),
    "uid-serve": ("ml/serve-head", "rayservice.ray.io/serve"),
    "uid-agent": ("kube-system/agent-z", "daemonset/agent"),
    "hash-of-the-file": ("kube-system/etcd-node-1", "static-pod/etcd-node-1"),
    "uid-alone": ("prod/alone", "pod/alone"),
}


def owners(result):
    return {uid: (name, owner) for uid, name, owner in result.pods}


def test_each_pod_has_its_topmost_owner(run, cluster):
    result = run()
    assert not result.problems and not result.pods_left
    assert owners(result) == OWNERS


def test_only_new_pods_are_resolved(run, cluster):
    run()
    before = len(cluster.requests)
    assert owners(run({"known": [uid for uid in OWNERS if uid != "uid-cron"]})) == {"uid-cron": OWNERS["uid-cron"]}
    # The node twice (its conditions are read and patched), the list, and the one job.
    assert len(cluster.requests) - before == 4


def test_an_owner_of_many_pods_is_read_once_and_lists_have_pages(run, api, monkeypatch):
    monkeypatch.setattr(module, "PODS_AT_A_TIME", 10)
    api.add_owner("prod/web-1", "replicasets", "apps/v1 Deployment web")
    for number in range(35):
        api.add_pod(f"prod/web-1-{number}", f"uid-{number}", "apps/v1 ReplicaSet web-1")
    assert set(owners(run()).values()) == {(f"prod/web-1-{number}", "deployment/web") for number in range(35)}
    paths = [path for method, path in api.requests]
    assert paths.count("/api/v1/pods") == 4
    assert sum("replicasets" in path for path in paths) == 1


def test_the_rest_of_many_owners_is_left_for_the_next_job(run, api, monkeypatch):
    monkeypatch.setattr(module, "MOST_READS", 3)
    for number in range(5):
        api.add_owner(f"prod/web-{number}", "replicasets", f"apps/v1 Deployment d{number}")
        api.add_pod(f"prod/web-{number}-x", f"uid-{number}", f"apps/v1 ReplicaSet web-{number}")
    first = run()
    assert (len(first.pods), first.pods_left) == (3, 2)
    second = run({"known": [uid for uid, *_ in first.pods]})
    assert {owner for *_, owner in (*first.pods, *second.pods)} == {f"deployment/d{number}" for number in range(5)}


def test_owners_that_may_not_be_read_or_are_gone(run, cluster):
    cluster.denied = {"GET replicasets", "GET jobs", "GET rayclusters"}
    found = owners(run())
    # A deployment leaves its hash on its pods; a replica set of something else is all that can be said.
    assert found["uid-web"][1] == "deployment/web"
    assert found["uid-cron"][1] == "job/nightly-29000000"
    assert found["uid-serve"][1] == "raycluster.ray.io/serve-raycluster-1"
    cluster.denied, cluster.owners = set(), {}
    found = owners(run())
    assert (found["uid-web"][1], found["uid-ray"][1]) == ("deployment/web", "raycluster.ray.io/train")


def test_a_denied_list_is_named_and_the_rest_is_done(run, cluster):
    cluster.denied = {"LIST pods"}
    result = run()
    assert [(each.part, each.retry) for each in result.problems] == [("names", False)]
    assert "docs/kubernetes-conditions.md" in result.problems[0].text
    assert cluster.conditions()["CPUStarved"][0] == "False" and not result.pods


@pytest.mark.parametrize(
    ("fault", "after"),
    [(failing(429, Retry_After="9"), 9.0), (failing(500), 0.0), (failing(200, b"{}"), 0.0), (broken, 0.0)],
    ids=["429", "500", "empty", "broken"],
)
def test_faults_in_the_middle_keep_what_was_found(run, cluster, fault, after):
    original, reads = cluster.answer, []

    def failing_at_the_third_owner(method, path, query, body):
        if "/apis/" in path:
            reads.append(path)
            if len(reads) == 2:
                cluster.faults.append(fault)
        return original(method, path, query, body)

    cluster.answer = failing_at_the_third_owner
    result = run()
    (problem,) = result.problems
    assert (problem.part, problem.retry, problem.retry_after_s) == ("names", True, after)
    assert owners(result) == {uid: OWNERS[uid] for uid in ("uid-web", "uid-bare")}


def test_what_is_not_asked_for_costs_no_request(run, cluster):
    run(None)
    assert all("/pods" not in path and "/apis/" not in path for _, path in cluster.requests)


def test_labels_of_the_node_go_by_short_names(run, api):
    assert run(None).labels == {"zone": "a", "instance-type": "m5.large"}
    api.nodes["node-1"]["metadata"]["labels"] |= {"karpenter.sh/nodepool": "gpu", "hostname": "x"}
    api.nodes["node-1"]["status"]["nodeInfo"] = {
        **dict.fromkeys(("architecture", "bootID", "containerRuntimeVersion", "kernelVersion"), ""),
        **dict.fromkeys(("kubeProxyVersion", "kubeletVersion", "machineID", "operatingSystem", "systemUUID"), ""),
        "osImage": "Debian 12",
    }
    assert run(None).labels == {"zone": "a", "instance-type": "m5.large", "pool": "gpu", "image": "Debian 12"}
    api.nodes["node-1"]["metadata"]["labels"]["eks.amazonaws.com/nodegroup-image"] = "ami-1"
    assert run(None).labels["image"] == "ami-1"


def test_labels_of_a_node_that_may_not_be_read_are_unknown(run, api):
    api.denied = {"GET nodes"}
    assert run(None).labels is None
