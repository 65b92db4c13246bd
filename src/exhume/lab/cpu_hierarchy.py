"""The CPU cgroups of this machine, v1 or v2, as the lab uses them: one with a quota, and processes in it."""

from dataclasses import dataclass
from pathlib import Path

from exhume.collect.cgroup_layout import find_v1, find_v2, hierarchies
from exhume.collect.host import Host
from exhume.model.errors import LabError


@dataclass(frozen=True, slots=True)
class CpuHierarchy:
    """Where CPU cgroups are made. `beside` are other v1 hierarchies that runtimes use under the same names."""

    version: int
    root: Path
    beside: tuple[Path, ...] = ()

    def directories(self, name: str) -> list[Path]:
        """The directories of one cgroup, that of the CPU first."""
        return [root / name for root in (self.root, *self.beside)]

    def set_quota(self, name: str, cores: float, period_us: int) -> None:
        group, quota = self.root / name, round(cores * period_us)
        if self.version == 1:
            (group / "cpu.cfs_period_us").write_text(str(period_us))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group / "cpu.max").write_text(f"{quota} {period_us}")

    def join(self, name: str, pid: int) -> None:
        for directory in self.directories(name):
            (directory / "cgroup.procs").write_text(str(pid))


def find_cpu_hierarchy(host: Host) -> CpuHierarchy:
    """The hierarchy with the cpu controller. Raises LabError where there is none to use."""
    layout = hierarchies(host)
    v1, memory, v2 = find_v1(layout, "cpu"), find_v1(layout, "memory"), find_v2(layout)
    if v1 is not None:
        beside = (memory.path,) if memory is not None and memory.path != v1.path else ()
        return CpuHierarchy(1, v1.path, beside)
    if v2 is None or "cpu" not in v2.controllers:
        raise LabError("no hierarchy with the cpu controller is mounted; mount cgroup2 at /sys/fs/cgroup")
    # At the root it would turn the controller on for others too: not the lab's to do.
    if "cpu" not in (v2.path / "cgroup.subtree_control").read_text().split():
        raise LabError(f"CPU quotas are off; turn them on: echo +cpu > {v2.path}/cgroup.subtree_control")
    return CpuHierarchy(2, v2.path)
