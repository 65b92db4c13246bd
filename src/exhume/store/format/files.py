"""Opening files of a recording, which may come from anywhere: regular files alone, and no more of them than fits."""

import mmap
import os
import stat
from pathlib import Path

import pyarrow as pa

from exhume.store.format.schema import DAMAGED, UnreadableFile

NOT_REGULAR = "not a regular file"
TOO_LARGE = "too large for a file of a recording"
FORBIDDEN = "permission denied"


def open_regular(path: Path) -> int:
    """A descriptor to read a file by. Raises FileNotFoundError, and UnreadableFile for what is no regular file (a FIFO
    would be waited for, a device acts when it is opened) or may not be read."""
    return _open(path)[0]


def _open(path: Path | str) -> tuple[int, int]:
    """A descriptor to read a file by, and the file's size. Raises as open_regular does."""
    try:
        # Looked at first, so that no device is opened; without blocking, in case it was exchanged in between.
        check_regular(os.stat(path))  # noqa: PTH116 (takes text, too)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        raise UnreadableFile(FORBIDDEN) from None
    except FileNotFoundError:
        if Path(path).is_symlink():
            raise UnreadableFile(NOT_REGULAR) from None
        raise
    except OSError as error:
        raise UnreadableFile((error.strerror or str(error)).lower()) from error
    try:
        status = os.fstat(fd)
        check_regular(status)
    except UnreadableFile:
        os.close(fd)
        raise
    return fd, status.st_size


def check_regular(status: os.stat_result) -> None:
    """Raises UnreadableFile for what is no regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFile(NOT_REGULAR)


def read_regular(path: Path | str, most: int) -> bytes:
    """The bytes of a file. Raises as open_regular does, and UnreadableFile where there are more than `most`."""
    fd, size = _open(path)
    try:
        if size > most:
            raise UnreadableFile(TOO_LARGE)
        # One call reads up to 2 GiB of a regular file (man 2 read). Not a file object: it asks for the size again.
        return os.read(fd, size)
    finally:
        os.close(fd)


def map_regular(path: Path) -> pa.Buffer:
    """The bytes of a file that no process changes, as a mapping. Raises as open_regular does."""
    fd = open_regular(path)
    try:
        return pa.py_buffer(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
    except (ValueError, OSError) as error:
        # An empty file can't be mapped.
        raise UnreadableFile(DAMAGED) from error
    finally:
        os.close(fd)
