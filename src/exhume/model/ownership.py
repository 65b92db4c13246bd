"""exhume's own directories and files: who may read them, and checks that no other user tampered with them.

Modes are set on the open file, independent of the umask. Standard library only.
"""

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600
_SHARED_DIRECTORY, _SHARED_FILE = 0o750, 0o640


@dataclass(frozen=True, slots=True)
class Access:
    """Who may read a recording besides its owner and root: the members of a group (by gid), or no other user."""

    group: int | None = None

    @property
    def directory_mode(self) -> int:
        return PRIVATE_DIRECTORY if self.group is None else _SHARED_DIRECTORY

    def apply(self, fd: int) -> None:
        """Apply this access to an open file or directory. Raises OSError."""
        known = os.fstat(fd)
        if self.group is not None and known.st_gid != self.group:
            # Before the mode: the group that the file happens to have must never be able to read it.
            os.fchown(fd, -1, self.group)
        file_mode = PRIVATE_FILE if self.group is None else _SHARED_FILE
        mode = self.directory_mode if stat.S_ISDIR(known.st_mode) else file_mode
        if stat.S_IMODE(known.st_mode) != mode:
            os.fchmod(fd, mode)

    def make_directory(self, path: Path) -> None:
        """Create a directory, or take over one of our own. Raises OSError."""
        try:
            path.mkdir(mode=PRIVATE_DIRECTORY)
        except FileExistsError:
            if path.lstat().st_uid not in trusted_users():
                raise foreign(path) from None
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_uid == os.geteuid():
                self.apply(fd)
        finally:
            os.close(fd)


def trusted_users() -> tuple[int, int]:
    """Users whose files are trusted: root and the one that this process runs as."""
    return 0, os.geteuid()


def open_own(path: Path, flags: int, mode: int = PRIVATE_FILE) -> int:
    """Open or create a regular file that is not a link and belongs to this user or root. Raises OSError."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    known = os.fstat(fd)
    if not stat.S_ISREG(known.st_mode) or known.st_uid not in trusted_users() or known.st_nlink > 1:
        os.close(fd)
        raise foreign(path)
    return fd


def foreign(path: Path) -> OSError:
    """The error for a path where another user put something in place of exhume's own file."""
    return OSError(errno.EPERM, "it belongs to another user or is a link", os.fspath(path))


def open_to_others(path: Path, *, sticky_allowed: bool = False) -> bool:
    """Whether another user owns a directory or the link to it, or can write to it. Raises OSError.

    In a sticky directory (/tmp) others can create names, but not replace those of another user.
    """
    link, known = path.lstat(), path.stat()
    if {link.st_uid, known.st_uid} - set(trusted_users()):
        return True
    writable = bool(known.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    return writable and not (sticky_allowed and known.st_mode & stat.S_ISVTX)
