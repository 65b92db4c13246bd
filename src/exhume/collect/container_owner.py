"""Who made a container and who starts it again, by the labels that orchestrators leave on it."""

from collections.abc import Mapping
from dataclasses import dataclass

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"


@dataclass(frozen=True, slots=True)
class Owner:
    """`words` say who it is, `file` is what defines the container, where that is known."""

    words: str = ""
    file: str | None = None


def owner_of(labels: Mapping[str, str]) -> Owner:
    """What the labels of a container tell; nothing for one that a person started."""
    if name := labels.get("com.docker.compose.project"):
        service = labels.get("com.docker.compose.service", "")
        # Several files are told in one label.
        file = labels.get("com.docker.compose.project.config_files", "").split(",")[0]
        return Owner(f"compose project {name}" + (f", service {service}" if service else ""), file or None)
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


def pod_of(labels: Mapping[str, str]) -> str | None:
    """namespace/pod, where kubelet made it."""
    name = labels.get(POD_NAME)
    return f"{labels.get(POD_NAMESPACE, '')}/{name}" if name else None
