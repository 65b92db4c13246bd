"""The CPU and memory cgroup hierarchies of this machine, v1 or v2, as used by the lab."""

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exhume.collect.cgroup.dying import MEMORY, LegacyCounter, count_below
from exhume.collect.cgroup.layout import Hierarchy, find_v1, find_v2, hierarchies
from exhume.control.files import lock_directory
from exhume.model.errors import LabError
from exhume.procfs.cgroup import parse_controllers
from exhume.procfs.flat_keyed import parse_flat_keyed
from exhume.procfs.host import Host


def cpu_cgroups(host: Host, name: str) -> list[Path]:
    """Return the directories of a CPU cgroup, the CPU hierarchy first: on v1, runtimes use the same name in the memory
    hierarchy.

    Raises LabError if the machine has no such hierarchy."""
    layout = hierarchies(host)
    v1, memory, v2 = find_v1(layout, "cpu"), find_v1(layout, "memory"), find_v2(layout)
    if v1 is not None:
        return [root / name for root in dict.fromkeys(each.path for each in (v1, memory) if each is not None)]
    if v2 is None or "cpu" not in v2.controllers:
        raise LabError("no hierarchy with the cpu controller is mounted; mount cgroup2 at /sys/fs/cgroup")
    # Enabling the controller at the root would affect others too: that is not up to the lab.
    if "cpu" not in (v2.path / "cgroup.subtree_control").read_text().split():
        raise LabError(f"CPU quotas are off; turn them on: echo +cpu > {v2.path}/cgroup.subtree_control")
    return [v2.path / name]


def set_quota(cgroup: Path, cores: float, period_us: int) -> None:
    """Limit a CPU cgroup to this many cores."""
    quota = round(cores * period_us)
    if (cgroup.parent / "cgroup.controllers").exists():
        (cgroup / "cpu.max").write_text(f"{quota} {period_us}")
    else:
        (cgroup / "cpu.cfs_period_us").write_text(str(period_us))
        (cgroup / "cpu.cfs_quota_us").write_text(str(quota))


# The kernel's maximum (kernel/sched/sched.h, MAX_SHARES; include/linux/cgroup-defs.h, CGROUP_WEIGHT_MAX).
_MOST_SHARES, _MOST_WEIGHT = 1 << 18, 10_000


def put_first(cgroup: Path) -> None:
    """Give a CPU cgroup priority over everything else that wants to run."""
    if (cgroup.parent / "cgroup.controllers").exists():
        (cgroup / "cpu.weight").write_text(str(_MOST_WEIGHT))
    else:
        (cgroup / "cpu.shares").write_text(str(_MOST_SHARES))


def cpuset_cgroup(host: Host, name: str) -> Path:
    """The directory of a cpuset. Raises LabError if the machine has none."""
    layout = hierarchies(host)
    v1, v2 = find_v1(layout, "cpuset"), find_v2(layout)
    if v1 is not None:
        return v1.path / name
    if v2 is None or "cpuset" not in v2.controllers:
        raise LabError("no hierarchy with the cpuset controller is mounted; mount cgroup2 at /sys/fs/cgroup")
    if "cpuset" not in (v2.path / "cgroup.subtree_control").read_text().split():
        raise LabError(f"cpusets are off; turn them on: echo +cpuset > {v2.path}/cgroup.subtree_control")
    return v2.path / name


def set_cores(cgroup: Path, cores: list[int]) -> None:
    """Give a cpuset these cores, and the memory nodes of its parent."""
    if (cgroup.parent / "cgroup.controllers").exists():
        if "cpuset" not in (cgroup.parent / "cgroup.subtree_control").read_text().split():
            (cgroup.parent / "cgroup.subtree_control").write_text("+cpuset")
    else:
        # On v1 a cpuset without memory nodes accepts no process (kernel/cgroup/cpuset-v1.c, cpuset1_validate_change).
        (cgroup / "cpuset.mems").write_text((cgroup.parent / "cpuset.mems").read_text())
    (cgroup / "cpuset.cpus").write_text(",".join(map(str, sorted(cores))))


_SAMPLES_APART_S = 0.06  # a cgroup that nothing holds takes some 40 ms to be released
# A busy machine takes seconds to begin. Once most are gone, the rest follow soon or belong to others.
_BEGINNING_S, _ENDING_S = 30.0, 3.0
_MOST = 0.9
_LOCK_PATIENCE_S = 120.0
_RACES_AT_MOST, _RACE_PAUSE_S = 200, 0.05
# The kernel counts pages up to two seconds late, and later still on a busy machine.
_USUALLY_COUNTED_S, _LATEST_PAGES_S = 3.0, 15.0
# The locks that this process holds: descriptor and number of labs, by hierarchy.
_ALONE: dict[Path, list[int]] = {}


@dataclass(frozen=True, slots=True)
class MemoryHierarchy:
    """Where memory cgroups are created, and what differs between the versions: the file to join a cgroup, the file to
    reclaim from it, and what to write to the latter."""

    version: int
    root: Path
    host: Host
    join_file: str
    reclaim_file: str
    reclaim_input: str

    def home_below(self, parent: Path) -> Path:
        """The cgroup of the maker between two zombies. On v2 processes may only be in leaves."""
        return parent if self.version == 1 else parent / "maker"

    def prepare(self, parent: Path) -> None:
        """Prepare a new cgroup for children."""
        if self.version == 2:
            (parent / "cgroup.subtree_control").write_text("+memory")
            self.home_below(parent).mkdir()

    def dying(self, parent: Path) -> int:
        """Current zombies: below the parent on v2; in the whole hierarchy on v1, where the kernel has no count per
        parent."""
        if self.version == 2:
            below = count_below(parent)
            if below is None:
                raise LabError(f"{parent / 'cgroup.stat'} can't be read")
            return below.dying
        counter = LegacyCounter(self.host, Hierarchy(1, self.root, frozenset({MEMORY}), whole=True), [MEMORY])
        for _ in range(_RACES_AT_MOST):
            found = counter.count()[MEMORY].dying
            if found is not None:
                return found
            time.sleep(_RACE_PAUSE_S)
        raise LabError("memory cgroups come and go too quickly here for an exact count; try on a quieter machine")

    def settled(self, parent: Path, expected: int | None = None, before: int | None = None) -> int:
        """Zombies once those without a pin are gone, that is, when two successive counts agree.

        The kernel may take a while before it starts to release many of them. So if a lower count is expected, wait for
        it: `before` is the count at the time their pins were removed.
        """
        last = least = self.dying(parent)
        before = last if before is None else before
        to_go = 0 if expected is None else before - expected
        fell = time.monotonic()
        while True:
            time.sleep(_SAMPLES_APART_S)
            now = self.dying(parent)
            if now < least:
                least, fell = now, time.monotonic()
            if now == last and (expected is None or now <= expected):
                return now
            begun = to_go <= 0 or before - least >= _MOST * to_go
            if time.monotonic() - fell > (_ENDING_S if begun else _BEGINNING_S):
                return now
            last = now

    def own_zombies(self, parent: Path, others: int, expected: int | None = None) -> int:
        """How many zombies a lab has below its parent now, given the number of others before it made them.

        On v1 the kernel counts those of the whole machine, where others may come and go. Each zombie of a lab keeps one
        page, so the pages of its parent show how many are the lab's own, but they are counted late. If the kernel's
        count is the expected one, it is right; while both counts are higher, some zombies may yet go.
        """
        least, fell = None, time.monotonic()
        while True:
            counted = self.settled(parent) - others
            pages = self.residual_pages(parent)
            known = counted if pages is None else pages
            to_go = expected is not None and known > expected
            if counted == expected or (counted == known and not to_go):
                return counted
            if least is None or counted < least:
                least, fell = counted, time.monotonic()
            patience = _BEGINNING_S if to_go else _USUALLY_COUNTED_S if expected in (None, known) else _LATEST_PAGES_S
            if time.monotonic() - fell > patience:
                return known

    def residual_pages(self, parent: Path) -> int | None:
        """Pages and swap entries below the parent that belong to no visible cgroup, but to zombies. None on v2."""
        if self.version == 2:
            return None
        stat = parse_flat_keyed((parent / "memory.stat").read_bytes())
        pages = [stat[b"total_" + name] - stat[name] for name in (b"cache", b"swap") if name in stat]
        return sum(pages) // mmap.PAGESIZE

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other labs from creating or removing zombies meanwhile: on v1 only the whole hierarchy can be
        counted."""
        # A lock on the directory itself leaves no trace, and ends with the process. Labs of the same process share it.
        if self.root not in _ALONE:
            deadline = time.monotonic() + _LOCK_PATIENCE_S
            while (lock := lock_directory(self.root)) < 0:
                if time.monotonic() > deadline:
                    raise LabError("another lab has been at work for two minutes; stop it or wait for it to end")
                time.sleep(0.05)
            _ALONE[self.root] = [lock, 0]
        held = _ALONE[self.root]
        held[1] += 1
        try:
            yield
        finally:
            held[1] -= 1
            if held[1] == 0:
                del _ALONE[self.root]
                os.close(held[0])


def find_memory_hierarchy(host: Host) -> MemoryHierarchy:
    """Find the hierarchy with the memory controller. Raises LabError if the lab can't count zombies."""
    layout = hierarchies(host)
    found = find_v1(layout, "memory") or find_v2(layout)
    if found is None or "memory" not in found.controllers:
        raise LabError("no hierarchy with the memory controller is mounted; mount cgroup2 at /sys/fs/cgroup")
    if not found.whole:
        raise LabError(
            f"{found.path} shows only a part of the memory cgroups; run in the node's cgroup namespace (cgroupns=host)"
        )
    if found.version == 2:
        # Enabling the controller at the root would affect others too: that is not up to the lab.
        if "memory" not in (found.path / "cgroup.subtree_control").read_text().split():
            raise LabError(f"memory cgroups are off; turn them on: echo +memory > {found.path}/cgroup.subtree_control")
    elif "memory" not in parse_controllers((host.proc / "cgroups").read_bytes()):
        raise LabError("the kernel has no count of memory cgroups in /proc/cgroups")
    # On v1 `tasks` takes one thread, which is faster for a single-threaded process.
    v1, v2 = ("tasks", "memory.force_empty", "0"), ("cgroup.procs", "memory.reclaim", "1G")
    return MemoryHierarchy(found.version, found.path, host, *(v1 if found.version == 1 else v2))
