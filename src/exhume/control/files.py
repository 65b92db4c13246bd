"""Files and directories that survive a crash and that no other user can plant."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from exhume.model.errors import ExhumeError
from exhume.model.ownership import PRIVATE_DIRECTORY, PRIVATE_FILE, open_own, open_to_others


class DirectoryNotPrivate(ExhumeError):
    """Another user could leave instructions for root in a directory."""


def write_atomic(path: Path, content: bytes, mode: int = PRIVATE_FILE) -> None:
    """Write a file so that all of it or nothing is there, also after a power failure. Raises OSError."""
    temporary = path.with_name(f".{path.name}")
    try:
        write_new(temporary, content, mode)
        temporary.rename(path)
        sync_directory(path.parent)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Make a new file that is on the disk when this returns; what a killed run left there is replaced."""
    path.unlink(missing_ok=True)
    fd = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, mode)
        file.write(content)
        file.flush()
        os.fsync(fd)


def read_own(path: Path) -> bytes:
    """Read a plain file of this user's or root's own; a link is refused. Raises OSError."""
    with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
        return file.read()


def sync_directory(path: Path) -> None:
    """Put new and removed names of a directory on the disk."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def private_directory(path: Path) -> None:
    """Make a directory (0700), or check that only its owner, root or this user, can write to it.

    Raises OSError, and DirectoryNotPrivate where another user owns it or may write to it or replace it.
    """
    path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
    for each in (path, path.parent):
        if open_to_others(each, sticky_allowed=each != path):
            raise DirectoryNotPrivate(
                f"{each} can be written by others; name a directory of root's own with --work-dir"
            )


def lock_directory(directory: Path) -> int:
    """Return a descriptor that holds the lock of a directory while it is open; -1 when another process holds it.

    The kernel releases the lock when its process dies, however that comes about. Raises OSError.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return -1
    return fd
