"""Finding the very file that a process maps: a wrong file would give wrong names.

A path alone proves nothing: containers have their own /usr/lib, packages are upgraded under running programs,
binaries are deleted. A file counts as the mapped one when its device and inode are those that the kernel
reported. Some filesystems (overlayfs, btrfs) report other numbers for mappings than for files; there the process
itself has to vouch for it, by still mapping that path at that address.
"""

import fcntl
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from exhume.collect.symbols.mappings import AddressSpace, FileKey, Mapping, ProcMaps
from exhume.procfs.host import Host

Identity = tuple[int, int, int, int]

_MAX_OFFSET = 2**63 - 1  # what a damaged file says may be larger than the kernel takes
_STRING_READ = 256  # enough for nearly every name
_MAX_STRING = 4096
_FS_IOC_GETVERSION = 0x80087601
_LOOK = os.O_PATH | os.O_CLOEXEC
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


@dataclass(slots=True)
class OpenFile:
    """A file open for reading; the caller closes it."""

    fd: int
    path: str
    identity: Identity

    @property
    def size(self) -> int:
        return self.identity[3]

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.fd, size, offset) if size > 0 and offset <= _MAX_OFFSET else b""

    def string(self, offset: int) -> bytes:
        """The text at an offset, up to the first zero byte."""
        content = self.read(offset, _STRING_READ)
        if b"\0" not in content:
            content = self.read(offset, _MAX_STRING)
        return content.partition(b"\0")[0]

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> "OpenFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def identity_of(status: os.stat_result) -> Identity:
    """What makes a file's content what it is: the same inode written again is another file."""
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def open_regular(path: str, key: FileKey | None = None, *, follow: bool = True) -> OpenFile | None:
    """Open a regular file, and only the one with the device and inode of `key` where that is given.

    Anything else (a pipe, a device) is left alone: opening it may block or act. O_PATH opens nothing but the name
    (fs/open.c, do_dentry_open); what was looked at by it is then opened itself, so that a link or a rename in between
    changes nothing.
    """
    try:
        looked_at = os.open(path, _LOOK if follow else _LOOK | os.O_NOFOLLOW)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(looked_at)
        if not stat.S_ISREG(status.st_mode) or not (key is None or _is_file_of(key, status)):
            return None
        fd = os.open(f"/proc/self/fd/{looked_at}", _OPEN)
    except OSError:
        return None
    finally:
        os.close(looked_at)
    return OpenFile(fd, path, identity_of(status))


def _is_file_of(key: FileKey, status: os.stat_result) -> bool:
    return (status.st_dev, status.st_ino) == (os.makedev(key.major, key.minor), key.inode)


def open_mapped(host: Host, space: AddressSpace, mapping: Mapping) -> OpenFile | None:
    """The file behind a mapping, or None when it can't be reached or can't be proven to be the right one."""
    key, path = mapping.file.key, mapping.file.path
    for candidate in _views(host, (space.pid,), path):
        if (file := _open_exact(candidate, key)) is not None:
            return file
    if (file := _open_vouched(host, space.pid, mapping)) is not None:
        return file
    for candidate in (*_views(host, (*space.lineage, 1), path), path):
        if (file := _open_exact(candidate, key)) is not None:
            return file
    return None


def _views(host: Host, pids: tuple[int, ...], path: str) -> Iterator[str]:
    """A path as processes see it, in their containers."""
    for pid in pids:
        yield f"{host.proc}/{pid}/root{path}"


def _open_exact(path: str, key: FileKey) -> OpenFile | None:
    file = open_regular(path, key)
    if file is None:
        return None
    if _same_generation(file.fd, key):
        return file
    file.close()
    return None


def _same_generation(fd: int, key: FileKey) -> bool:
    """Whether this inode is still the one that was mapped: numbers of deleted files are given out again."""
    if not key.generation:
        return True
    try:
        answer = fcntl.ioctl(fd, _FS_IOC_GETVERSION, bytes(8))
    except OSError:  # a filesystem without generations
        return True
    return bool(struct.unpack_from("=I", answer)[0] == key.generation & 0xFFFFFFFF)


def _open_vouched(host: Host, pid: int, mapping: Mapping) -> OpenFile | None:
    """The file by the word of the living process: it still maps this path at this address."""
    try:
        now = _mapping_at(ProcMaps(f"{host.proc}/{pid}/maps"), mapping)
    except OSError:
        return None
    if now is None:
        return None
    recorded, shown = mapping.file.key, now.file.key
    if now.file.path != mapping.file.path or _proven_different(recorded, shown.major, shown.minor, shown.inode):
        return None
    # The kernel's own link to the mapped file: right even when it was deleted or replaced.
    file = open_regular(f"{host.proc}/{pid}/map_files/{now.start:x}-{now.end:x}")
    if file is None and now.file.path == shown.path:
        file = open_regular(f"{host.proc}/{pid}/root{now.file.path}")
    if file is None:
        return None
    device, inode = file.identity[:2]
    if any(_proven_different(key, os.major(device), os.minor(device), inode) for key in (recorded, shown)):
        file.close()
        return None
    return file


def _mapping_at(maps: Iterable[Mapping], mapping: Mapping) -> Mapping | None:
    for now in maps:
        if now.start <= mapping.start < now.end and now.offset - now.start == mapping.offset - mapping.start:
            return now
    return None


def _proven_different(key: FileKey, major: int, minor: int, inode: int) -> bool:
    """Whether these can't be the same file: another inode of the same device."""
    return (major, minor) == (key.major, key.minor) and inode != key.inode
