"""Map a cgroup path to its container and pod.

Understands the layouts of docker, containerd, cri-o and podman, with the cgroupfs and the systemd driver, in both
cgroup versions, and nested. What the path does not show stays None: a wrong container is worse than none.

Any user may make cgroups with any name in a subtree that is delegated to them. So an id counts only where the runtimes
of the node make cgroups: not below a user's service manager (which is also where rootless containers are), and for a
systemd scope only below slices.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

_ID = r"(?P<id>[0-9a-f]{64})"

# systemd driver: `docker-<id>.scope`; cri-o and podman use their prefix with cgroupfs as well.
_PREFIXED = re.compile(rf"(?P<prefix>docker|cri-containerd|nerdctl|crio|libpod)-{_ID}(?:\.scope)?$")
# containerd below a systemd unit, with a path meant for the other driver.
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
# The directory above a bare id, where only one runtime uses it.
_PARENTS = {"docker": "docker", "libpod_parent": "podman", "machine.slice": "podman"}

_UID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32}"
# `pod<uid>` and `kubepods[-burstable]-pod<uid>.slice`; a static pod's uid is a bare hash.
_POD = re.compile(rf"(?:(?:[\w.]+-)*kubepods(?:-burstable|-besteffort)?-)?pod(?P<uid>{_UID})(?:\.slice)?$")

# Everything below is delegated to the user (units/user@.service.in of systemd: Delegate=).
_USER_MANAGER = re.compile(r"user@\d+\.service")
# Containers that run their own systemd: those of LXC (`lxc/<name>` before 4.0 and on Proxmox, there with the
# container's own namespace below), and those of systemd-nspawn and libvirt, which machined puts into machine.slice.
_SYSTEM_CONTAINER = re.compile(
    r"lxc\.payload\.[^/]+|lxc(?:\.payload)?/[^/]+(?:/ns)?|machine\.slice/[^/]+\.(?:service|scope)(?:/payload)?"
)


@dataclass(frozen=True, slots=True)
class ContainerIdentity:
    """The container and pod of a cgroup, as far as the path shows them."""

    container: str | None
    pod: str | None
    runtime: str | None


@lru_cache(maxsize=4096)
def identify(cgroup: str) -> ContainerIdentity | None:
    """The innermost container of a cgroup path, and the pod around it; None for a path outside any container."""
    # Inside a cgroup namespace, a path outside the namespace begins with `/..` (kernel/cgroup/cgroup.c,
    # cgroup_path_ns).
    parts = [part for part in cgroup.split("/") if part not in ("", "..")]
    parts = list(takewhile(lambda part: not _USER_MANAGER.fullmatch(part), parts))
    found = _innermost_container(parts)
    container, runtime, depth, unit = found or (None, None, len(parts), None)
    pod = _pod_of(unit) if unit else None
    for part in reversed(parts[:depth]):
        pod = pod or _pod_of(part)
    if container is None and pod is None:
        return None
    return ContainerIdentity(container, pod, runtime)


def _innermost_container(parts: list[str]) -> tuple[str, str | None, int, str | None] | None:
    """Id, runtime, depth in the path and (if the same path component has it) the pod's slice. A single pass from the
    outermost component, because users control how deep they nest names that look like containers."""
    found: tuple[str, str | None, int, str | None] | None = None
    for depth, part in enumerate(parts):
        if (match := _PREFIXED.fullmatch(part)) and (found is not None or _made_by_runtime(parts, depth)):
            found = match["id"], _RUNTIMES[match["prefix"]], depth, None
        elif match := _COLONS.fullmatch(part):
            found = match["id"], _RUNTIMES[match["prefix"]], depth, match["slice"]
        elif match := _BARE.fullmatch(part):
            # Decided by the directory above; below a pod, docker and containerd look the same.
            runtime = "docker" if parts[0] == "ecs" and depth else _PARENTS.get(parts[depth - 1] if depth else "")
            found = match["id"], runtime, depth, None
        elif "ecs" in parts[:depth] and (match := _ECS.fullmatch(part)):
            found = match["id"], None, depth, None
        elif part.startswith(("libpod-conmon-", "crio-conmon-")):
            # A container's monitor (conmon) lives next to the container, not in it.
            found = None
    return found


def _made_by_runtime(parts: list[str], depth: int) -> bool:
    """Whether a component with a container's name, outside any other container, is where a runtime would put it. Scopes
    are systemd units, which systemd makes below slices: those of the node, or of a system container."""
    above = parts[:depth]
    if not parts[depth].endswith(".scope"):
        return True
    while above and above[-1].endswith(".slice"):
        above.pop()
    return not above or _SYSTEM_CONTAINER.fullmatch("/".join(above)) is not None


def _pod_of(part: str) -> str | None:
    match = _POD.fullmatch(part)
    return match["uid"].replace("_", "-") if match else None
