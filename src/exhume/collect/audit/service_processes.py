"""Which processes belong to which service, by their cgroups; also when the node is seen from a container."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exhume.model.audit import Service
from exhume.procfs.host import Host

_INIT_SCOPE = "/init.scope"


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """All processes: by each cgroup that they are in (of every hierarchy), and their names."""

    by_cgroup: Mapping[str, tuple[int, ...]]
    names: Mapping[int, str]
    prefix: str = ""

    @classmethod
    def read(cls, host: Host) -> "ProcessTable":
        by_cgroup: dict[str, list[int]] = defaultdict(list)
        names: dict[int, str] = {}
        try:
            pids = sorted(int(entry.name) for entry in os.scandir(host.proc) if entry.name.isdigit())
        except OSError:
            pids = []
        for pid in pids:
            for path in _cgroups(host, pid):
                by_cgroup[path].append(pid)
            names[pid] = _name(host, pid)
        # Inside a container systemd's paths begin at its own root, and the kernel shows us ours.
        first = next((path for path in _cgroups(host, 1) if path.endswith(_INIT_SCOPE)), "")
        return cls({path: tuple(pids) for path, pids in by_cgroup.items()}, names, first.removesuffix(_INIT_SCOPE))


def owners(table: ProcessTable, services: Sequence[Service]) -> dict[int, str]:
    """The service of each process, by its key; of nested ones the innermost."""
    homes: dict[str, str] = {}
    for service in services:
        if service.cgroup and service.cgroup != "/":
            homes[service.cgroup] = homes[table.prefix + service.cgroup] = service.key
    found: dict[int, str] = {}
    depths: dict[int, int] = {}
    for path, pids in table.by_cgroup.items():
        home = path
        while home and home not in homes:
            home = home.rpartition("/")[0]
        if home:
            # A process may be in another cgroup of each hierarchy: the deepest says most.
            for pid in (pid for pid in pids if depths.get(pid, 0) < len(home)):
                found[pid], depths[pid] = homes[home], len(home)
    # A main process that is not in its cgroup.
    found |= {s.pid: s.key for s in services if s.pid and s.pid in table.names and s.pid not in found}
    return found


def _cgroups(host: Host, pid: int) -> set[str]:
    try:
        content = (host.proc / str(pid) / "cgroup").read_text(errors="surrogateescape")
    except OSError:
        return set()
    return {line.split(":", 2)[2] for line in content.splitlines() if line.count(":") >= 2} - {"/"}


def _name(host: Host, pid: int) -> str:
    try:
        return (host.proc / str(pid) / "comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return ""
