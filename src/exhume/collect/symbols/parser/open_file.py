"""An untrusted file that is open for reading, limits on the work that it may cause, and reasons for refusing it."""

import lzma
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

Read = Callable[[int, int], bytes]

# Refusal codes of the parser and of the recorder.
NOT_ELF = "not-elf"
MALFORMED = "malformed"
OVER_BUDGET = "over-budget"
UNREADABLE = "unreadable"
FAILED = "failed"
TIMEOUT = "timeout"
DEFERRED = "deferred"

# A synthetic table of 180,000 functions, as many as Node.js has (143 MB, the slowest of the 161 largest programs and
# libraries of a developer's machine; a Go program of 674 MB takes 5 ms), takes 17 to 28 ms on a shared core of 2023;
# the largest table that is read at all (MAX_SYMBOLS, 700,000 functions) 70 to 115 ms, half of it for sorting. A lower
# limit would lose names on slow or starved cores, which is where they are needed; the total time for a user with many
# files is bounded by its share (parse_queue.py).
_MAX_CPU_S = 0.2
_MAX_BYTES = 192 << 20
_MAX_ENTRIES = 8_000_000
_MAX_OFFSET = 2**63 - 1  # an offset in a damaged file may exceed what the kernel accepts
_STRING_READ = 256  # enough for nearly every name
_MAX_STRING = 4096
# Exceptions that parsing code raises on malformed content. UnicodeDecodeError and numpy's shape errors are ValueErrors.
_PARSE_ERRORS = (struct.error, lzma.LZMAError, ValueError, ArithmeticError, LookupError, TypeError, MemoryError)


class FileRefused(Exception):
    """A file that is not read (any further); `code` gives the reason."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail


class FileBudget:
    """The remaining allowance for one file: bytes, entries and CPU time of the calling thread.

    Every read and every loop over file content is charged to it, so no content can prolong parsing.
    """

    __slots__ = ("_bytes", "_clock", "_cpu_s", "_deadline", "_entries")

    def __init__(
        self,
        max_bytes: int = _MAX_BYTES,
        max_entries: int = _MAX_ENTRIES,
        cpu_s: float = _MAX_CPU_S,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._bytes = max_bytes
        self._entries = max_entries
        self._clock = clock
        self._cpu_s = cpu_s
        self._deadline = clock() + cpu_s

    def count(self, entries: int = 1) -> None:
        """Charge entries that are about to be examined."""
        self._entries -= entries
        if self._entries < 0:
            raise FileRefused(OVER_BUDGET, "too many entries")
        self._check_time()

    def reading(self, read: Read, file_size: int = _MAX_OFFSET) -> Read:
        """Wrap `read` so that it is charged and never reads past the end of the file."""

        def bounded(offset: int, size: int) -> bytes:
            size = min(size, file_size - offset)
            if size <= 0:
                return b""
            self._bytes -= size
            if self._bytes < 0:
                raise FileRefused(OVER_BUDGET, "too many bytes to read")
            self._check_time()
            return read(offset, size)

        return bounded

    def _check_time(self) -> None:
        if self._clock() > self._deadline:
            raise FileRefused(OVER_BUDGET, f"parsing took more than {self._cpu_s * 1000:.0f} ms of CPU time")


@contextmanager
def refusing_malformed() -> Iterator[None]:
    """Convert exceptions that malformed content raises in parsing code to FileRefused."""
    try:
        yield
    except _PARSE_ERRORS as error:
        raise FileRefused(MALFORMED, f"{type(error).__name__}: {error}") from error


def readable(raw: bytes) -> str:
    """Text from an untrusted file: always valid Unicode, without terminal control characters."""
    text = raw.decode("utf-8", "replace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


Identity = tuple[int, int, int, int]


def identity_of(status: os.stat_result) -> Identity:
    """The identity of a file's content: an inode that is rewritten counts as another file."""
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


@dataclass(slots=True)
class OpenFile:
    """A file open for reading; the caller closes it. `path` is relative to `root`, the root directory of a process."""

    fd: int
    identity: Identity
    path: str = ""
    root: str = ""

    @property
    def size(self) -> int:
        return self.identity[3]

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.fd, size, offset) if size > 0 and offset <= _MAX_OFFSET else b""

    def string(self, offset: int) -> bytes:
        """The string at an offset, up to the first NUL byte."""
        content = self.read(offset, _STRING_READ)
        if b"\0" not in content:
            content = self.read(offset, _MAX_STRING)
        return content.partition(b"\0")[0]

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> "OpenFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
