"""The owner of a container, which creates and restarts it, from the labels that orchestrators set; and the kubectl
commands for Kubernetes workloads."""

import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
# dockershim and cri-dockerd mark the sandbox of a pod; only the sandbox has the labels of the pod itself, and its
# annotations with a prefix (pkg/kubelet/dockershim/helpers.go, makeLabels).
_DOCKER_KIND, _SANDBOX = "io.kubernetes.docker.type", "podsandbox"
_ANNOTATION = "annotation."
_SOURCE = "kubernetes.io/config.source"
# A deployment's pod is <name>-<hash>-<five letters>. The hash is a 32-bit number in decimal whose digits 0 to 9 are
# written as 4 to 9, b, c, d and f (k8s.io/apimachinery/pkg/util/rand, SafeEncodeString); the letters are from
# rand.String's alphabet. A CronJob's number is in minutes since 1970 and begins with a 2, so it does not match.
_DEPLOYED = re.compile(r"(?P<name>.+)-[4-9bcdf]{7,10}-[bcdfghjklmnpqrstvwxz2456789]{5}")
# The label of a Compose owner: the project, then the service in it.
COMPOSE_PROJECT, COMPOSE_SERVICE = "compose project ", ", service "


@dataclass(frozen=True, slots=True)
class Owner:
    """`label` is the owner's display name, `file` the file that defines the container, if known."""

    label: str = ""
    file: str | None = None


def owner_of(labels: Mapping[str, str]) -> Owner:
    """The owner according to a container's labels; empty for a container that was started by hand."""
    if name := labels.get("com.docker.compose.project"):
        service = labels.get("com.docker.compose.service", "")
        # One label may hold several files.
        file = labels.get("com.docker.compose.project.config_files", "").split(",")[0]
        # Versions before 2 store the path as given.
        file = file and posixpath.join(labels.get("com.docker.compose.project.working_dir", ""), file)
        return Owner(f"{COMPOSE_PROJECT}{name}" + (f"{COMPOSE_SERVICE}{service}" if service else ""), file or None)
    if name := labels.get("com.docker.swarm.service.name"):
        return Owner(f"swarm service {name}")
    if name := labels.get("com.amazonaws.ecs.task-arn"):
        cluster = labels.get("com.amazonaws.ecs.cluster", "")
        return Owner(f"ECS task {name}" + (f" of cluster {cluster}" if cluster else ""))
    if name := labels.get("PODMAN_SYSTEMD_UNIT"):
        return Owner(f"unit {name}")
    if name := pod_of(labels):
        return Owner(f"pod {name}")
    return Owner()


class WorkloadKind(StrEnum):
    """The kind of a pod's owner, as kubectl names it. A static pod is kept only by its node's kubelet; `pod` stands for
    a pod without an owner, or with an unknown one. A kind of another API group has the group appended
    (`raycluster.ray.io`) and is not listed."""

    DEPLOYMENT = "deployment"
    DAEMON_SET = "daemonset"
    STATEFUL_SET = "statefulset"
    REPLICA_SET = "replicaset"
    REPLICATION_CONTROLLER = "replicationcontroller"
    CRON_JOB = "cronjob"
    JOB = "job"
    STATIC_POD = "static-pod"
    POD = "pod"


_LABELS: Mapping[str, str] = {
    WorkloadKind.DAEMON_SET: "daemon set",
    WorkloadKind.STATEFUL_SET: "stateful set",
    WorkloadKind.REPLICA_SET: "replica set",
    WorkloadKind.REPLICATION_CONTROLLER: "replication controller",
    WorkloadKind.CRON_JOB: "cron job",
    WorkloadKind.STATIC_POD: "static pod",
}
_CUSTOM_KIND = re.compile(r"[a-z][a-z0-9]*\.[a-z0-9][a-z0-9.-]*")
# The API groups of the kinds above.
_BUILT_IN_GROUPS = ("", "apps", "batch", "extensions")
_SCALED = (
    WorkloadKind.DEPLOYMENT,
    WorkloadKind.STATEFUL_SET,
    WorkloadKind.REPLICA_SET,
    WorkloadKind.REPLICATION_CONTROLLER,
)
# Their pods are made from a template that may be changed while they run. The template of a job may not.
_WITH_TEMPLATE = (
    WorkloadKind.DEPLOYMENT,
    WorkloadKind.STATEFUL_SET,
    WorkloadKind.DAEMON_SET,
    WorkloadKind.CRON_JOB,
)
# Kinds with `spec.suspend`, which deletes their pods or makes no new ones (KubeRay: ray-operator/apis/ray/v1).
_SUSPENDED = (WorkloadKind.CRON_JOB, "raycluster.ray.io", "rayjob.ray.io")
_SUSPEND, _RESUME = '{"spec":{"suspend":true}}', '{"spec":{"suspend":false}}'
# The cron job controller's names for jobs, with the time in minutes (pkg/controller/cronjob, getJobName).
_JOB_OF_CRON_JOB = re.compile(r"(?P<job>(?P<name>.+)-\d{8,10})-[a-z0-9-]+")
# A node selector that matches no node: a daemon set has no replica count.
_NOWHERE = '{"spec":{"template":{"spec":{"nodeSelector":{"exhume-no-such-node":"true"}}}}}'
_ANYWHERE = '{"spec":{"template":{"spec":{"nodeSelector":{"exhume-no-such-node":null}}}}}'


@dataclass(frozen=True, slots=True)
class Workload:
    """The owner of pods, by its kind, namespace and name. `job` is the job, created by a cron job, that a pod belongs
    to."""

    kind: str
    namespace: str
    name: str
    job: str = ""

    @property
    def reference(self) -> str:
        """kubectl's name for it within its namespace, also used in recordings: `deployment/web`."""
        return f"{self.kind}/{self.name}"

    @classmethod
    def parse(cls, pod: str, reference: str | None) -> "Workload":
        """Parse the recorded owner of a pod (namespace/name); without one, derive it from the pod's name."""
        namespace, _, name = pod.partition("/")
        kind, _, owner = (reference or "").partition("/")
        if owner and (any(kind == each for each in WorkloadKind) or _CUSTOM_KIND.fullmatch(kind)):
            made = _JOB_OF_CRON_JOB.fullmatch(name) if kind == WorkloadKind.CRON_JOB else None
            return cls(kind, namespace, owner, made["job"] if made is not None and made["name"] == owner else "")
        if match := _DEPLOYED.fullmatch(name):
            return cls(WorkloadKind.DEPLOYMENT, namespace, match["name"])
        return cls(WorkloadKind.POD, namespace, name)

    def __str__(self) -> str:
        label = _LABELS.get(self.kind, self.kind.partition(".")[0])
        of_kubelet = " of this node's kubelet" if self.kind == WorkloadKind.STATIC_POD else ""
        return f"{label} {self.namespace}/{self.name}{of_kubelet}"

    @property
    def is_custom(self) -> bool:
        """Whether it is managed by a controller that is not part of Kubernetes."""
        return "." in self.kind

    @property
    def stop_commands(self) -> tuple[str, ...]:
        """The commands that keep its pods from being started; none for a static pod, which depends on its file. Only a
        custom kind's controller knows how to stop it, so the user has to edit the object."""
        name = shlex.quote(self.name)
        if self.kind in _SCALED:
            return (f"{self._kubectl} scale {self.kind} {name} --replicas=0",)
        if self.kind == WorkloadKind.DAEMON_SET:
            return (f"{self._kubectl} patch daemonset {name} -p {shlex.quote(_NOWHERE)}",)
        if self.kind in _SUSPENDED:
            its_job = (f"{self._kubectl} delete job {shlex.quote(self.job)}",) if self.job else ()
            return (self._patch(_SUSPEND), *its_job)
        if self.is_custom:
            return (self._edit,)
        return () if self.kind == WorkloadKind.STATIC_POD else (f"{self._kubectl} delete {self.kind} {name}",)

    @property
    def undo_commands(self) -> tuple[str, ...]:
        """The commands that undo the stop; none for deleted objects."""
        if self.kind == WorkloadKind.DAEMON_SET:
            return (f"{self._kubectl} patch daemonset {shlex.quote(self.name)} -p {shlex.quote(_ANYWHERE)}",)
        return (self._patch(_RESUME),) if self.kind in _SUSPENDED else ()

    @property
    def stops_reversibly(self) -> bool:
        return self.kind not in (WorkloadKind.JOB, WorkloadKind.POD) and not self.job

    def limit_command(self, container: str | None, limit: str) -> str:
        """The command that sets a limit (`cpu=2`) for a container of its pods; empty if its template cannot be changed.
        Only a custom kind's controller knows where the limit is."""
        if self.is_custom:
            return self._edit
        if self.kind not in _WITH_TEMPLATE:
            return ""
        only = f" -c {shlex.quote(container)}" if container else ""
        return f"{self._kubectl} set resources {self.kind} {shlex.quote(self.name)}{only} --limits={limit}"

    @property
    def _edit(self) -> str:
        return f"{self._kubectl} edit {self.kind} {shlex.quote(self.name)}"

    def _patch(self, change: str) -> str:
        # Custom kinds do not support strategic merge.
        return f"{self._kubectl} patch {self.kind} {shlex.quote(self.name)} --type=merge -p {shlex.quote(change)}"

    @property
    def _kubectl(self) -> str:
        return f"kubectl -n {shlex.quote(self.namespace)}"


def logs_command(pod: str, container: str | None, *, previous: bool = True) -> str:
    """The command that shows the log of a container in a pod (namespace/name); `previous`: of the run before the last
    restart."""
    namespace, _, name = pod.partition("/")
    which, only = " --previous" if previous else "", f" -c {shlex.quote(container)}" if container else ""
    return f"kubectl -n {shlex.quote(namespace)} logs{which} {shlex.quote(name)}{only}"


def describe_command(pod: str) -> str:
    """The command that shows a pod's owner, limits and last events."""
    namespace, _, name = pod.partition("/")
    return f"kubectl -n {shlex.quote(namespace)} describe pod {shlex.quote(name)}"


def workload_of(pod: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Workload:
    """The owner of a pod (namespace/name), from the traces that its controller left on it; kubelet passes no more to
    the runtime."""
    namespace, _, name = pod.partition("/")
    if is_static(annotations):
        return Workload(WorkloadKind.STATIC_POD, namespace, name)
    if job := labels.get("batch.kubernetes.io/job-name") or labels.get("job-name"):
        return Workload(WorkloadKind.JOB, namespace, job)
    if "statefulset.kubernetes.io/pod-name" in labels:
        return Workload(WorkloadKind.STATEFUL_SET, namespace, name.rpartition("-")[0])
    if revision := labels.get("pod-template-hash"):
        # <deployment>-<hash>-<five letters>
        return Workload(WorkloadKind.DEPLOYMENT, namespace, name.rpartition("-")[0].removesuffix("-" + revision))
    if "controller-revision-hash" in labels:
        return Workload(WorkloadKind.DAEMON_SET, namespace, name.rpartition("-")[0])
    return Workload(WorkloadKind.POD, namespace, name)


def reference_of(api_version: str, kind: str, name: str) -> str:
    """The `Workload.reference` of an API object."""
    group = api_version.rpartition("/")[0]
    return f"{kind.lower()}{'' if group in _BUILT_IN_GROUPS else f'.{group}'}/{name}"


def is_static(annotations: Mapping[str, str]) -> bool:
    """Whether kubelet runs the pod from a file on its node."""
    return annotations.get(_SOURCE) == "file"


def pod_of(labels: Mapping[str, str]) -> str | None:
    """namespace/pod, for a container that kubelet made."""
    name = labels.get(POD_NAME)
    return f"{labels.get(POD_NAMESPACE, '')}/{name}" if name else None


def name_in_pod(labels: Mapping[str, str]) -> str | None:
    """namespace/pod/container, for a container that kubelet made: the same for all its attempts."""
    pod, container = pod_of(labels), labels.get(CONTAINER_NAME)
    return f"{pod}/{container}" if pod and container else None


def is_sandbox(labels: Mapping[str, str]) -> bool:
    """Whether a Docker container is a pod's sandbox, which runs nothing."""
    return labels.get(_DOCKER_KIND) == _SANDBOX


def workload_of_sandbox(labels: Mapping[str, str]) -> Workload | None:
    """The owner of the pod of a sandbox."""
    pod = pod_of(labels)
    given = {key.removeprefix(_ANNOTATION): value for key, value in labels.items() if key.startswith(_ANNOTATION)}
    return workload_of(pod, labels, given) if pod else None
