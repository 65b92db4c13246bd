"""The processes of each service, by cgroup (also when the node is seen from a container), and who uses the service: its
listening sockets, the connections to them, and what it holds for others."""

import contextlib
import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from exhume.collect.node_root import NodeRoot
from exhume.model.audit import Service, Use
from exhume.model.text import count
from exhume.procfs.cgroup import parse_pid_cgroup
from exhume.procfs.flat_keyed import parse_flat_keyed
from exhume.procfs.host import Host, ProcFile, subdirectories

_LISTEN, _ESTABLISHED, _CONNECTED = "0A", "01", "03"
_ACCEPTING = 0x10000  # the flag of a listening Unix socket
_MAPPED = "0000000000000000FFFF0000"  # an IPv4 address in an IPv6 table
_SHIMS = ("containerd-shim", "conmon", "docker-containe")
_FUSE = "/dev/fuse"
_PATIENCE_S = 3.0
_INIT_SCOPE = "/init.scope"


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """All processes: by each of their cgroups (in every hierarchy), and their names."""

    by_cgroup: Mapping[str, tuple[int, ...]]
    names: Mapping[int, str]
    prefix: str = ""

    @classmethod
    def read(cls, host: Host) -> "ProcessTable":
        by_cgroup: dict[str, list[int]] = defaultdict(list)
        names: dict[int, str] = {}
        for pid in sorted(int(name) for name in subdirectories(host.proc) if name.isdigit()):
            for path in _cgroups(host, pid):
                by_cgroup[path].append(pid)
            comm = ProcFile(host.proc / str(pid) / "comm").read_or_none() or b""
            names[pid] = comm.decode(errors="replace").rstrip("\n")
        # Inside a container systemd's paths begin at its own root, while the kernel shows us ours.
        first = next((path for path in _cgroups(host, 1) if path.endswith(_INIT_SCOPE)), "")
        return cls({path: tuple(pids) for path, pids in by_cgroup.items()}, names, first.removesuffix(_INIT_SCOPE))


def owners(table: ProcessTable, services: Sequence[Service]) -> dict[int, str]:
    """The key of each process's service; of nested services the innermost."""
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
            # A process may be in a different cgroup in each hierarchy; the deepest is the most specific.
            for pid in (pid for pid in pids if depths.get(pid, 0) < len(home)):
                found[pid], depths[pid] = homes[home], len(home)
    # Main processes that are not in their service's cgroup.
    found |= {s.pid: s.key for s in services if s.pid and s.pid in table.names and s.pid not in found}
    return found


def _cgroups(host: Host, pid: int) -> set[str]:
    content = ProcFile(host.proc / str(pid) / "cgroup").read_or_none() or b""
    return set(parse_pid_cgroup(content).values()) - {"/"}


@dataclass(slots=True)
class _Table:
    """The sockets of one network namespace: listeners by inode, and for each the connections to it: the socket at the
    other end, if it is in this namespace too."""

    listeners: dict[str, str] = field(default_factory=dict)
    connected: dict[str, list[str | None]] = field(default_factory=lambda: defaultdict(list))


def uses_of(root: NodeRoot, services: Sequence[Service], table: ProcessTable) -> tuple[dict[str, Use], list[str]]:
    """How each service is used, by its key; and what could not be seen."""
    host = root.host
    home = owners(table, services)
    deadline = time.monotonic() + _PATIENCE_S
    tables: dict[str, _Table] = {}
    sockets: dict[int, tuple[str, list[str]]] = {}
    fuse: set[str] = set()
    hidden = late = 0
    for pid in home:
        if time.monotonic() > deadline:
            late += 1
            continue
        targets = []
        try:
            for entry in os.scandir(host.proc / str(pid) / "fd"):
                with contextlib.suppress(FileNotFoundError):
                    targets.append(str(Path(entry.path).readlink()))
        except PermissionError:
            hidden += 1
            continue
        except OSError:
            continue
        if _FUSE in targets:
            fuse.add(home[pid])
        try:
            space = str((host.proc / str(pid) / "ns/net").readlink())
        except OSError:
            space = f"of process {pid}"
        if space not in tables:
            tables[space] = _read_table(host, pid)
        sockets[pid] = (space, [target[8:-1] for target in targets if target.startswith("socket:[")])
    inodes = {inode: home[pid] for pid, (_, own) in sockets.items() for inode in own}
    listens: dict[str, Counter[str]] = defaultdict(Counter)
    for pid, (space, own) in sockets.items():
        key, known = home[pid], tables[space]
        for name in (known.listeners[inode] for inode in own if inode in known.listeners):
            # A connection from the service to itself is not a use.
            others = [peer for peer in known.connected.get(name, ()) if inodes.get(peer or "") != key]
            listens[key][name] = max(listens[key][name], len(others))
    # Containers whose shims live in the service's cgroup.
    shims = Counter(key for pid, key in home.items() if table.names.get(pid, "").startswith(_SHIMS))
    uses: dict[str, Use] = {}
    for service in services:
        key = service.key
        connections = [f"{count(number, 'connection')} to {name}" for name, number in listens[key].items() if number]
        held = [f"the keepers of {count(shims[key], 'container')}"] if shims[key] else []
        held += ["a file system that it serves (FUSE)"] if key in fuse else []
        names = tuple(sorted(listens[key]))
        uses[key] = Use(names, tuple(sorted(connections)), tuple(held), *_usage(root, service.cgroup))
    unseen = []
    if hidden:
        unseen.append(f"the sockets of {count(hidden, 'process', 'processes')} can't be seen: run as root")
    if late:
        unseen.append(f"the sockets of {count(late, 'process', 'processes')} were left out after {_PATIENCE_S:.0f} s")
    return uses, unseen


def _read_table(host: Host, pid: int) -> _Table:
    table = _Table()
    established: dict[tuple[str, str], str] = {}
    for kind in ("tcp", "tcp6"):
        for fields in _rows(host, pid, kind):
            local, remote, inode = fields[1].removeprefix(_MAPPED), fields[2].removeprefix(_MAPPED), fields[9]
            if fields[3] == _LISTEN:
                table.listeners[inode] = _port(local)
            elif fields[3] == _ESTABLISHED:
                established[local, remote] = inode
    for local, remote in established:
        table.connected[_port(local)].append(established.get((remote, local)))
    for fields in _rows(host, pid, "unix"):
        if int(fields[3], 16) & _ACCEPTING:
            table.listeners[fields[6]] = fields[7]
        elif fields[5] == _CONNECTED:
            table.connected[fields[7]].append(None)
    return table


def _port(address: str) -> str:
    return f"port {int(address.rpartition(':')[2], 16)}"


def _rows(host: Host, pid: int, kind: str) -> list[list[str]]:
    content = ProcFile(host.proc / str(pid) / "net" / kind).read_or_none() or b""
    lines = content.decode(errors="replace").splitlines()[1:]
    rows = [line.split(None, 7 if kind == "unix" else -1) for line in lines]
    return [row for row in rows if len(row) >= (8 if kind == "unix" else 10)]


def _usage(root: NodeRoot, cgroup: str | None) -> tuple[float | None, int | None]:
    """CPU seconds and memory of a cgroup, in either cgroup version."""
    if not cgroup or cgroup == "/":
        return None, None
    base = "/sys/fs/cgroup"
    memory = _number(root, f"{base}{cgroup}/memory.current", f"{base}/memory{cgroup}/memory.usage_in_bytes")
    nanos = _number(root, f"{base}/cpuacct{cgroup}/cpuacct.usage", f"{base}/cpu,cpuacct{cgroup}/cpuacct.usage")
    if nanos is not None:
        return nanos / 1e9, memory
    for name in (f"{base}{cgroup}/cpu.stat", f"{base}/unified{cgroup}/cpu.stat"):
        used = parse_flat_keyed(ProcFile(root.file(name)).read_or_none() or b"").get(b"usage_usec")
        if used is not None:
            return used / 1e6, memory
    return None, memory


def _number(root: NodeRoot, *names: str) -> int | None:
    found = ((ProcFile(root.file(name)).read_or_none() or b"").strip() for name in names)
    return next((int(content) for content in found if content.isdigit()), None)
