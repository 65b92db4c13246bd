"""Which processes belong to which service, told by their cgroups; also when the node is seen from elsewhere."""

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exhume.collect.host import Host
from exhume.model.audit import Service

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
        # Inside a container systemd's paths begin at its own root, and the kernel tells us ours.
        first = next((path for path in _cgroups(host, 1) if path.endswith(_INIT_SCOPE)), "")
        return cls({path: tuple(pids) for path, pids in by_cgroup.items()}, names, first.removesuffix(_INIT_SCOPE))

    def of(self, service: Service) -> tuple[int, ...]:
        """The processes of a service, those of cgroups below its own included."""
        if not service.cgroup or service.cgroup == "/":
            return (service.pid,) if service.pid and service.pid in self.names else ()
        homes = {service.cgroup, self.prefix + service.cgroup}
        found = {
            pid
            for path, pids in self.by_cgroup.items()
            if any(path == home or path.startswith(home + "/") for home in homes)
            for pid in pids
        }
        if service.pid and service.pid in self.names:
            found.add(service.pid)
        return tuple(sorted(found))


def owners(table: ProcessTable, services: Sequence[Service]) -> dict[int, str]:
    """The service of each process, by its key; of nested ones the innermost."""
    found: dict[int, str] = {}
    for service in sorted(services, key=lambda each: len(each.cgroup or "")):
        found.update(dict.fromkeys(table.of(service), service.key))
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
