"""A cgroup path -> the container and the pod that it belongs to.

Reads the layouts of docker, containerd, cri-o and podman, under the cgroupfs and the systemd driver, in both versions
of cgroups and inside one another. What a path doesn't say stays None: a wrong container is worse than none.

Any user may make cgroups in what is delegated to them, with any name. So an id counts only where the runtimes of the
node make cgroups: not below a user's service manager (that is where rootless containers are, too), and as a scope of
systemd only below slices.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

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

# All below it is delegated to the user (units/user@.service.in of systemd: Delegate=).
_USER_MANAGER = re.compile(r"user@\d+\.service")
# Containers that run a systemd of their own: those of LXC (`lxc/<name>` before 4.0 and on Proxmox, there with the
# container's own namespace below), and of systemd-nspawn and libvirt, which machined puts into machine.slice.
_SYSTEM_CONTAINER = re.compile(
    r"lxc\.payload\.[^/]+|lxc(?:\.payload)?/[^/]+(?:/ns)?|machine\.slice/[^/]+\.(?:service|scope)(?:/payload)?"
)


@dataclass(frozen=True, slots=True)
class ContainerIdentity:
    """Who a cgroup belongs to, as far as its path says."""

    container: str | None
    pod: str | None
    runtime: str | None


@lru_cache(maxsize=4096)
def identify(cgroup: str) -> ContainerIdentity | None:
    """The innermost container of a cgroup path, and the pod around it; None for a path outside of any."""
    # From inside a cgroup namespace, what is outside of it begins with `/..` (kernel/cgroup/cgroup.c, cgroup_path_ns).
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
    """Id, runtime, depth in the path and (where the path has it in the same part) the pod's slice. One pass from the
    outermost part: users choose how deep they nest names that look like those of containers."""
    found: tuple[str, str | None, int, str | None] | None = None
    for depth, part in enumerate(parts):
        if (match := _PREFIXED.fullmatch(part)) and (found is not None or _made_by_runtime(parts, depth)):
            found = match["id"], _RUNTIMES[match["prefix"]], depth, None
        elif match := _COLONS.fullmatch(part):
            found = match["id"], _RUNTIMES[match["prefix"]], depth, match["slice"]
        elif match := _BARE.fullmatch(part):
            # By the directory above; below a pod, docker and containerd look the same.
            runtime = "docker" if parts[0] == "ecs" and depth else _PARENTS.get(parts[depth - 1] if depth else "")
            found = match["id"], runtime, depth, None
        elif "ecs" in parts[:depth] and (match := _ECS.fullmatch(part)):
            found = match["id"], None, depth, None
        elif part.startswith(("libpod-conmon-", "crio-conmon-")):
            # The monitor of a container lives next to it, not in it.
            found = None
    return found


def _made_by_runtime(parts: list[str], depth: int) -> bool:
    """Whether a part with the name of a container, outside of any other, lies where a runtime would have put it. Scopes
    are units of systemd, which makes them below slices: those of the node, or of a system container."""
    above = parts[:depth]
    if not parts[depth].endswith(".scope"):
        return True
    while above and above[-1].endswith(".slice"):
        above.pop()
    return not above or _SYSTEM_CONTAINER.fullmatch("/".join(above)) is not None


def _pod_of(part: str) -> str | None:
    match = _POD.fullmatch(part)
    return match["uid"].replace("_", "-") if match else None
