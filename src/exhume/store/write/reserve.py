"""Room on the disk that is held for the moment when another program fills it."""

import errno
import os
from pathlib import Path

from exhume.model.ownership import PRIVATE_FILE, open_own
from exhume.store.format.names import RESERVE_NAME

RESERVE_BYTES = 4 << 20
# Never more than this part of what is free: on a small disk the rows need it more.
_SHARE_OF_FREE = 16
_BLOCK = 4096
# No room after all, or a file system that can't.
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EOPNOTSUPP, errno.EINVAL, errno.EFBIG)


class Reserve:
    """A preallocated file, given up when the disk is full so that the current minute can still be sealed and what was
    lost be counted, and made again when there is room."""

    def __init__(self, live: Path) -> None:
        self._path = live / RESERVE_NAME
        self._size = self._path.stat().st_size if self._path.exists() else 0

    def make(self) -> None:
        """Hold room, as much as there is enough of."""
        free = os.statvfs(self._path.parent)
        size = min(RESERVE_BYTES, free.f_bavail * free.f_frsize // _SHARE_OF_FREE) // _BLOCK * _BLOCK
        if size <= self._size:
            return
        try:
            self._allocate(size)
        except OSError as error:
            self._path.unlink(missing_ok=True)
            self._size = 0
            if error.errno not in _REFUSALS:
                raise

    def _allocate(self, size: int) -> None:
        fd = open_own(self._path, os.O_WRONLY | os.O_CREAT)
        try:
            os.fchmod(fd, PRIVATE_FILE)
            os.posix_fallocate(fd, 0, size)
            self._size = size
        finally:
            os.close(fd)

    def release(self) -> bool:
        """Give the room up; False where none is held."""
        if not self._size:
            return False
        self._size = 0
        self._path.unlink(missing_ok=True)
        return True
