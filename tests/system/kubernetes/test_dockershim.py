"""Docker behind kubelet's own shim: each attempt of a container is a container of its own, and the pods have one name.

These come before the modules that use the other cluster, which stays to the end: a machine has room for one kubelet.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.system.kubernetes.own_cluster import BUSYBOX, DockerNode, own_node, until
from tests.system.kubernetes.recorder_pods import recorded_seconds
from tests.system.kubernetes.test_pod_findings import Exhume, finding, pasted
from tests.system.kubernetes.workloads import UNREACHABLE, container, namespace, workload

from exhume.store.read.recording import Recording

pytestmark = [pytest.mark.kubernetes, pytest.mark.root, pytest.mark.needs("dockerd", "docker")]


@pytest.fixture(scope="module")
def node() -> Iterator[DockerNode]:
    with own_node(kind=DockerNode) as own:
        assert isinstance(own, DockerNode)
        yield own


@pytest.fixture(scope="module")
def exhume(node: DockerNode) -> Iterator[Exhume]:
    """With a recording in which a Deployment was started four times."""
    own = Exhume(node)
    try:
        until("the recorder is at work", lambda: recorded_seconds(own.recording) >= 5)
        node.apply(namespace("prod"))
        calm = container("sidecar", "sleep 3600")
        node.apply(workload("Deployment", "crashy", [container("worker", UNREACHABLE), calm]))

        def ends() -> int:
            rows = Recording.open(own.recording).read("events", None, ["kind", "pod_name"]).to_pylist()
            return sum(row["kind"] == "container-die" and "crashy" in str(row["pod_name"]) for row in rows)

        # kubelet waits 10, 20 and 40 s in between.
        until("four ends are recorded", lambda: ends() >= 4, 300)
        yield own
    finally:
        own.stop()


@pytest.fixture(scope="module")
def service(exhume: Exhume) -> Any:
    """What the audit says of the container that fails."""
    (found,) = [each for each in exhume("audit")["services"] if "/worker" in each["name"]]
    return found


def test_the_audit_knows_a_crash_loop_from_a_container_that_stays_down(service: Any) -> None:
    assert "crash-loop" in service["traits"]
    assert service["owner"] == "deployment prod/crashy" and service["pod"].startswith("prod/crashy-")
    assert service["name"] == f"{service['pod']}/worker"
    assert service["image"] == BUSYBOX and service["restarts"] >= 3
    assert service["last_exit"]["code"] == 1
    assert "database db.prod:5432" in json.dumps(service), "the reason from a log of Docker's"


def test_the_commands_are_those_of_the_cluster(exhume: Exhume, service: Any) -> None:
    pod = service["pod"].removeprefix("prod/")
    assert service["look"].startswith("kubectl -n prod logs ") and pod in service["look"]
    (step,) = exhume("fix", "plan", service["key"], "--no-zombies")["steps"]
    assert not step["automatic"]
    (scale,) = [line for line in step["commands"] if " scale " in line]
    assert scale.startswith("kubectl -n prod scale deployment crashy")


def test_the_loop_is_diagnosed_by_pod_container_and_owner(exhume: Exhume) -> None:
    found = finding(exhume("diagnose", "--last", "3m"), "crash-loop")
    (name,) = [each["name"] for each in found["entities"] if each["kind"] == "container"]
    assert name.startswith("prod/crashy-") and name.endswith("/worker")
    assert "of deployment prod/crashy" in json.dumps(found)


def test_pods_have_one_kind_of_name(exhume: Exhume) -> None:
    """Those that lived for an instant and those that hold a pod too."""
    opened = Recording.open(exhume.recording)
    names = set()
    for table in ("processes", "events"):
        names |= {row["container_name"] for row in opened.read(table, None, ["container_name"]).to_pylist()} - {None}
    assert any(name.endswith("/worker") for name in names)
    assert not [name for name in names if name.startswith("k8s_")]


def test_the_command_of_the_plan_ends_the_loop(node: DockerNode, exhume: Exhume, service: Any) -> None:
    (step,) = exhume("fix", "plan", service["key"], "--no-zombies")["steps"]
    (scale,) = [line for line in step["commands"] if " scale " in line]
    pasted(exhume, scale)
    until("its pods are gone", lambda: not node.get("pods", "-n", "prod", "-l", "app=crashy")["items"])
