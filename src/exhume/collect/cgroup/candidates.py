"""Candidate files that may pin zombies, in order of likelihood, and the processes that hold them.

The cheapest come first: files that processes have mapped, tmpfs, files that are reachable only through a process, block
devices (their cached pages are filesystem metadata). Then come files that containers wrote, and last whole filesystems,
in turns, so that a large one does not delay the others. Network and user-space filesystems are skipped, since accessing
them may hang.
"""

import os
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from exhume.model.stop import Stop
from exhume.model.text import count
from exhume.model.zombies import Holder
from exhume.procfs.host import Host, ProcFile
from exhume.procfs.maps import parse_entry, parse_maps
from exhume.procfs.mountinfo import Mount, read_mounts
from exhume.procfs.pid_status import status_values

FileKey = tuple[int, int]  # device and inode
_DELETED = " (deleted)"
# Files of the kernel's internal tmpfs, which have no path.
_NAMELESS = ("/memfd:", "/SYSV", "/dev/zero", "anon_inode:")
# A slow or starved node gets up to this many times as long.
_LONGER = 6
# Files per place and turn.
_TURN = 64
# Processes that are scanned before the time limit may apply.
_LEAST_PROCESSES = 256


class SearchLimit:
    """A time limit for a search, which a stop request ends as well. If little was examined by then (fewer than
    `least`), the node is slow or starved, and the search continues for up to six times as long."""

    def __init__(self, seconds: float, least: int, stop: Stop | None = None) -> None:
        self._began = time.monotonic()
        self._stop = stop
        self._seconds, self._least = seconds, least

    @property
    def stopped(self) -> bool:
        return self._stop is not None and self._stop.is_set()

    def reached(self, done: int) -> bool:
        """Whether the limit is reached after `done` items."""
        if self.stopped:
            return True
        elapsed = time.monotonic() - self._began
        return elapsed > self._seconds and (done >= self._least or elapsed > _LONGER * self._seconds)

    def share(self, done: int) -> float:
        """The fraction of the search that is complete, from 0 to 1."""
        elapsed = (time.monotonic() - self._began) / max(self._seconds, 1e-3)
        return min(1.0, max(min(elapsed, done / self._least), elapsed / _LONGER))


@dataclass(frozen=True, slots=True)
class Nameless:
    """A file that is reachable only through a process: `link` opens it."""

    link: str
    shown: str


@dataclass(slots=True)
class ProcessFiles:
    """The files that the processes of this node hold."""

    mapped: dict[FileKey, list[int]] = field(default_factory=dict)
    mapped_paths: dict[str, list[int]] = field(default_factory=dict)
    nameless: list[Nameless] = field(default_factory=list)
    # One process per mount namespace.
    namespaces: dict[str, int] = field(default_factory=dict)
    unread: int = 0


def scan_processes(host: Host, seconds: float, stop: Stop | None = None) -> ProcessFiles:
    """Scan all processes, within a time limit in seconds (see `SearchLimit`); `unread` counts those that could not be
    examined."""
    found = ProcessFiles()
    limit = SearchLimit(seconds, _LEAST_PROCESSES, stop)
    own = os.getpid()
    for number, pid in enumerate(_pids(host.proc)):
        if pid == own:
            continue
        if limit.reached(number):
            found.unread += 1
            continue
        _look_at(host.proc / str(pid), pid, found)
    return found


def holders_of(host: Host, key: FileKey, path: str, found: ProcessFiles) -> list[Holder]:
    """The processes that have a file mapped, and whether they locked it into memory."""
    # Some filesystems report a different device number for a mapping than for the file; then match by path.
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
        # A process that has exited is not a blind spot.
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
    """The name of a process; None when it has exited."""
    content = ProcFile(host.proc / str(pid) / "comm").read_or_none()
    return content.decode("utf-8", "replace").rstrip("\n") if content else None


def _locks(host: Host, pid: int, key: FileKey, path: str) -> bool:
    """Whether a process has locked any mapping of a file."""
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


TMPFS = frozenset({"tmpfs", "devtmpfs"})
DISKS = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "jfs", "reiserfs", "vfat", "overlay"}
)
# Their metadata is not cached as pages of the block device.
METADATA_UNSEEN = frozenset({"xfs", "btrfs", "zfs", "bcachefs"})
# Their inode numbers change or are used again once an inode is evicted, so they don't identify a directory.
_LOOSE_INODES = frozenset({"overlay", "vfat"})
# Below the root of a disk: places where short-lived programs leave their files.
BUSY_PLACES = (
    "var/log",
    "var/lib/docker/containers",
    "var/lib/containerd",
    "var/lib/containers",
    "var/lib/kubelet",
    "var/lib/ecs",
    "var/cache",
    "var/tmp",
    "tmp",
    "var/lib",
    "home",
    "root",
    "opt",
    "srv",
)


class Candidate(NamedTuple):
    """A file to examine: how to open it, its name, and whether it is a block device. `cachestat` is False where that
    call does not see the file's pages."""

    path: str
    shown: str
    device: bool = False
    cachestat: bool = True


def candidates(host: Host, roots: Sequence[Path], processes: ProcessFiles) -> list[Iterator[Candidate]]:
    """Every file worth examining, lazily, place by place; some may occur more than once."""
    mounts = read_mounts(host.proc / "self/mountinfo")
    return [
        *(below(str(root), str(root)) for root in roots),
        _mapped_files(processes),
        *_tmpfs_files(host, mounts, processes),
        _nameless_files(processes),
        _block_devices(host, mounts),
        *_disk_files(host, mounts),
    ]


def _in_turns(places: Iterable[Iterator[Candidate]]) -> Iterator[Candidate]:
    """The files of several places, a few from each in turn."""
    pending = deque(places)
    while pending:
        place = pending.popleft()
        files = list(islice(place, _TURN))
        yield from files
        if len(files) == _TURN:
            pending.append(place)


def blind_spots(host: Host, processes: ProcessFiles) -> list[str]:
    """What no candidate covers on this node."""
    mounts = read_mounts(host.proc / "self/mountinfo")
    found = []
    unseen = sorted({mount.kind for mount in mounts} & METADATA_UNSEEN)
    if unseen:
        found.append(f"metadata of {' and '.join(unseen)} is cached where no program can see it")
    other = sorted(
        {mount.kind for mount in mounts if mount.kind.startswith(("nfs", "fuse", "cifs", "ceph", "9p", "lustre"))}
    )
    if other:
        found.append(f"files on {', '.join(other)} are not looked at: a look may hang")
    if processes.unread:
        found.append(
            f"{count(processes.unread, 'process', 'processes')} could not be looked at (not permitted, or no time left)"
        )
    if _detached_segments(host):
        found.append("System V shared memory that no process has attached can't be looked into")
    return found


def below(
    directory: str, shown: str, cachestat: bool = True, listed: set[FileKey] | None = None
) -> Iterator[Candidate]:
    """Every regular file of one filesystem below a directory, those near the top first; or a single file. Directories
    in `listed` are skipped, and those that are listed are added to it."""
    try:
        status = os.lstat(directory)
    except OSError:
        return
    if listed is not None:
        if (status.st_dev, status.st_ino) in listed:
            return
        listed.add((status.st_dev, status.st_ino))
    if stat.S_ISREG(status.st_mode):
        yield Candidate(directory, shown, cachestat=cachestat)
    pending = deque([(directory, shown.rstrip("/"))] if stat.S_ISDIR(status.st_mode) else [])
    while pending:
        path, name = pending.popleft()
        inside = []
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        yield Candidate(entry.path, f"{name}/{entry.name}", False, cachestat)
                    elif entry.is_dir(follow_symlinks=False):
                        inside.append((entry.path, f"{name}/{entry.name}"))
        except OSError:
            continue
        for place, called in inside:
            try:
                found = os.lstat(place)
            except OSError:
                continue
            if found.st_dev != status.st_dev:
                continue
            if listed is not None:
                if (found.st_dev, found.st_ino) in listed:
                    continue
                listed.add((found.st_dev, found.st_ino))
            pending.append((place, called))


def _tmpfs_files(host: Host, mounts: list[Mount], processes: ProcessFiles) -> Iterator[Iterator[Candidate]]:
    seen = set()
    for mount in mounts:
        if mount.kind in TMPFS and (mount.device, mount.root) not in seen:
            seen.add((mount.device, mount.root))
            yield below(str(host.resolve(mount.point)), mount.point)
    for pid in processes.namespaces.values():
        for mount in read_mounts(host.proc / str(pid) / "mountinfo"):
            if mount.kind == "tmpfs" and (mount.device, mount.root) not in seen:
                seen.add((mount.device, mount.root))
                yield below(f"{host.proc}/{pid}/root{mount.point}", f"{mount.point} (mounts of process {pid})")


def _nameless_files(processes: ProcessFiles) -> Iterator[Candidate]:
    for file in processes.nameless:
        yield Candidate(file.link, file.shown)


def _mapped_files(processes: ProcessFiles) -> Iterator[Candidate]:
    for path in processes.mapped_paths:
        # Paths of other mount namespaces may not exist here, or lead to another file of that name: its inode decides.
        yield Candidate(path, path)


def _block_devices(host: Host, mounts: list[Mount]) -> Iterator[Candidate]:
    seen = set()
    for mount in mounts:
        if mount.source.startswith("/dev/") and mount.source not in seen and mount.kind in DISKS - METADATA_UNSEEN:
            seen.add(mount.source)
            path = host.resolve(mount.source)
            try:
                is_device = stat.S_ISBLK(path.stat().st_mode)
            except OSError:
                continue
            if is_device:
                yield Candidate(str(path), mount.source, device=True)


def _disk_files(host: Host, mounts: list[Mount]) -> Iterator[Iterator[Candidate]]:
    disks: dict[tuple[int, int], Mount] = {}
    for mount in mounts:
        if mount.kind in DISKS:
            # Of several mounts of a filesystem, use the one that shows the most of it.
            kept = disks.get(mount.device)
            if kept is None or len(mount.root) < len(kept.root):
                disks[mount.device] = mount
    uppers = [upper for mount in disks.values() if (upper := mount.option("upperdir"))]
    # Busy places contain each other, and disks contain all of them: each directory is listed once.
    listed: set[FileKey] = set()
    yield _in_turns(below(upper, upper, listed=listed) for upper in uppers)
    # A container's own root is scanned as mounted; other overlays through their upper directories.
    shown = [mount for mount in disks.values() if mount.kind != "overlay" or mount.point == "/"]
    # Filesystems other than the root usually have a purpose of their own and come first; in the root, the busy places
    # come first.
    places = []
    for mount in sorted(shown, key=lambda mount: (mount.point == "/", mount.point)):
        seen = mount.kind != "overlay"
        once = None if mount.kind in _LOOSE_INODES else listed
        busy = [below(f"/{place}", f"/{place}", seen, once) for place in BUSY_PLACES] if mount.point == "/" else []
        places.append(chain(*busy, below(str(host.resolve(mount.point)), mount.point, seen, once)))
    yield _in_turns(places)


def _detached_segments(host: Host) -> bool:
    """Whether there is System V shared memory that no process has attached."""
    try:
        rows = [line.split() for line in (host.proc / "sysvipc/shm").read_text().splitlines()]
    except OSError:
        return False
    if not rows or "nattch" not in rows[0]:
        return False
    place = rows[0].index("nattch")
    return any(len(row) > place and row[place] == "0" for row in rows[1:])
