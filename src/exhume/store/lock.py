"""One recorder a directory: a lock that the kernel gives back when the recorder dies, however it dies."""

import errno
import fcntl
import os
import time
from pathlib import Path

from exhume.model.errors import DirectoryBusy, RecordingError

LOCK_NAME = "recorder.lock"
# What the kernel says when there is no room, on the disk or in a quota.
FULL = (errno.ENOSPC, errno.EDQUOT)
_TRIES, _PAUSE_S = 5, 0.02
# On a starved node even an instant may last: whoever is in it has to wait for a core.
_LONGEST_INSTANT_S = 10.0


class DirectoryLock:
    """Held from construction until close. The file holds the recorder's pid, for people and for refusals."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        path = directory / LOCK_NAME
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
            # A full disk: the lock holds all the same, only the pid can't be told.
            os.ftruncate(self._fd, 0)

    def vanished(self) -> bool:
        """Whether the lock file was deleted, and with it (as good as always) the whole directory: what is
        written to files that are already open would then reach nobody."""
        return os.fstat(self._fd).st_nlink == 0

    def close(self) -> None:
        os.close(self._fd)


def _lock(fd: int) -> None:
    """Take the lock for a recorder. Another one has it alone; somebody who only asks (`being_recorded`) shares it for
    an instant, and is waited for."""
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
    """Whether nobody has it alone."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(fd, fcntl.LOCK_UN)
    return True


def being_recorded(directory: Path) -> bool:
    """Whether a recorder holds the directory now; whoever may read the lock can ask. A recorder that was killed holds
    nothing any more."""
    try:
        fd = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
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


def cannot_write(directory: Path, error: OSError) -> RecordingError:
    """The sentence for a directory that can't be recorded to."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        at = next((path for path in (directory, *directory.parents) if path.is_file()), directory)
        return RecordingError(f"cannot record to {directory}: {at} is a file; name a directory with --dir")
    reason = (error.strerror or str(error)).lower()
    remedy = "free some space" if error.errno in FULL else "make the directory writable"
    return RecordingError(f"cannot record to {directory}: {reason}; {remedy} or choose another one with --dir")
