"""Where the cgroup hierarchies of this node are: v1, v2, or both (hybrid).

The mount table has them: the type of each mount is its version. A hierarchy that is mounted twice counts once, and a
mount of a part of one (a container's, a bind mount's) is recognised by the files that only the root of a hierarchy
has, or lacks.
"""

from dataclasses import dataclass
from pathlib import Path

from exhume.procfs.host import Host
from exhume.procfs.mountinfo import Mount, read_mounts

# What to do where a hierarchy is not whole.
WHOLE_HIERARCHY = (
    "run in the node's cgroup namespace (cgroupns=host) with its /sys/fs/cgroup (in a pod, a hostPath mount of it)"
)


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted hierarchy. `whole` is False when the mount shows a subtree only."""

    version: int
    path: Path
    controllers: frozenset[str]
    whole: bool


def hierarchies(host: Host) -> list[Hierarchy]:
    """Every mounted hierarchy once, by the mount that shows the most of it. Empty when the mounts can't be read."""
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
        # Every cgroup but the root has this file (kernel/cgroup/cgroup.c, cgroup_base_files: CFTYPE_NOT_ON_ROOT).
        return Hierarchy(2, path, _v2_controllers(path), not (path / "cgroup.events").exists())
    if mount.kind == "cgroup":
        # Only the root has this one (kernel/cgroup/cgroup-v1.c, cgroup1_base_files: CFTYPE_ONLY_ON_ROOT).
        return Hierarchy(1, path, mount.options, (path / "release_agent").exists())
    return None


def _v2_controllers(path: Path) -> frozenset[str]:
    try:
        return frozenset((path / "cgroup.controllers").read_text().split())
    except OSError:
        return frozenset()
