"""Files and directories that survive a crash and that no other user can tamper with."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from exhume.model.errors import ExhumeError
from exhume.model.ownership import PRIVATE_DIRECTORY, PRIVATE_FILE, open_own, open_to_others


class DirectoryNotPrivate(ExhumeError):
    """Another user could plant instructions for root in a directory."""


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file (0600) atomically and durably: complete or not at all, even after power failure. Raises OSError."""
    temporary = path.with_name(f".{path.name}")
    try:
        write_new(temporary, content, PRIVATE_FILE)
        temporary.rename(path)
        sync_directory(path.parent)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Create a file that is synced to disk on return; a leftover of a killed run is replaced."""
    path.unlink(missing_ok=True)
    fd = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, mode)
        file.write(content)
        file.flush()
        os.fsync(fd)


def read_own(path: Path) -> bytes:
    """Read a regular file that this user or root owns; symlinks are refused. Raises OSError."""
    with os.fdopen(open_own(path, os.O_RDONLY), "rb") as file:
        return file.read()


def sync_directory(path: Path) -> None:
    """Fsync a directory, so that created and removed names are on the disk."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def private_directory(path: Path) -> None:
    """Create a directory (0700), or check that only its owner, root or this user, can write to it.

    Raises OSError, and DirectoryNotPrivate if another user owns it, or can write to it or replace it.
    """
    path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
    path.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True)
    for each in (path, path.parent):
        if open_to_others(each, sticky_allowed=each != path):
            raise DirectoryNotPrivate(
                f"{each} can be written by others; name a directory of root's own with --work-dir"
            )


def lock_directory(directory: Path) -> int:
    """Return a file descriptor that holds the lock of a directory while open; -1 if another process holds it.

    The kernel releases the lock when the process dies, for whatever reason. Raises OSError.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return -1
    return fd
