"""The recorder in a pod: with the manifest's privileges it has every source; with less it says which it lacks."""

import os
import time
import urllib.request
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tests.system.kubernetes.own_cluster import NODE, Node, until
from tests.system.kubernetes.recorder_pods import (
    Object,
    daemon_set_of_exhume,
    ended,
    fitted,
    log_of,
    page_port,
    pod_like_the_recorder,
    recorded_seconds,
    without_volume,
)
from tests.system.kubernetes.workloads import container, limits, namespace, pod, workload

from exhume.collect.perf.tasks import EXITING, FOREIGN
from exhume.store.read.recording import Recording

pytestmark = [pytest.mark.kubernetes, pytest.mark.root]

# What this machine's kernel or its lack of systemd takes from every recorder.
USUAL = {"run-queue wait", "threads", "systemd", "node"}
# The root of the first process is closed to root itself on some hosts: then a pod can't see the node's files.
if not os.access("/proc/1/root/", os.X_OK):
    USUAL.add("inventory")


@pytest.fixture(scope="module")
def busy(cluster: Node) -> Iterator[None]:
    """A pod that is throttled, and one that fails again and again within its container."""
    fails = "while :; do /bin/sh -c '/bin/sleep 0.4; exit 7'; /bin/sleep 0.3; done"
    spin = container("db", "while :; do :; done", **limits(cpu="100m"))
    cluster.apply(namespace("prod"))
    cluster.apply(workload("StatefulSet", "slow", [spin]), workload("Deployment", "failing", [container("app", fails)]))
    cluster.wait_for_pods("prod", "app=slow", "app=failing")
    yield
    cluster.kubectl("delete", "-n", "prod", "statefulset/slow", "deployment/failing", "--wait=false")


@pytest.fixture(scope="module")
def recording(cluster: Node, busy: None) -> Iterator[Path]:
    """What the DaemonSet recorded in some seconds, with a line in the kernel log and a pod that came meanwhile."""
    recordings = cluster.work / "recordings"
    with daemon_set_of_exhume(cluster, recordings) as seconds:
        print(f"\nfrom kubectl apply to the first recorded second: {seconds:.1f} s")
        Path("/dev/kmsg").write_text(f"<6>exhume test {os.getpid()}\n")
        # A cgroup is born for it.
        cluster.apply(pod("brief", [container("main", "true")], restartPolicy="Never"))
        until("it ran", lambda: cluster.get("pod", "-n", "prod", "brief")["status"].get("phase") == "Succeeded")
        until("twenty seconds are recorded", lambda: recorded_seconds(recordings) >= 20)
        yield recordings
        cluster.kubectl("delete", "-n", "prod", "pod/brief", "--wait=false")


def test_the_daemon_set_has_every_source(recording: Path) -> None:
    facts = Recording.open(recording).facts
    assert facts.node == NODE
    assert {each.source for each in facts.sources_missing} - USUAL == {"kernel-log-numbers"}
    kinds = {loss.kind for loss in Recording.open(recording).losses()}
    print(f"\nlosses of the recorder in its pod: {sorted(kinds)}")
    assert not kinds & {"source-failed", "damaged-bytes"}


def test_pods_have_names_and_processes_have_functions(recording: Path) -> None:
    opened = Recording.open(recording)
    processes = opened.read("processes", None, ["pod_name", "container_name", "comm"]).to_pylist()
    names = {row["container_name"] for row in processes}
    assert {"prod/slow-0/db"} <= names and any(name and name.startswith("exhume/exhume-") for name in names)
    assert any(row["comm"] == "kubelet" for row in processes)
    functions = opened.read("frames", None, ["name"]).column("name").to_pylist()
    assert any("kubelet" in (name or "") for name in functions), "symbols of a stripped Go program outside of the pod"


def test_the_kernel_log_comes_without_the_device(recording: Path) -> None:
    events = Recording.open(recording).read("events", None, ["text", "source", "sequence"]).to_pylist()
    lines = [row for row in events if row["text"] == f"exhume test {os.getpid()}"]
    assert [(row["source"], row["sequence"]) for row in lines] == [("kernel-log", None)]


def test_exit_codes_throttling_and_births_of_cgroups_are_recorded(cluster: Node, recording: Path) -> None:
    opened = Recording.open(recording)
    codes = {row["exit_code"] for row in opened.read("events", None, ["kind", "exit_code"]).to_pylist()}
    assert 7 in codes
    throttled = opened.read("throttling", None, ["cgroup"]).column("cgroup").to_pylist()
    uid = cluster.get("pod", "-n", "prod", "slow-0")["metadata"]["uid"]
    assert any(uid in path for path in throttled)
    assert opened.read("cgroup_events", None, ["path"]).num_rows > 0


def test_the_page_answers_as_an_ordinary_user(cluster: Node, recording: Path) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{page_port(recording)}/", timeout=60) as answer:
        assert answer.status == 200
    (pod,) = cluster.get("pods", "-n", "exhume", "-l", "app.kubernetes.io/name=exhume")["items"]
    ready = {each["name"]: each["ready"] for each in pod["status"]["containerStatuses"]}
    assert ready["page"]


def test_a_deleted_pod_seals_in_time_and_the_next_goes_on(cluster: Node, recording: Path) -> None:
    (pod,) = cluster.get("pods", "-n", "exhume", "-l", "app.kubernetes.io/name=exhume")["items"]
    before = recorded_seconds(recording)
    began = time.monotonic()
    cluster.kubectl("delete", "pod", "-n", "exhume", pod["metadata"]["name"], "--wait=true", patience=120)
    until("the next one records", lambda: recorded_seconds(recording) > before + 3)
    print(f"\ngap of a replaced pod, with three seconds recorded: {time.monotonic() - began:.1f} s")
    opened = Recording.open(recording)
    # Sealed, and nothing damaged.
    assert not [loss for loss in opened.losses() if "damaged" in loss.kind]
    walls = sorted(opened.read("anchors", None, ["time"]).column("time").to_pylist())
    assert max(after - first for first, after in pairwise(walls)) < 60e9


# What is taken away, and what is then missing by name.
LESS: dict[str, tuple[Callable[[Object], object], str, str]] = {
    "no-host-pid": (lambda pod: pod["spec"].update(hostPID=False), "process-names", "hostPID"),
    "no-host-network": (lambda pod: pod["spec"].update(hostNetwork=False), "exit-codes", "hostNetwork"),
    "no-logs": (lambda pod: without_volume(pod, "logs"), "pod-names", "/var/log"),
    "no-cgroups": (lambda pod: without_volume(pod, "cgroup"), "throttling", "/sys/fs/cgroup"),
    "no-tracing": (lambda pod: without_volume(pod, "tracing"), "cgroup-events", "tracefs"),
    "no-perfmon": (lambda pod: _drop(pod, "PERFMON"), "stacks", "CAP_PERFMON"),
    "no-syslog": (lambda pod: _drop(pod, "SYSLOG"), "kernel-log", "CAP_SYSLOG"),
    "no-ptrace": (lambda pod: _drop(pod, "SYS_PTRACE"), "user symbols", "CAP_SYS_PTRACE"),
}


def _drop(pod: Object, capability: str) -> None:
    pod["spec"]["containers"][0]["securityContext"]["capabilities"]["add"].remove(capability)


@pytest.fixture(scope="module")
def less(cluster: Node, busy: None) -> dict[str, Recording]:
    """A recording of each pod that has less, all taken at the same time."""
    cluster.apply(*[each for each in fitted(cluster, cluster.work / "unused") if each["kind"] != "DaemonSet"])
    for name, (change, _, _) in LESS.items():
        args = ["record", "--for", "8s", "--group", "exhume"]
        pod = pod_like_the_recorder(cluster, name, cluster.work / "less" / name, args)
        change(pod)
        cluster.apply(pod)
    for name in LESS:
        result = ended(cluster, name)
        assert result["code"] == 0, result["log"]
    return {name: Recording.open(cluster.work / "less" / name) for name in LESS}


@pytest.mark.parametrize("name", LESS)
def test_what_is_missing_is_named(less: dict[str, Recording], name: str) -> None:
    _, source, remedy = LESS[name]
    facts = less[name].facts
    (missing,) = facts.missing(source)[:1]
    assert remedy in missing.remedy
    assert str(missing) in log_of(name)
    # Whatever is taken away, the node keeps its name.
    assert facts.node == NODE


def test_without_host_pid_no_process_has_a_wrong_name(less: dict[str, Recording]) -> None:
    recording = less["no-host-pid"]
    assert recording.facts.sources_missing[0].source == "process-names"
    samples = recording.read("samples", None, ["pid", "comm"]).to_pylist()
    assert {row["comm"] for row in samples if row["pid"] == 0} == {FOREIGN}
    own = {"exhume", "exhume-opener", "exhume-parser", "python3", "grpc_global_tim"}
    assert {row["comm"] for row in samples if row["pid"] != 0} <= {*own, EXITING}


def test_without_the_logs_pods_have_ids_alone(less: dict[str, Recording]) -> None:
    rows = less["no-logs"].read("processes", None, ["pod", "pod_name"]).to_pylist()
    assert any(row["pod"] for row in rows) and not any(row["pod_name"] for row in rows)
