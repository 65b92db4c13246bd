"""Open files of a recording, which may come from an untrusted source: regular files only, with bounded reads."""

import mmap
import os
import stat
from pathlib import Path

import pyarrow as pa

from exhume.model.errors import os_reason
from exhume.store.format.schema import DAMAGED, UnreadableFile

NOT_REGULAR = "not a regular file"
TOO_LARGE = "too large for a file of a recording"
FORBIDDEN = "permission denied"
# Up to this size, a file is read in less time than it is mapped, faulted in page by page, and unmapped.
_READ_BYTES = 64 << 10


def open_regular(path: Path) -> int:
    """Open a file for reading and return its descriptor. Raises FileNotFoundError, and UnreadableFile if the file is
    not a regular file (opening a FIFO blocks, opening a device may have side effects) or is not readable."""
    return _open(path)[0]


def _open(path: Path | str) -> tuple[int, int]:
    """Open a file for reading; return its descriptor and size. Raises as open_regular does."""
    try:
        # stat first, so that no device is opened; O_NONBLOCK in case the file was replaced in between.
        check_regular(os.stat(path))  # noqa: PTH116 (takes text, too)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        raise UnreadableFile(FORBIDDEN) from None
    except FileNotFoundError:
        if Path(path).is_symlink():
            raise UnreadableFile(NOT_REGULAR) from None
        raise
    except OSError as error:
        raise UnreadableFile(os_reason(error)) from error
    try:
        status = os.fstat(fd)
        check_regular(status)
    except UnreadableFile:
        os.close(fd)
        raise
    return fd, status.st_size


def check_regular(status: os.stat_result) -> None:
    """Raise UnreadableFile if this is not a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFile(NOT_REGULAR)


def read_regular(path: Path | str, most: int) -> bytes:
    """Read a whole file. Raises as open_regular does, and UnreadableFile if it holds more than `most` bytes."""
    fd, size = _open(path)
    try:
        if size > most:
            raise UnreadableFile(TOO_LARGE)
        # One call reads up to 2 GiB of a regular file (man 2 read). A file object would query the size again.
        return os.read(fd, size)
    finally:
        os.close(fd)


def map_regular(path: Path) -> pa.Buffer:
    """The content of a file that no process changes any more; a small one is read. Raises as open_regular does."""
    fd, size = _open(path)
    try:
        if 0 < size <= _READ_BYTES:
            return pa.py_buffer(os.read(fd, size))
        return pa.py_buffer(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
    except (ValueError, OSError) as error:
        # An empty file can't be mapped.
        raise UnreadableFile(DAMAGED) from error
    finally:
        os.close(fd)
