"""Directories and files of exhume's own: who may read them, and that no other user had a hand in them.

Modes are set on the open file, whatever the umask is. Standard library only.
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
    """Who may read a recording besides its owner and root: the members of a group (its number), or none."""

    group: int | None = None

    @property
    def directory_mode(self) -> int:
        return PRIVATE_DIRECTORY if self.group is None else _SHARED_DIRECTORY

    def apply(self, fd: int) -> None:
        """Give an open file or directory this access. Raises OSError."""
        known = os.fstat(fd)
        if self.group is not None and known.st_gid != self.group:
            # Before the mode: a group that it had by chance must not read it for a moment.
            os.fchown(fd, -1, self.group)
        file_mode = PRIVATE_FILE if self.group is None else _SHARED_FILE
        mode = self.directory_mode if stat.S_ISDIR(known.st_mode) else file_mode
        if stat.S_IMODE(known.st_mode) != mode:
            os.fchmod(fd, mode)

    def make_directory(self, path: Path) -> None:
        """Make a directory, or take over one of our own that is there already. Raises OSError."""
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
    """Users whose files are believed: root and the one that this process runs as."""
    return 0, os.geteuid()


def open_own(path: Path, flags: int, mode: int = PRIVATE_FILE) -> int:
    """Open or make a plain file that is no link, and belongs to this user or root. Raises OSError."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    known = os.fstat(fd)
    if not stat.S_ISREG(known.st_mode) or known.st_uid not in trusted_users() or known.st_nlink > 1:
        os.close(fd)
        raise foreign(path)
    return fd


def foreign(path: Path) -> OSError:
    """The error for what another user put where exhume's own should be."""
    return OSError(errno.EPERM, "it belongs to another user or is a link", os.fspath(path))


def open_to_others(path: Path, *, sticky_allowed: bool = False) -> bool:
    """Whether another user owns a directory or the link to it, or can write to it. Raises OSError.

    In a sticky directory (/tmp) others can make names, but not replace those of another user.
    """
    link, known = path.lstat(), path.stat()
    if {link.st_uid, known.st_uid} - set(trusted_users()):
        return True
    writable = bool(known.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    return writable and not (sticky_allowed and known.st_mode & stat.S_ISVTX)
