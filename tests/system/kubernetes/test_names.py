"""Owners of pods and labels of the node from a real API, with the rights of the manifests and nothing more."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.kubernetes.own_cluster import NODE, Node, until
from tests.system.kubernetes.recorder_pods import fitted, recorded_seconds
from tests.system.kubernetes.test_pod_findings import PROGRAM
from tests.system.kubernetes.workloads import BROKEN_IMPORT, container, job, namespace, pod, workload

from exhume.store.read.recording import Recording

pytestmark = [pytest.mark.kubernetes, pytest.mark.root]

LABELS = {"topology.kubernetes.io/zone": "eu-1a", "node.kubernetes.io/instance-type": "m5.large", "pool": "batch"}
STATIC = "keeper"
# The part of KubeRay's kind that a plan changes (ray-operator/apis/ray/v1, RayClusterSpec).
_RAY_SPEC = {"type": "object", "properties": {"suspend": {"type": "boolean"}}}
RAY_CLUSTERS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "rayclusters.ray.io"},
    "spec": {
        "group": "ray.io",
        "scope": "Namespaced",
        "names": {"kind": "RayCluster", "plural": "rayclusters", "singular": "raycluster"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _RAY_SPEC}}},
            }
        ],
    },
}


def owned_by(owned: dict[str, Any], version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    """The object as a controller makes it."""
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}
    owned["metadata"]["ownerReferences"] = [owner]
    return owned


@pytest.fixture(scope="module")
def workloads(cluster: Node) -> Iterator[dict[str, str]]:
    """Pods of each kind of owner, with the reference that kubectl takes; the manifests' service account."""
    cluster.kubectl("label", "node", NODE, *(f"{name}={value}" for name, value in LABELS.items()), "--overwrite")
    cluster.apply(namespace("prod"))
    cluster.apply(*[each for each in fitted(cluster, cluster.work / "unused") if each["kind"] != "DaemonSet"])
    idle = [container("main", "sleep 3600")]
    template = {"spec": job("x", [container("job", BROKEN_IMPORT)])["spec"]}
    nightly = {"schedule": "0 0 1 1 *", "jobTemplate": template}
    meta = {"name": "nightly", "namespace": "prod"}
    cluster.apply(RAY_CLUSTERS)
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{RAY_CLUSTERS['metadata']['name']}")
    until("the kind is served", lambda: cluster.kubectl_ok("get", "rayclusters.ray.io", "-n", "prod"))
    meta_of_train = {"name": "train", "namespace": "prod"}
    cluster.apply(
        workload("Deployment", "web", idle),
        {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta_of_train, "spec": {"suspend": False}},
        {"apiVersion": "batch/v1beta1", "kind": "CronJob", "metadata": meta, "spec": nightly},
    )
    cron = cluster.get("cronjob/nightly", "-n", "prod")
    train = cluster.get("raycluster.ray.io/train", "-n", "prod")
    made = job("nightly-29000000", [container("job", BROKEN_IMPORT)], backoffLimit=0)
    cluster.apply(
        owned_by(pod("train-head", idle), "ray.io/v1", "RayCluster", "train", train["metadata"]["uid"]),
        owned_by(made, cron["apiVersion"], "CronJob", "nightly", cron["metadata"]["uid"]),
    )
    manifest = cluster.work / "manifests/keeper.yaml"
    manifest.write_text(json.dumps(pod(STATIC, idle)))
    yield {
        "web-": "deployment/web",
        "train-head": "raycluster.ray.io/train",
        "nightly-29000000-": "cronjob/nightly",
        f"{STATIC}-{NODE}": f"static-pod/{STATIC}-{NODE}",
    }
    manifest.unlink()
    made = ("cronjob/nightly", "deployment/web", "pod/train-head", "raycluster.ray.io/train")
    cluster.kubectl("delete", "-n", "prod", *made, "--wait=false")
    cluster.kubectl("delete", "crd", RAY_CLUSTERS["metadata"]["name"], "--wait=false")


class Recorder:
    """A recorder on the node, and commands that read its recording."""

    def __init__(self, cluster: Node, kubeconfig: Path) -> None:
        self.directory = cluster.work / "names"
        runtime = f"unix://{cluster.runtime}"
        self._commands = {**cluster.environment, "CONTAINER_RUNTIME_ENDPOINT": runtime}
        environment = {**self._commands, "KUBECONFIG": str(kubeconfig)}
        command = [PROGRAM, "record", "--dir", str(self.directory), "--kubernetes", "--node-name", NODE]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)

    def __call__(self, *args: str) -> Any:
        command = [PROGRAM, *args, "--json", "--dir", str(self.directory)]
        done = subprocess.run(command, env=self._commands, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout)

    def paste(self, line: str) -> None:
        done = subprocess.run(["bash", "-c", line], env=self._commands, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}: {done.stderr}"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


@pytest.fixture(scope="module")
def recorder(cluster: Node, workloads: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    """With the service account of the manifests."""
    request = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    path = "/api/v1/namespaces/exhume/serviceaccounts/exhume/token"
    token = json.loads(cluster.kubectl("create", "--raw", path, "-f", "-", stdin=request))["status"]["token"]
    config = json.loads(cluster.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    limited = tmp_path_factory.mktemp("account") / "kubeconfig"
    limited.write_text(json.dumps(config))
    own = Recorder(cluster, limited)
    try:
        until("the recorder is at work", lambda: recorded_seconds(own.directory) >= 5)
        yield own
    finally:
        own.stop()


def recorded_owners(directory: Path) -> dict[str, str]:
    columns = ["kind", "pod_name", "owner"]
    rows = Recording.open(directory).read("events", None, columns).to_pylist()
    return {row["pod_name"]: row["owner"] for row in rows if row["kind"] == "pod-owner"}


def test_each_pod_has_its_topmost_owner(recorder: Recorder, workloads: dict[str, str]) -> None:
    def found() -> dict[str, str]:
        owners = recorded_owners(recorder.directory)
        return {
            start: owner for name, owner in owners.items() for start in workloads if name.startswith(f"prod/{start}")
        }

    until("all owners are recorded", lambda: found() == workloads)


def test_the_labels_of_the_node_are_in_the_recording(recorder: Recorder) -> None:
    until("the labels are there", lambda: Recording.open(recorder.directory).facts.labels)
    labels = Recording.open(recorder.directory).facts.labels
    assert {name: labels[name] for name in ("zone", "instance-type", "pool")} == {
        "zone": "eu-1a",
        "instance-type": "m5.large",
        "pool": "batch",
    }
    assert labels["image"], "the name of its system"
    assert recorder("info")["labels"] == labels


def test_plans_name_the_owner_and_their_commands_work(cluster: Node, recorder: Recorder) -> None:
    until("the owners are recorded", lambda: "prod/train-head" in recorded_owners(recorder.directory))
    audit = recorder("audit", "--all")
    services = {each["pod"]: each for each in audit["services"] if each.get("pod")}
    assert services["prod/train-head"]["owner"] == "raycluster prod/train"
    (cron,) = [each for name, each in services.items() if name.startswith("prod/nightly-")]
    assert cron["owner"] == "cron job prod/nightly"
    (step,) = recorder("fix", "plan", services["prod/train-head"]["key"], "--no-zombies")["steps"]
    assert "kubectl -n prod patch raycluster.ray.io train --type=merge " in step["commands"][-1]
    assert not step["automatic"], "its controller decides what becomes of its pods"
    for lines, suspended in ((step["commands"], True), (step["undo_commands"], False)):
        for line in (each for each in lines if " logs " not in each):
            recorder.paste(line)
        assert cluster.get("raycluster.ray.io/train", "-n", "prod")["spec"]["suspend"] is suspended
    (step,) = recorder("fix", "plan", cron["key"], "--no-zombies")["steps"]
    assert not step["automatic"], "what kubelet starts again is for its owner to change"
    for line in (each for each in step["commands"] if " logs " not in each):
        recorder.paste(line)
    assert cluster.get("cronjob/nightly", "-n", "prod")["spec"]["suspend"] is True
    assert not cluster.kubectl_ok("get", "job", "-n", "prod", "nightly-29000000")


def test_a_static_pod_is_planned_by_its_manifest(cluster: Node, recorder: Recorder) -> None:
    """Which kubelet has from a directory that only its command line names."""
    until("its owner is recorded", lambda: f"prod/{STATIC}-{NODE}" in recorded_owners(recorder.directory))
    (service,) = [each for each in recorder("audit", "--all")["services"] if each.get("pod") == f"prod/{STATIC}-{NODE}"]
    assert service["owner"].startswith(f"static pod prod/{STATIC}-{NODE}")
    (step,) = recorder("fix", "plan", service["key"], "--no-zombies")["steps"]
    assert step["commands"] == [f"mv -- {cluster.work}/manifests/keeper.yaml /root/"]
