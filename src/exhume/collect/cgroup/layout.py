"""The cgroup hierarchies of this node and their mount points: v1, v2, or both (hybrid).

They are in the mount table: the type of each mount is its version. A hierarchy that is mounted twice counts once, and a
partial mount (a container's, a bind mount) is recognised by files that only the root of a hierarchy has, or lacks.
"""

from dataclasses import dataclass
from pathlib import Path

from exhume.procfs.host import Host
from exhume.procfs.mountinfo import Mount, read_mounts

# The remedy when a hierarchy is not mounted whole.
WHOLE_HIERARCHY = (
    "run in the node's cgroup namespace (cgroupns=host) with its /sys/fs/cgroup (in a pod, a hostPath mount of it)"
)


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted hierarchy. `whole` is False when the mount shows only a subtree."""

    version: int
    path: Path
    controllers: frozenset[str]
    whole: bool


def hierarchies(host: Host) -> list[Hierarchy]:
    """Every mounted hierarchy once, through the mount that shows the most of it. Empty when the mounts
    cannot be read."""
    found: dict[tuple[int, int], Hierarchy] = {}
    for mount in read_mounts(host.proc / "self/mountinfo"):
        hierarchy = _hierarchy(host, mount)
        if hierarchy is not None and (mount.device not in found or hierarchy.whole > found[mount.device].whole):
            found[mount.device] = hierarchy
    return list(found.values())


def find_v1(layout: list[Hierarchy], controller: str) -> Hierarchy | None:
    return next((h for h in layout if h.version == 1 and controller in h.controllers), None)


def find_v2(layout: list[Hierarchy]) -> Hierarchy | None:
    return next((h for h in layout if h.version == 2), None)


def _hierarchy(host: Host, mount: Mount) -> Hierarchy | None:
    path = host.resolve(mount.point)
    if mount.kind == "cgroup2":
        # Every cgroup except the root has this file (kernel/cgroup/cgroup.c, cgroup_base_files: CFTYPE_NOT_ON_ROOT).
        return Hierarchy(2, path, _v2_controllers(path), not (path / "cgroup.events").exists())
    if mount.kind == "cgroup":
        # Only the root has this file (kernel/cgroup/cgroup-v1.c, cgroup1_base_files: CFTYPE_ONLY_ON_ROOT).
        return Hierarchy(1, path, mount.options, (path / "release_agent").exists())
    return None


def _v2_controllers(path: Path) -> frozenset[str]:
    try:
        return frozenset((path / "cgroup.controllers").read_text().split())
    except OSError:
        return frozenset()
