"""Where the cgroup hierarchies of this node are: v1, v2, or both (hybrid).

Told by the mount table: the type of each mount says its version. A hierarchy that is mounted twice counts once, and a
mount that shows only a part of one (a container's, a bind mount's) is told from the whole by the files that only the
root of a hierarchy has, or lacks.
"""

from dataclasses import dataclass
from pathlib import Path

from exhume.procfs.host import Host


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted hierarchy. `whole` is False when the mount shows a subtree only."""

    version: int
    path: Path
    controllers: frozenset[str]
    whole: bool


@dataclass(frozen=True, slots=True)
class ControllerCount:
    """A row of /proc/cgroups."""

    hierarchy: int
    cgroups: int
    enabled: bool


def hierarchies(host: Host) -> list[Hierarchy]:
    """Every mounted hierarchy once, by the mount that shows the most of it. Empty when the mounts can't be read."""
    try:
        mounts = (host.proc / "self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        return []
    found: dict[str, Hierarchy] = {}
    for line in mounts.splitlines():
        hierarchy = _hierarchy(host, line)
        if hierarchy is not None:
            device = line.split(" ", 3)[2]
            if device not in found or (hierarchy.whole and not found[device].whole):
                found[device] = hierarchy
    return list(found.values())


def find_v1(layout: list[Hierarchy], controller: str) -> Hierarchy | None:
    return next((h for h in layout if h.version == 1 and controller in h.controllers), None)


def find_v2(layout: list[Hierarchy]) -> Hierarchy | None:
    return next((h for h in layout if h.version == 2), None)


def parse_controllers(content: bytes) -> dict[str, ControllerCount]:
    """/proc/cgroups, by controller."""
    counts = {}
    for line in content.decode().splitlines():
        fields = line.split()
        if len(fields) == 4 and not line.startswith("#"):
            counts[fields[0]] = ControllerCount(int(fields[1]), int(fields[2]), fields[3] == "1")
    return counts


def _hierarchy(host: Host, line: str) -> Hierarchy | None:
    before, separator, after = line.partition(" - ")
    fields, kind = before.split(" "), after.split(" ")
    if not separator or len(fields) < 5 or kind[0] not in ("cgroup", "cgroup2"):
        return None
    path = host.resolve(_unescape(fields[4]))
    if kind[0] == "cgroup2":
        # Every directory but the root of all has events of its own.
        return Hierarchy(2, path, _v2_controllers(path), not (path / "cgroup.events").exists())
    options = frozenset(kind[2].split(",")) if len(kind) > 2 else frozenset()
    return Hierarchy(1, path, options, (path / "release_agent").exists())


def _v2_controllers(path: Path) -> frozenset[str]:
    try:
        return frozenset((path / "cgroup.controllers").read_text().split())
    except OSError:
        return frozenset()


def _unescape(text: str) -> str:
    """The mount table writes blanks and backslashes in octal."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
