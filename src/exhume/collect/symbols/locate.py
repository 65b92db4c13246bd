"""Find the exact file that a process maps: a wrong file would give wrong names.

A path alone proves nothing: containers have their own /usr/lib, packages are upgraded under running programs, binaries
are deleted. A file is accepted as the mapped one when its device and inode are those that the kernel reported. Some
filesystems (overlayfs, btrfs) report different numbers for mappings than for files; there the process itself must vouch
for the file by still mapping that path at that address.
"""

import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterable

from exhume.collect.symbols.mappings import AddressSpace, FileKey, Mapping, ProcMaps
from exhume.collect.symbols.parser.open_file import OpenFile, identity_of
from exhume.procfs.host import Host

_FS_IOC_GETVERSION = 0x80087601
_LOOK = os.O_PATH | os.O_CLOEXEC
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_SYS_OPENAT2 = 437  # on every architecture
_RESOLVE_NO_MAGICLINKS, _RESOLVE_IN_ROOT = 0x02, 0x10
_HOW = struct.Struct("<QQQ")
_libc = ctypes.CDLL(None, use_errno=True)


def open_regular(path: str, key: FileKey | None = None, *, root: str = "", follow: bool = True) -> OpenFile | None:
    """Open a regular file; if `key` is given, only the file with that device and inode. Links on the way are resolved
    below `root`, as they are for the processes that have it as their root.

    Anything else (a pipe, a device) is left alone: opening it may block or have side effects. O_PATH opens only the
    name (fs/open.c, do_dentry_open). The checked O_PATH descriptor is then reopened, so a link or rename in between
    changes nothing.
    """
    try:
        looked_at = _look(root, path, _LOOK if follow else _LOOK | os.O_NOFOLLOW)
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
    return OpenFile(fd, identity_of(status), path, root)


def _look(root: str, path: str, flags: int) -> int:
    """Look up a path below a root, with openat2 if the kernel has it (Linux 5.6) and the container allows it."""
    if root:
        above = os.open(root, _LOOK | os.O_DIRECTORY)
        try:
            how = _HOW.pack(flags, 0, _RESOLVE_NO_MAGICLINKS | _RESOLVE_IN_ROOT)
            found: int = _libc.syscall(_SYS_OPENAT2, above, os.fsencode(path), how, _HOW.size)
            error = ctypes.get_errno()
        finally:
            os.close(above)
        if found >= 0:
            return found
        if error not in (errno.ENOSYS, errno.EPERM):
            raise OSError(error, os.strerror(error))
    return os.open(root + path, flags)


def _is_file_of(key: FileKey, status: os.stat_result) -> bool:
    return (status.st_dev, status.st_ino) == (os.makedev(key.major, key.minor), key.inode)


def open_mapped(host: Host, space: AddressSpace, mapping: Mapping) -> OpenFile | None:
    """Open the file behind a mapping; None when it is unreachable or cannot be proven to be the right one."""
    key, path = mapping.file.key, mapping.file.path
    if (file := _open_exact(f"{host.proc}/{space.pid}/root", path, key)) is not None:
        return file
    if (file := _open_vouched(host, space.pid, mapping)) is not None:
        return file
    for root in (*(f"{host.proc}/{pid}/root" for pid in (*space.lineage, 1)), ""):
        if (file := _open_exact(root, path, key)) is not None:
            return file
    return None


def _open_exact(root: str, path: str, key: FileKey) -> OpenFile | None:
    file = open_regular(path, key, root=root)
    if file is None:
        return None
    if _same_generation(file.fd, key):
        return file
    file.close()
    return None


def _same_generation(fd: int, key: FileKey) -> bool:
    """Whether this is still the inode that was mapped: the inode numbers of deleted files are reused."""
    if not key.generation:
        return True
    try:
        answer = fcntl.ioctl(fd, _FS_IOC_GETVERSION, bytes(8))
    except OSError:  # a filesystem without inode generations
        return True
    return bool(struct.unpack_from("=I", answer)[0] == key.generation & 0xFFFFFFFF)


def _open_vouched(host: Host, pid: int, mapping: Mapping) -> OpenFile | None:
    """Open the file that the living process vouches for: it still maps this path at this address."""
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
        file = open_regular(now.file.path, root=f"{host.proc}/{pid}/root")
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
    """Whether these are certainly different files: different inodes on the same device."""
    return (major, minor) == (key.major, key.minor) and inode != key.inode
