"""Counts of dying cgroups: removed, but kept by the kernel because something still refers to them, such as a page that
is charged to a memory cgroup.

v1 has no count of dying cgroups, so it is the kernel's count (/proc/cgroups) minus the visible directories; both must
be from the same moment. v2 counts dying cgroups itself, below every cgroup, and since 6.12 per controller. A removed
cgroup takes some 40 ms to be released even when nothing holds it (measured on 6.18), so one count is meaningful only
when the next one confirms it: confirming, and the interval, are up to the callers (recorder, census, lab).
"""

from dataclasses import dataclass, replace
from pathlib import Path

from exhume.collect.cgroup.layout import Hierarchy, hierarchies
from exhume.collect.cgroup.tree import CgroupTree
from exhume.procfs.cgroup import CgroupCount, ControllerCount, parse_cgroup_stat, parse_controllers
from exhume.procfs.host import Host, ProcFile

MEMORY = "memory"
# All cgroups of v2, whatever their controllers.
ALL = "all"
# The name of v2 in recordings.
UNIFIED = "unified"
_TRIES = 6


@dataclass(frozen=True, slots=True)
class DyingCount:
    """The kernel's cgroups, the visible ones, and the difference. Unknown counts are None, and `note` gives
    the reason."""

    kernel: int | None
    visible: int | None
    dying: int | None
    note: str = ""


class LegacyCounter:
    """Counts the cgroups of one v1 hierarchy."""

    def __init__(self, host: Host, hierarchy: Hierarchy, controllers: list[str]) -> None:
        self.hierarchy = hierarchy
        self.name = MEMORY if MEMORY in controllers else ",".join(controllers)
        self.counts_memory = self.name == MEMORY
        self.tree = CgroupTree(hierarchy.path)
        self._controller = controllers[0] if self.name != MEMORY else MEMORY
        self._controllers = ProcFile(host.proc / "cgroups", single=True)

    @property
    def number(self) -> int | None:
        """The hierarchy number in tracepoints."""
        row = self._row()
        return row.hierarchy if row else None

    def kernel(self) -> int | None:
        """The number of cgroups that the kernel has, including dying ones."""
        row = self._row()
        return row.cgroups if row else None

    def difference(self, *, visible_known: bool = True) -> DyingCount:
        """The kernel's current count minus the directories that the tree knows, without a walk."""
        kernel = self.kernel()
        visible = self.tree.visible if visible_known and self.hierarchy.whole else None
        dying = kernel - visible if kernel is not None and visible is not None else None
        if dying is not None and dying < 0:
            # Cgroups were made between the two reads, so they are not from the same moment.
            visible = dying = None
        return DyingCount(kernel, visible, dying)

    def count(self) -> dict[str, DyingCount]:
        """Walk the whole tree and count, by controller."""
        return {self.name: self._count()}

    def _count(self) -> DyingCount:
        if not self.hierarchy.whole:
            note = (
                f"{self.hierarchy.path} shows only a part of the hierarchy (a cgroup namespace, or a mount of a "
                "subtree): run in the node's cgroup namespace to count zombies"
            )
            return DyingCount(self.kernel(), None, None, note)
        seen: list[int] = []
        for _ in range(_TRIES):
            before = self.kernel()
            self.tree.walk()
            after, visible = self.kernel(), self.tree.visible
            if self.tree.unreadable:
                return DyingCount(after, None, None, _may_not_list(self.tree.unreadable))
            if before is None or after is None:
                return DyingCount(None, visible, None, f"/proc/cgroups can't be read, or has no row for {self.name}")
            if before == after >= visible:
                return DyingCount(after, visible, after - visible)
            seen += [max(0, before - visible), max(0, after - visible)]
        note = (
            f"cgroups come and go faster than they can be counted: there are between {min(seen):,} and {max(seen):,} "
            "zombies; try again in a quieter moment"
        )
        return DyingCount(after, None, None, note)

    def _row(self) -> ControllerCount | None:
        return parse_controllers(self._controllers.read_or_none() or b"").get(self._controller)

    def close(self) -> None:
        self._controllers.close()


class UnifiedCounter:
    """Counts the cgroups of the v2 hierarchy. `counts_memory` is False when the memory controller is in a
    v1 hierarchy."""

    name = UNIFIED
    number = 0

    def __init__(self, hierarchy: Hierarchy, *, counts_memory: bool = True) -> None:
        self.hierarchy = hierarchy
        self.counts_memory = counts_memory
        self._stat = ProcFile(hierarchy.path / "cgroup.stat", single=True)

    def count(self) -> dict[str, DyingCount]:
        """The kernel's counts, by controller."""
        key = MEMORY if self.counts_memory else ALL
        try:
            stat = parse_cgroup_stat(self._stat.read())
        except OSError as error:
            return {key: DyingCount(None, None, None, f"{self._stat.path}: {error.strerror}")}
        together = stat.pop(ALL, None)
        if not self.counts_memory:
            # The controller is in v1; here it only counts the root.
            stat.pop(MEMORY, None)
        found = {name: _counted(count) for name, count in stat.items()}
        if key not in found and together is not None:
            note = "" if key == ALL else "this kernel counts dying cgroups of all controllers together"
            found[key] = _counted(together, note)
        elif together is None:
            note = f"{self._stat.path} has no count of dying cgroups (Linux before 4.14)"
            found.setdefault(key, DyingCount(None, None, None, note))
        if not self.hierarchy.whole:
            part = f"only what is below {self.hierarchy.path} (a cgroup namespace, or a mount of a subtree)"
            found = {name: replace(count, note=count.note or part) for name, count in found.items()}
        return found

    def close(self) -> None:
        self._stat.close()


DyingCounter = LegacyCounter | UnifiedCounter


def dying_counters(host: Host) -> list[DyingCounter]:
    """A counter for every hierarchy that can be counted. Hierarchies without a controller (name=systemd) are not in
    /proc/cgroups."""
    layout = hierarchies(host)
    rows = parse_controllers(ProcFile(host.proc / "cgroups").read_or_none() or b"")
    found: list[DyingCounter] = []
    legacy_memory = any(each.version == 1 and MEMORY in each.controllers for each in layout)
    for each in layout:
        if each.version == 2:
            found.append(UnifiedCounter(each, counts_memory=not legacy_memory))
        elif controllers := sorted(each.controllers & (rows.keys() | {MEMORY})):
            found.append(LegacyCounter(host, each, controllers))
    return found


def count_below(directory: Path) -> CgroupCount | None:
    """Visible and dying cgroups at and below a v2 cgroup: memory cgroups, if the kernel counts them separately. None
    when the file cannot be read or has no such count."""
    stat = parse_cgroup_stat(ProcFile(directory / "cgroup.stat").read_or_none() or b"")
    return stat.get(MEMORY) or stat.get(ALL)


def _counted(count: CgroupCount, note: str = "") -> DyingCount:
    return DyingCount(count.visible + count.dying, count.visible, count.dying, note)


def _may_not_list(paths: set[str]) -> str:
    others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{min(paths)}{others} may not be listed, so visible cgroups can't be counted: run as root"
