"""Who made a container and who starts it again, by the labels that orchestrators leave on it."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
_SOURCE = "kubernetes.io/config.source"
# How an owner that is compose is labelled: the project, then the service in it.
COMPOSE_PROJECT, COMPOSE_SERVICE = "compose project ", ", service "


@dataclass(frozen=True, slots=True)
class Owner:
    """`label` names it, `file` is what defines the container, where that is known."""

    label: str = ""
    file: str | None = None


def owner_of(labels: Mapping[str, str]) -> Owner:
    """What the labels of a container say; nothing for one that a person started."""
    if name := labels.get("com.docker.compose.project"):
        service = labels.get("com.docker.compose.service", "")
        # Several files are in one label.
        file = labels.get("com.docker.compose.project.config_files", "").split(",")[0]
        # Versions before 2 have it as it was given.
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


def pod_owner(pod: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Who keeps a pod (namespace/name) alive, by what its controller left on it; kubelet gives the runtime no more."""
    if is_static(annotations):
        return f"static pod {pod} of this node's kubelet"
    namespace, _, name = pod.partition("/")
    if job := labels.get("batch.kubernetes.io/job-name") or labels.get("job-name"):
        return f"job {namespace}/{job}"
    if "statefulset.kubernetes.io/pod-name" in labels:
        return f"stateful set {namespace}/{name.rpartition('-')[0]}"
    if revision := labels.get("pod-template-hash"):
        # <deployment>-<hash>-<five letters>
        return f"deployment {namespace}/{name.rpartition('-')[0].removesuffix('-' + revision)}"
    if "controller-revision-hash" in labels:
        return f"daemon set {namespace}/{name.rpartition('-')[0]}"
    return f"pod {pod}"


def is_static(annotations: Mapping[str, str]) -> bool:
    """Whether kubelet has the pod from a file on its node."""
    return annotations.get(_SOURCE) == "file"


def pod_of(labels: Mapping[str, str]) -> str | None:
    """namespace/pod, where kubelet made it."""
    name = labels.get(POD_NAME)
    return f"{labels.get(POD_NAMESPACE, '')}/{name}" if name else None
