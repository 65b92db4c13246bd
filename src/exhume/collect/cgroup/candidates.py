"""Where the files that pin zombies are looked for, the likeliest places first.

What takes least time comes first: files that processes have mapped, tmpfs, files that only a process leads to, block
devices (their cached pages are filesystem metadata); then the places where containers and services write, and last
whole file systems. Network and user-space file systems are left alone: a look at them may hang.
"""

import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from exhume.collect.cgroup.holders import ProcessFiles
from exhume.model.text import count
from exhume.procfs.host import Host
from exhume.procfs.mountinfo import Mount, read_mounts

TMPFS = frozenset({"tmpfs", "devtmpfs"})
DISKS = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "jfs", "reiserfs", "vfat", "overlay"}
)
# Their metadata is not cached as pages of the block device.
METADATA_UNSEEN = frozenset({"xfs", "btrfs", "zfs", "bcachefs"})
# Below the root of a disk: where what comes and goes leaves its files.
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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file to look at: how it is opened, how it is called, and whether it is a block device. `cachestat` is False
    where that call doesn't see the file's pages."""

    path: str
    shown: str
    device: bool = False
    cachestat: bool = True


def candidates(host: Host, roots: Sequence[Path], processes: ProcessFiles) -> list[Iterator[Candidate]]:
    """Every file worth a look, lazily, place by place; some may come more than once."""
    mounts = read_mounts(host.proc / "self/mountinfo")
    return [
        *(below(str(root), str(root)) for root in roots),
        _mapped_files(processes),
        *_tmpfs_files(host, mounts, processes),
        _nameless_files(processes),
        _block_devices(host, mounts),
        *_disk_files(host, mounts),
    ]


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


def below(directory: str, shown: str, cachestat: bool = True) -> Iterator[Candidate]:
    """Every regular file of one file system below a directory, those near the top first; or the one file."""
    try:
        status = os.lstat(directory)
    except OSError:
        return
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
                        yield Candidate(entry.path, f"{name}/{entry.name}", cachestat=cachestat)
                    elif entry.is_dir(follow_symlinks=False):
                        inside.append((entry.path, f"{name}/{entry.name}"))
        except OSError:
            continue
        for place, called in inside:
            try:
                if os.lstat(place).st_dev == status.st_dev:
                    pending.append((place, called))
            except OSError:
                continue


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
        # Paths of other mount namespaces may lead nowhere, or to another file of that name: its inode decides.
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
            # The mount that shows the most of a file system stands for it.
            kept = disks.get(mount.device)
            if kept is None or len(mount.root) < len(kept.root):
                disks[mount.device] = mount
    for mount in disks.values():
        upper = mount.option("upperdir")
        if upper:
            yield below(upper, upper)
    # A container's own root is looked at as it is shown; others by what lies below them.
    shown = [mount for mount in disks.values() if mount.kind != "overlay" or mount.point == "/"]
    # Other file systems than the root's have a purpose of their own and come first; in the root's, the busy places.
    for mount in sorted(shown, key=lambda mount: (mount.point == "/", mount.point)):
        for place in BUSY_PLACES if mount.point == "/" else ():
            yield below(f"/{place}", f"/{place}", mount.kind != "overlay")
        yield below(str(host.resolve(mount.point)), mount.point, mount.kind != "overlay")


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
