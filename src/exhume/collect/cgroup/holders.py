"""Processes that keep files in memory: by mapping or locking them, or by holding one open that has no name."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from exhume.model.zombies import Holder
from exhume.procfs.host import Host, ProcFile
from exhume.procfs.maps import parse_entry, parse_maps
from exhume.procfs.pid_status import status_values

FileKey = tuple[int, int]  # device and inode
_DELETED = " (deleted)"
# Files of the kernel's own tmpfs, which no path leads to.
_NAMELESS = ("/memfd:", "/SYSV", "/dev/zero", "anon_inode:")


@dataclass(frozen=True, slots=True)
class Nameless:
    """A file that only a process leads to: `link` opens it."""

    link: str
    shown: str


@dataclass(slots=True)
class ProcessFiles:
    """What the processes of this node hold."""

    mapped: dict[FileKey, list[int]] = field(default_factory=dict)
    mapped_paths: dict[str, list[int]] = field(default_factory=dict)
    nameless: list[Nameless] = field(default_factory=list)
    # One process for each mount namespace.
    namespaces: dict[str, int] = field(default_factory=dict)
    unread: int = 0


def scan_processes(host: Host, seconds: float) -> ProcessFiles:
    """Look at every process, for at most so many seconds; `unread` counts those that could not be looked at."""
    found = ProcessFiles()
    deadline = time.monotonic() + seconds
    own = os.getpid()
    for pid in _pids(host.proc):
        if pid == own:
            continue
        if time.monotonic() > deadline:
            found.unread += 1
            continue
        _look_at(host.proc / str(pid), pid, found)
    return found


def holders_of(host: Host, key: FileKey, path: str, found: ProcessFiles) -> list[Holder]:
    """Who has a file mapped, and whether they locked it into memory."""
    # Some file systems give a mapping another device number than the file has: then the path has to do.
    pids = found.mapped.get(key) or found.mapped_paths.get(path) or []
    return [
        Holder(pid, comm, "mlocked" if _locks(host, pid, key, path) else "mapped")
        for pid in pids
        if (comm := _comm(host, pid)) is not None
    ]


def _pids(proc: Path) -> list[int]:
    try:
        return sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdigit())
    except OSError:
        return []


def _look_at(directory: Path, pid: int, found: ProcessFiles) -> None:
    try:
        content = (directory / "maps").read_bytes()
    except OSError as error:
        # A process that ended is no blind spot.
        found.unread += isinstance(error, PermissionError)
        return
    for entry in parse_maps(content.splitlines()):
        path = entry.path
        if not entry.inode or not path.startswith("/"):
            continue
        pids = found.mapped.setdefault((entry.device, entry.inode), [])
        if pids[-1:] != [pid]:
            pids.append(pid)
            found.mapped_paths.setdefault(path, []).append(pid)
            if path.endswith(_DELETED) or path.startswith(_NAMELESS):
                place = directory / "map_files" / f"{entry.start:x}-{entry.end:x}"
                found.nameless.append(Nameless(str(place), _shown(path, pid)))
    for link, path in _open_files(directory / "fd"):
        if path.endswith(_DELETED) and path.startswith("/"):
            found.nameless.append(Nameless(link, _shown(path, pid)))
    try:
        found.namespaces.setdefault(str((directory / "ns/mnt").readlink()), pid)
    except OSError:
        return


def _open_files(directory: Path) -> Iterator[tuple[str, str]]:
    try:
        links = list(directory.iterdir())
    except OSError:
        return
    for link in links:
        try:
            yield str(link), str(link.readlink())
        except OSError:
            continue


def _shown(path: str, pid: int) -> str:
    return f"{path.removesuffix(_DELETED)} (no name any more, held by process {pid})"


def _comm(host: Host, pid: int) -> str | None:
    """The name of a process; None when it has ended."""
    content = ProcFile(host.proc / str(pid) / "comm").read_or_none()
    return content.decode("utf-8", "replace").rstrip("\n") if content else None


def _locks(host: Host, pid: int, key: FileKey, path: str) -> bool:
    """Whether a process locked any mapping of a file."""
    status = ProcFile(host.proc / str(pid) / "status").read_or_none() or b""
    if not any(status_values(status, b"VmLck")):
        return False
    mine = False
    for line in (ProcFile(host.proc / str(pid) / "smaps").read_or_none() or b"").splitlines():
        if entry := parse_entry(line):
            mine = (entry.device, entry.inode) == key or entry.path == path
        elif mine and line.startswith(b"VmFlags:") and b" lo" in line:
            return True
    return False
