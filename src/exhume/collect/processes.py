"""A process as the recorder first saw it: name, command line, parent, start, cgroup, container."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from exhume.collect.containers.identity import identify
from exhume.model.clock import NANOS
from exhume.model.redaction import redact
from exhume.procfs.cgroup import parse_pid_cgroup
from exhume.procfs.host import Host
from exhume.procfs.pid_stat import parse_pid_stat

_LONGEST_COMMAND = 1024
# Of several v1 hierarchies the first whose path is not just "/" is used: memory is the one that leaks, and container
# runtimes use all of them alike.
_HIERARCHIES = ("memory", "cpu", "pids", "name=systemd", "")


class ProcessReader:
    """Describes processes by their pid, for the processes table."""

    def __init__(self, host: Host, *, keep_secrets: bool = False) -> None:
        self._keep_secrets = keep_secrets
        self._proc = os.fspath(host.proc)
        self._nanos_per_tick = NANOS // os.sysconf("SC_CLK_TCK")

    def describe(self, pid: int) -> dict[str, Any]:
        """The row of a process without its time. For a process that has exited or cannot be read, only the
        pid is set."""
        row: dict[str, Any] = {"pid": pid}
        directory = f"{self._proc}/{pid}"
        stat = read_start(f"{directory}/stat")
        if stat is None:
            return row
        if (identity := parse_pid_stat(stat)) is not None:
            start = identity.start * self._nanos_per_tick
            row |= {"comm": identity.comm, "ppid": identity.ppid, "start": start}
            if identity.policy is not None:
                row |= {"rt_priority": identity.rt_priority, "policy": identity.policy}
        command = read_start(f"{directory}/cmdline", _LONGEST_COMMAND)
        if command:
            args = command.rstrip(b"\0").decode("utf-8", "replace").split("\0")
            row["cmdline"] = " ".join(args if self._keep_secrets else redact(args)) or None
        groups = read_start(f"{directory}/cgroup")
        if groups is not None:
            row.update(_membership(groups))
        return row


@lru_cache(maxsize=1024)
def _membership(groups: bytes) -> dict[str, str | None]:
    """Cgroup, container, pod and runtime. Most processes share these with many others."""
    path = cgroup_path(groups)
    if path is None:
        return {}
    identity = identify(path)
    if identity is None:
        return {"cgroup": path}
    return {"cgroup": path, "container": identity.container, "pod": identity.pod, "runtime": identity.runtime}


def cgroup_of(host: Host, pid: int | None) -> str | None:
    """The path of a process's cgroup; None when the process does not exist or cannot be read."""
    content = None if pid is None else read_start(host.proc / str(pid) / "cgroup")
    return None if content is None else cgroup_path(content)


def cgroup_path(content: bytes) -> str | None:
    """The path of a process's cgroup, from the hierarchies that /proc/PID/cgroup lists."""
    paths = parse_pid_cgroup(content)
    found = [paths[name] for name in _HIERARCHIES if name in paths]
    return next((path for path in found if path != "/"), found[0] if found else None)


def read_start(path: str | Path, limit: int = 65536) -> bytes | None:
    """Read the beginning of a small file of a process; None when the process has exited or cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, limit)
    except OSError:
        return None
    finally:
        os.close(fd)
