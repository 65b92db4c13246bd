"""One recorder per directory, enforced by a lock that the kernel releases however the recorder dies."""

import errno
import fcntl
import os
import stat
import time
from pathlib import Path

from exhume.model.errors import DirectoryBusy, RecordingError, os_reason
from exhume.model.ownership import PRIVATE_DIRECTORY, PRIVATE_FILE, Access, open_own, trusted_users
from exhume.store.format.names import LOCK_NAME

# The errors the kernel returns for a full disk or an exhausted quota.
FULL = (errno.ENOSPC, errno.EDQUOT)
_TRIES, _PAUSE_S = 5, 0.02
# On a starved node even a momentary lock may be held for long: its holder has to wait for a core.
_LONGEST_INSTANT_S = 10.0


class DirectoryLock:
    """Held from construction until close. The file holds the recorder's pid, for people and for refusals."""

    def __init__(self, directory: Path, access: Access | None = None) -> None:
        self.directory = directory
        #: Whether the directory was readable by more users than it should have been.
        self.tightened = False
        path = directory / LOCK_NAME
        try:
            self._take_over(access or Access())
            self._fd = open_own(path, os.O_RDWR | os.O_CREAT)
            # flock only needs read permission: a user who may read the file could keep the recorder from starting.
            if os.fstat(self._fd).st_uid == os.geteuid():
                os.fchmod(self._fd, PRIVATE_FILE)
        except OSError as error:
            raise cannot_write(directory, error) from error
        try:
            _lock(self._fd)
        except BlockingIOError:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._fd)
            raise DirectoryBusy(
                f"{directory} is being recorded by process {holder}; stop it or choose another directory with --dir"
            ) from None
        except OSError as error:
            os.close(self._fd)
            raise cannot_write(directory, error) from error
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            # The disk is full: the lock holds all the same, only the pid can't be written.
            os.ftruncate(self._fd, 0)

    def _take_over(self, access: Access) -> None:
        """Create the directory, or tighten the mode of one that an earlier recorder created. A directory that exists
        for other purposes keeps its mode. Raises OSError, and RecordingError if it belongs to another user."""
        directory = self.directory
        directory.parent.mkdir(parents=True, exist_ok=True)
        made = False
        try:
            directory.mkdir(mode=PRIVATE_DIRECTORY)
            made = True
        except FileExistsError:
            if not directory.is_dir():
                raise
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            known = os.fstat(fd)
            recorded = (directory / LOCK_NAME).exists() and known.st_uid == os.geteuid()
            if made or recorded:
                access.apply(fd)
                self.tightened = recorded and bool(stat.S_IMODE(known.st_mode) & ~access.directory_mode)
                known = os.fstat(fd)
        finally:
            os.close(fd)
        if known.st_uid not in trusted_users():
            raise RecordingError(f"{directory} belongs to another user; choose a directory of your own with --dir")
        if known.st_mode & stat.S_IWOTH:
            raise RecordingError(f"{directory} can be written by every user; choose another directory with --dir")

    def vanished(self) -> bool:
        """Whether the lock file was deleted, which almost always means that the whole directory was: writes to files
        that are still open would then be lost."""
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        os.close(self._fd)


def _lock(fd: int) -> None:
    """Take the recorder's exclusive lock. Fails if another recorder holds it; a process that only checks
    (`being_recorded`) holds it shared for a moment, and is waited for."""
    refused, deadline = 0, time.monotonic() + _LONGEST_INSTANT_S
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refused += not _is_shared(fd)
            if refused == _TRIES or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)


def _is_shared(fd: int) -> bool:
    """Whether no process holds the lock exclusively."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True


def being_recorded(directory: Path) -> bool:
    """Whether a recorder holds the directory now. The kernel has released the lock of a recorder that was killed."""
    try:
        fd = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        return _listed_as_locked(directory / LOCK_NAME)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return False


def _listed_as_locked(path: Path) -> bool:
    """Whether the kernel lists a lock on a file that the caller may not open (members of the group that reads
    recordings). Columns of /proc/locks: fs/locks.c, lock_get_status: "1: FLOCK ADVISORY WRITE pid maj:min:inode"."""
    try:
        known = path.stat()
        listed = Path("/proc/locks").read_text()
    except OSError:
        return False
    file = f"{os.major(known.st_dev):02x}:{os.minor(known.st_dev):02x}:{known.st_ino}"
    return any(fields[1] == "FLOCK" and file in fields for fields in map(str.split, listed.splitlines()) if fields[1:])


def cannot_write(directory: Path, error: OSError) -> RecordingError:
    """The error for a directory that can't be recorded to."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        at = next((path for path in (directory, *directory.parents) if path.is_file()), directory)
        return RecordingError(f"cannot record to {directory}: {at} is a file; name a directory with --dir")
    if error.errno == errno.EPERM and error.filename is not None:
        reason = (error.strerror or "").lower()
        return RecordingError(f"cannot record to {directory}: {error.filename}: {reason}; choose another with --dir")
    remedy = "free some space" if error.errno in FULL else "make the directory writable"
    reason = os_reason(error)
    return RecordingError(f"cannot record to {directory}: {reason}; {remedy} or choose another one with --dir")
