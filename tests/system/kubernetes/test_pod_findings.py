"""Findings, audit and plans about pods on a real kubelet: the names are the cluster's, and the commands work."""

import json
import os
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.system.deploy.own_image import IMAGE
from tests.system.kubernetes.own_cluster import Node, until
from tests.system.kubernetes.recorder_pods import (
    answer_of,
    ended,
    fitted,
    pod_like_the_recorder,
    recorded_seconds,
)
from tests.system.kubernetes.workloads import namespace, runner, trouble

from exhume.store.read.recording import Recording

pytestmark = [pytest.mark.kubernetes, pytest.mark.root]

PROGRAM = str(Path(sysconfig.get_path("scripts")) / "exhume")
ZOMBIES, LIVE = 20_000, 6_000


class Exhume:
    """The program on the node itself, with a recorder of its own for as long as the tests take."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.recording, self._fixes = node.work / "findings", node.work / "fixes"
        command = [PROGRAM, "record", "--dir", str(self.recording)]
        self._recorder = subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL)

    @property
    def environment(self) -> dict[str, str]:
        return {**self._node.environment, "CONTAINER_RUNTIME_ENDPOINT": f"unix://{self._node.runtime}"}

    def __call__(self, *args: str, patience: float = 300) -> Any:
        """The JSON that a command prints."""
        done = self.run(*args, "--json", patience=patience)
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout)

    def run(self, *args: str, patience: float = 300) -> subprocess.CompletedProcess[str]:
        places = {
            "fix": ["--dir", str(self.recording), "--work-dir", str(self._fixes)],
            "diagnose": ["--dir", str(self.recording)],
            "incidents": ["--dir", str(self.recording)],
        }
        where = places.get(args[0], [])
        return subprocess.run(
            [PROGRAM, *args, *(where[2:] if args[:2] == ("fix", "list") else where)],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )

    def stop(self) -> None:
        self._recorder.terminate()
        self._recorder.wait(60)


@pytest.fixture(scope="module")
def exhume(cluster: Node) -> Iterator[Exhume]:
    own = Exhume(cluster)
    try:
        until("the recorder is at work", lambda: recorded_seconds(own.recording) >= 10)
        yield own
    finally:
        own.stop()


@pytest.fixture(scope="module")
def troubled(cluster: Node, exhume: Exhume) -> None:
    """Pods that fail in every way, for long enough that each kind was started several times."""
    cluster.apply(namespace("prod"), namespace("monitoring"), namespace("ci"))
    cluster.apply(*trouble())

    def restarts(where: str, app: str) -> int:
        pods = cluster.get("pods", "-n", where, "-l", f"app={app}")["items"]
        statuses = [status for pod in pods for status in pod["status"].get("containerStatuses", ())]
        return sum(status["restartCount"] for status in statuses)

    looping = (("prod", "crashy"), ("monitoring", "log-agent"), ("prod", "cache"))
    until("each was started four times", lambda: all(restarts(*each) >= 3 for each in looping), 400)
    until(
        "three pods of the job failed",
        lambda: (cluster.get("job", "-n", "prod", "import")["status"].get("failed") or 0) >= 3,
    )

    def recorded(where: str, app: str) -> bool:
        """The recorder asks the runtime every few seconds."""
        rows = Recording.open(exhume.recording).read("events", None, ["kind", "pod_name"]).to_pylist()
        died = [row["pod_name"] for row in rows if row["kind"] == "container-die"]
        return sum(name.startswith(f"{where}/{app}-") for name in died if name) >= 3

    until("three ends of each are recorded", lambda: all(recorded(*each) for each in looping))


@pytest.fixture(scope="module")
def services(troubled: None, exhume: Exhume) -> dict[str, Any]:
    """What the audit says of each container, by the name of its owner."""
    return {each["owner"]: each for each in exhume("audit")["services"] if each["owner"]}


def _marked(recording: Path) -> set[str]:
    """What the recorder marked incidents for."""
    return {row["trigger"] for row in Recording.open(recording).read("events", None, ["trigger"]).to_pylist()}


def finding(diagnosis: Any, cause: str) -> Any:
    found = [each for each in diagnosis["findings"] if each["cause"] == cause]
    assert found, [each["cause"] for each in diagnosis["findings"]]
    return found[0]


def commands(found: Any) -> list[str]:
    return [remedy["command"] for remedy in found["remedies"] if remedy.get("command")]


@pytest.mark.parametrize(
    ("owner", "code"),
    [("deployment prod/crashy", 1), ("daemon set monitoring/log-agent", 2), ("job prod/import", 3)],
)
def test_the_audit_names_owners_of_crash_loops(services: dict[str, Any], owner: str, code: int) -> None:
    assert "crash-loop" in services[owner]["traits"]
    assert services[owner]["last_exit"]["code"] == code
    assert services[owner]["look"].startswith("kubectl -n ")


def test_the_audit_knows_that_memory_ran_out(services: dict[str, Any]) -> None:
    assert (services["deployment prod/cache"]["detail"], services["deployment prod/cache"]["result"]) == (
        "OOMKilled",
        "oom-kill",
    )


def test_several_loops_are_named_with_pod_container_and_owner(troubled: None, exhume: Exhume) -> None:
    found = finding(exhume("diagnose", "--last", "3m"), "crash-loop")
    assert found["scope"] == "workload"
    named = [each["name"] for each in found["entities"] if each["kind"] == "container"]
    for pod, name in (("prod/crashy-", "/worker"), ("monitoring/log-agent-", "/agent")):
        assert any(each.startswith(pod) and each.endswith(name) for each in named), named
    said = json.dumps(found, ensure_ascii=False)
    assert "of daemon set monitoring/log-agent" in said and "of deployment prod/crashy" in said


def test_kills_for_memory_name_the_pod(troubled: None, exhume: Exhume) -> None:
    found = finding(exhume("diagnose", "--last", "5m"), "oom-thrash")
    assert "prod/cache-" in json.dumps(found) and "deployment prod/cache" in json.dumps(found)


def test_a_pod_at_its_own_limit_is_not_the_nodes_trouble(cluster: Node, troubled: None, exhume: Exhume) -> None:
    # kubelet waits ever longer before it starts what was killed.
    findings = exhume("diagnose", "--last", "5m")["findings"]
    causes = [each["cause"] for each in findings]
    throttled = finding({"findings": findings}, "cfs-throttling")
    assert throttled["scope"] == "workload" and "prod/throttled-0" in json.dumps(throttled)
    assert causes.index("oom-thrash") < causes.index("cfs-throttling")
    (raise_it,) = [line for line in commands(throttled) if line.startswith("kubectl")]
    assert raise_it.startswith("kubectl -n prod set resources statefulset throttled -c db ")
    # The pod's own cgroup and its container's are both at the limit: either names the owner.
    pasted(exhume, raise_it)
    # It now requests two cores and spins on them; pods of the tests below, which request none, would get what is left.
    cluster.kubectl("scale", "-n", "prod", "statefulset/throttled", "--replicas=0")


def pasted(exhume: Exhume, line: str) -> None:
    done = subprocess.run(["bash", "-c", line], env=exhume.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}: {done.stderr}"


def test_commands_of_plans_work_as_they_are(
    cluster: Node, troubled: None, services: dict[str, Any], exhume: Exhume
) -> None:
    """Each owner's own way to stop it. Reading logs needs a kubelet that listens beyond loopback: only what changes
    something is typed here, and `describe`."""
    for owner, kind in (("daemon set monitoring/log-agent", "daemonset"), ("job prod/import", "job")):
        (step,) = exhume("fix", "plan", services[owner]["key"], "--no-zombies")["steps"]
        assert not step["automatic"], "what kubelet starts again is for its owner to change"
        typed = [line for line in step["commands"] if " logs " not in line]
        assert any(f" {kind} " in line for line in typed)
        for line in typed:
            pasted(exhume, line)
    until("the daemon set has no pods", lambda: not cluster.get("pods", "-n", "monitoring")["items"])
    assert not cluster.kubectl_ok("get", "job", "-n", "prod", "import")


def test_a_change_that_a_person_made_is_verified(
    cluster: Node, troubled: None, services: dict[str, Any], exhume: Exhume
) -> None:
    plan = exhume("fix", "plan", services["deployment prod/crashy"]["key"], "--no-zombies")
    refused = exhume.run("fix", "apply", "--yes")
    assert refused.returncode == 2 and "for a person to take" in refused.stderr
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    (scale,) = [line for line in plan["steps"][0]["commands"] if " scale " in line]
    pasted(exhume, scale)
    until("its pods are gone", lambda: not cluster.get("pods", "-n", "prod", "-l", "app=crashy")["items"])
    proof = exhume("fix", "verify", plan["id"], "--since", moment, "--for", "200s", patience=500)
    (restarts,) = [each for each in proof["measures"] if each["measure"] == "restarts"]
    assert restarts["change"] == "improved", restarts
    assert exhume("fix", "list")["fixes"][0]["id"] == plan["id"]


def test_zombies_of_a_pod_are_freed_while_it_runs(cluster: Node, troubled: None, exhume: Exhume) -> None:
    cluster.apply(runner("runner", ZOMBIES, IMAGE, leaks=True))
    until("all jobs are done", lambda: _log("ci", "runner").count("all jobs are done") == 1, 400)
    # A jump is marked once a second count has confirmed it, some seconds later.
    until("the growth is marked", lambda: "dying-cgroups" in _marked(exhume.recording), 60)
    (pod,) = cluster.get("pods", "-n", "ci", "-l", "app=runner")["items"]
    uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
    diagnosis = exhume("diagnose", "--last", "2m")
    leak = finding(diagnosis, "zombie-memcgs")
    assert f"ci/{name}" in json.dumps(leak) and "deployment ci/runner" in json.dumps(leak)
    below = f"kubepods/besteffort/pod{uid}"
    fix = exhume("fix", "apply", "zombies", "--below", below, "--accept-cost", "--yes")
    assert fix["state"] == "applied"
    assert _tracked() < ZOMBIES / 10
    kept = cluster.work / "kubelet-root/pods" / uid / "volumes/kubernetes.io~empty-dir/artefacts"
    assert len(os.listdir(kept)) == ZOMBIES  # noqa: PTH208 - a Path for each of so many takes seconds
    (same,) = cluster.get("pods", "-n", "ci", "-l", "app=runner")["items"]
    assert same["metadata"]["uid"] == uid and same["status"]["containerStatuses"][0]["restartCount"] == 0
    cluster.kubectl("delete", "-n", "ci", "deployment/runner", "--wait=false")


def test_kubelet_that_walks_thousands_of_live_cgroups_is_named(cluster: Node, exhume: Exhume) -> None:
    cluster.apply(namespace("ci"))
    before = _cpu_share(cluster.kubelet_pid, 10)
    cluster.apply(runner("fanout", LIVE, IMAGE, leaks=False))
    until("all jobs are done", lambda: _log("ci", "fanout").count("all jobs are done") == 1, 400)
    share = _cpu_share(cluster.kubelet_pid, 45)
    print(f"\nkubelet took {before:.0%} of a core before, {share:.0%} with {LIVE} live cgroups")
    found = finding(exhume("diagnose", "--last", "40s"), "cgroup-excess")
    assert found["severity"] in ("warning", "critical") and "kubelet" in found["summary"]
    cluster.kubectl("delete", "-n", "ci", "deployment/fanout", "--wait=false")


def test_the_audit_from_a_pod_with_the_nodes_root(cluster: Node, troubled: None) -> None:
    cluster.apply(*[each for each in fitted(cluster, cluster.work / "unused") if each["kind"] != "DaemonSet"])
    pod = pod_like_the_recorder(cluster, "audit", cluster.work / "unused", ["audit", "--root", "/host", "--json"])
    (only,) = pod["spec"]["containers"]
    only["volumeMounts"].append({"name": "root", "mountPath": "/host", "readOnly": True})
    # The usual place of the runtime's socket on this node.
    only["volumeMounts"].append({"name": "containerd", "mountPath": "/host/run/containerd", "readOnly": True})
    pod["spec"]["volumes"].append({"name": "root", "hostPath": {"path": "/"}})
    cluster.apply(pod)
    result = ended(cluster, "audit")
    assert result["code"] in (0, 1), result["log"]
    owners = {each["owner"] for each in answer_of(result)["services"]}
    assert "deployment prod/cache" in owners


def _log(where: str, app: str) -> str:
    found = sorted(Path("/var/log/pods").glob(f"{where}_{app}-*/*/*.log"))
    return "".join(path.read_text() for path in found)


def _tracked() -> int:
    """How many memory cgroups the kernel has."""
    lines = Path("/proc/cgroups").read_text().splitlines()
    return next(int(line.split()[2]) for line in lines if line.startswith("memory"))


def _cpu_share(pid: int, seconds: float) -> float:
    def ticks() -> int:
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))

    began = ticks()
    time.sleep(seconds)
    return (ticks() - began) / os.sysconf("SC_CLK_TCK") / seconds
