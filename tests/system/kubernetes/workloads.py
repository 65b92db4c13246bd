"""Workloads for the cluster: each with one container that runs a shell script of busybox."""

from typing import Any

from tests.system.kubernetes.own_cluster import BUSYBOX

Object = dict[str, Any]


def container(name: str, script: str, **more: Any) -> Object:
    command = ["/bin/sh", "-c", script]
    return {"name": name, "image": BUSYBOX, "imagePullPolicy": "IfNotPresent", "command": command, **more}


def limits(**resources: str) -> Object:
    return {"resources": {"limits": resources}}


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def pod(name: str, containers: list[Object], **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "prod"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": _pod_spec(containers, **spec)}


def workload(kind: str, name: str, containers: list[Object], where: str = "prod", **spec: Any) -> Object:
    """A Deployment, DaemonSet or StatefulSet."""
    labels = {"app": name}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    template = {"metadata": {"labels": labels}, "spec": _pod_spec(containers)}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": where},
        "spec": {"selector": {"matchLabels": labels}, "template": template, **spec},
    }


def job(name: str, containers: list[Object], **spec: Any) -> Object:
    template = {"spec": _pod_spec(containers, restartPolicy="Never")}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "prod"},
        "spec": {"template": template, **spec},
    }


def _pod_spec(containers: list[Object], **more: Any) -> Object:
    return {"hostNetwork": True, "terminationGracePeriodSeconds": 1, "containers": containers, **more}


UNREACHABLE = "echo 'fatal: cannot reach database db.prod:5432: connection refused' >&2; sleep 0.3; exit 1"
NO_CREDENTIALS = "echo 'no credentials in chain' >&2; sleep 0.2; exit 2"
BROKEN_IMPORT = "sleep 0.2; echo 'import failed' >&2; exit 3"
# Takes more memory than it may, at once.
GREEDY = "exec dd if=/dev/zero of=/dev/null bs=96M count=1"
SPIN = "while :; do :; done"


def trouble() -> list[Object]:
    """A crash loop of each kind, one that is throttled by its own limit, and one whose memory is too little."""
    return [
        workload("Deployment", "crashy", [container("worker", UNREACHABLE), container("sidecar", "sleep 3600")]),
        workload("DaemonSet", "log-agent", [container("agent", NO_CREDENTIALS)], "monitoring"),
        job("import", [container("job", BROKEN_IMPORT)], backoffLimit=50),
        workload("StatefulSet", "throttled", [container("db", SPIN, **limits(cpu="150m", memory="64Mi"))]),
        workload("Deployment", "cache", [container("cache", GREEDY, **limits(memory="24Mi"))]),
    ]


# A runner of jobs that makes a cgroup for each below its own, and keeps what the job wrote: the page in memory holds
# the job's cgroup, which is removed, for as long as the file is there.
_JOBS = """
import os, time
own = next(line.split(":", 2)[2].strip() for line in open("/proc/self/cgroup") if ":memory:" in line)
top = "/node-cgroup/memory" + own
for number in range({count}):
    job = f"{{top}}/job-{{number}}"
    os.mkdir(job)
    if {leaks}:
        open(f"{{job}}/cgroup.procs", "w").write("0")
        open(f"/artefacts/{{number}}", "wb").write(bytes(4096))
        open(f"{{top}}/cgroup.procs", "w").write("0")
        os.rmdir(job)
print("all jobs are done", flush=True)
time.sleep(3600)
"""


def runner(name: str, count: int, image: str, *, leaks: bool) -> Object:
    """A Deployment that makes so many cgroups below its own: dead ones that can't go, or live and empty ones."""
    script = _JOBS.format(count=count, leaks=leaks)
    mounts = [{"name": "cgroup", "mountPath": "/node-cgroup"}, {"name": "artefacts", "mountPath": "/artefacts"}]
    jobs = {"name": "jobs", "image": image, "command": ["/opt/exhume/bin/python", "-c", script], "volumeMounts": mounts}
    made = workload("Deployment", name, [{**jobs, "imagePullPolicy": "IfNotPresent"}], "ci")
    made["spec"]["template"]["spec"]["volumes"] = [
        {"name": "cgroup", "hostPath": {"path": "/sys/fs/cgroup"}},
        {"name": "artefacts", "emptyDir": {"medium": "Memory"}},
    ]
    return made
