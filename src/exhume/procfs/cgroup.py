"""/proc/cgroups, /proc/PID/cgroup, and the files cgroup.stat, cpu.stat and cpu.max of a cgroup."""

from dataclasses import dataclass
from typing import NamedTuple

from exhume.procfs.flat_keyed import parse_flat_keyed

_DELETED = " (deleted)"
_DYING = b"nr_dying_subsys_"


@dataclass(frozen=True, slots=True)
class ControllerCount:
    """A row of /proc/cgroups (kernel/cgroup/cgroup-v1.c, proc_cgroupstats_show). `cgroups` includes dying ones: the
    hierarchy's counter is decremented when a cgroup is freed (kernel/cgroup/cgroup.c, css_free_rwork_fn), not at rmdir.
    """

    hierarchy: int
    cgroups: int
    enabled: bool


class CgroupCount(NamedTuple):
    """Visible and dying cgroups at and below one cgroup, including itself."""

    visible: int
    dying: int


class Bandwidth(NamedTuple):
    """Counters of a CPU quota since the cgroup was created."""

    periods: int
    throttled: int
    throttled_ns: int


def parse_controllers(content: bytes) -> dict[str, ControllerCount]:
    """Parse /proc/cgroups, by controller."""
    counts = {}
    for line in content.decode("utf-8", "replace").splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[1].isdigit() and fields[2].isdigit() and not line.startswith("#"):
            counts[fields[0]] = ControllerCount(int(fields[1]), int(fields[2]), fields[3] == "1")
    return counts


def parse_pid_cgroup(content: bytes) -> dict[str, str]:
    """Parse /proc/PID/cgroup: the path of a process by controller; "" is v2 and `name=systemd` a named hierarchy.

    For a removed v2 cgroup the kernel appends a mark to the path (kernel/cgroup/cgroup.c, proc_cgroup_show).
    """
    paths: dict[str, str] = {}
    for line in content.decode("utf-8", "replace").split("\n"):
        fields = line.split(":", 2)
        if len(fields) == 3:
            path = fields[2].removesuffix(_DELETED)
            paths.update(dict.fromkeys(fields[1].split(","), path))
    return paths


def parse_cgroup_stat(content: bytes) -> dict[str, CgroupCount]:
    """Parse cgroup.stat: counts by controller, and under "all" of all cgroups whatever their controllers.

    kernel/cgroup/cgroup.c, cgroup_stat_show: dying descendants since 4.14, counts for each controller since 6.12.
    """
    stat = parse_flat_keyed(content)
    counts = {}
    if b"nr_descendants" in stat and b"nr_dying_descendants" in stat:
        counts["all"] = CgroupCount(stat[b"nr_descendants"] + 1, stat[b"nr_dying_descendants"])
    for name, dying in stat.items():
        controller = name.removeprefix(_DYING)
        visible = stat.get(b"nr_subsys_" + controller)
        if controller != name and visible is not None:
            counts[controller.decode()] = CgroupCount(visible, dying)
    return counts


def parse_cpu_stat(content: bytes) -> Bandwidth | None:
    """Parse cpu.stat of v1 (nanoseconds) or v2 (microseconds); None for a cgroup without a quota.

    kernel/sched/core.c: cpu_cfs_stat_show, cpu_extra_stat_show.
    """
    stat = parse_flat_keyed(content)
    if b"nr_throttled" not in stat or b"nr_periods" not in stat:
        return None
    nanos = stat[b"throttled_usec"] * 1000 if b"throttled_usec" in stat else stat.get(b"throttled_time", 0)
    return Bandwidth(stat[b"nr_periods"], stat[b"nr_throttled"], nanos)


def parse_cpu_max(content: bytes) -> tuple[int, int | None] | None:
    """Parse the quota and period in microseconds; None without a limit. cpu.cfs_quota_us of v1 has no period."""
    fields = content.split()
    if not fields or not fields[0].isdigit():
        return None
    return int(fields[0]), int(fields[1]) if len(fields) > 1 else None


def weight_to_shares(weight: int) -> int:
    """Convert a v2 cpu.weight (1 to 10,000) to v1 cpu.shares (2 to 262,144): the inverse of the conversion in container
    runtimes (opencontainers/cgroups, ConvertCPUSharesToCgroupV2Value)."""
    return 2 + (weight - 1) * 262_142 // 9_999
