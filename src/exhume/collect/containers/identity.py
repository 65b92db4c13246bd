"""A cgroup path -> the container and the pod that it belongs to.

Reads the layouts of docker, containerd, cri-o and podman, under the cgroupfs and the systemd driver, in both versions
of cgroups and inside one another. What a path doesn't say stays None: a wrong container is worse than none.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

_ID = r"(?P<id>[0-9a-f]{64})"

# systemd driver: `docker-<id>.scope`; cri-o and podman use their prefix under cgroupfs as well.
_PREFIXED = re.compile(rf"(?P<prefix>docker|cri-containerd|nerdctl|crio|libpod)-{_ID}(?:\.scope)?$")
# containerd under a systemd unit, with the path that was meant for the other driver.
_COLONS = re.compile(rf"(?P<slice>.*):(?P<prefix>cri-containerd|crio|docker):{_ID}$")
_BARE = re.compile(rf"{_ID}$")
# ECS on Fargate names its containers by task and number.
_ECS = re.compile(r"(?P<id>[0-9a-f]{32}-\d{6,})$")

_RUNTIMES = {
    "docker": "docker",
    "cri-containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "cri-o",
    "libpod": "podman",
}
# The directory above a bare id, where one runtime alone uses it.
_PARENTS = {"docker": "docker", "libpod_parent": "podman", "machine.slice": "podman"}

_UID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"
# `pod<uid>` and `kubepods[-burstable]-pod<uid>.slice`; a static pod's uid is a bare hash.
_POD = re.compile(rf"(?:(?:[\w.]+-)*kubepods(?:-burstable|-besteffort)?-)?pod(?P<uid>{_UID})(?:\.slice)?$")


@dataclass(frozen=True, slots=True)
class ContainerIdentity:
    """Who a cgroup belongs to, as far as its path says."""

    container: str | None
    pod: str | None
    runtime: str | None


@lru_cache(maxsize=4096)
def identify(cgroup: str) -> ContainerIdentity | None:
    """The innermost container of a cgroup path, and the pod around it; None for a path outside of any."""
    parts = [part for part in cgroup.split("/") if part]
    found = _innermost_container(parts)
    container, runtime, depth, unit = found or (None, None, len(parts), None)
    pod = _pod_of(unit) if unit else None
    for part in reversed(parts[:depth]):
        pod = pod or _pod_of(part)
    if container is None and pod is None:
        return None
    return ContainerIdentity(container, pod, runtime)


def _innermost_container(parts: list[str]) -> tuple[str, str | None, int, str | None] | None:
    """Id, runtime, depth in the path and (where the path has it in the same part) the pod's slice."""
    for depth in range(len(parts) - 1, -1, -1):
        part = parts[depth]
        if match := _PREFIXED.fullmatch(part):
            return match["id"], _RUNTIMES[match["prefix"]], depth, None
        if match := _COLONS.fullmatch(part):
            return match["id"], _RUNTIMES[match["prefix"]], depth, match["slice"]
        if match := _BARE.fullmatch(part):
            # By the directory above; below a pod, docker and containerd look the same.
            runtime = "docker" if parts[0] == "ecs" and depth else _PARENTS.get(parts[depth - 1] if depth else "")
            return match["id"], runtime, depth, None
        if "ecs" in parts[:depth] and (match := _ECS.fullmatch(part)):
            return match["id"], None, depth, None
        if part.startswith(("libpod-conmon-", "crio-conmon-")):
            # The monitor of a container lives next to it, not in it.
            return None
    return None


def _pod_of(part: str) -> str | None:
    match = _POD.fullmatch(part)
    return match["uid"].replace("_", "-") if match else None
