"""What a killed test run leaves of its machines: empty cgroups, named after the process that made them."""

import contextlib
import itertools
import os
from pathlib import Path

MARK = "exhume-machine"
_count = itertools.count(1)


def own_name() -> str:
    """A name for a machine of this process: who made it can be reported from it, also after its process number went to
    another."""
    return f"{MARK}-{os.getpid()}-{_started(os.getpid())}-{next(_count)}"


def cgroup_hierarchies() -> list[Path]:
    """Where systemd keeps its services: cgroup v2 and, beside v1, its own hierarchy without controllers."""
    places = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        words = kind.split()
        if words[0] == "cgroup2" or (words[0] == "cgroup" and "name=systemd" in words[2].split(",")):
            places.append(Path(fields.split()[4]))
    return places


def remove_cgroups(top: Path) -> bool:
    """A cgroup and all below it, from which the last process went. Whether it is still there: the kernel may be busy
    with that process for a moment."""
    for directory, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            Path(directory).rmdir()
    return top.exists()


def remove_leftovers() -> None:
    """The cgroups of machines whose makers are gone."""
    for hierarchy in cgroup_hierarchies():
        for cgroup in hierarchy.glob(f"{MARK}-*"):
            owner, started = cgroup.name.removeprefix(f"{MARK}-").split("-")[:2]
            if _started(int(owner)) != started:
                remove_cgroups(cgroup)


def _started(pid: int) -> str:
    """When a process was started, in ticks since boot; empty: there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""
