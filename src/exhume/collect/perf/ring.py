"""One CPU's ring buffer: the kernel writes records at the head, we copy them out and move the tail.

The positions are free-running byte counts; a position modulo the ring's size is where its byte lies. Whole
records only ever lie between tail and head, but a record may wrap around the end.
"""

import ctypes
import fcntl
import mmap
import os
import platform
from collections.abc import Callable

# Offsets in struct perf_event_mmap_page, in 64-bit words: data_head and data_tail.
HEAD = 1024 // 8
TAIL = 1032 // 8

_IOC_ENABLE = 0x2400
_IOC_PERIOD = 0x40082404
_IOC_SET_OUTPUT = 0x2405


def copy_out(data: memoryview, tail: int, head: int) -> bytes:
    """The bytes from tail to head of a ring, joined where they wrap."""
    size = len(data)
    start, length = tail % size, head - tail
    if start + length <= size:
        return bytes(data[start : start + length])
    first = size - start
    return bytes(data[start:]) + bytes(data[: length - first])


def load_fence() -> Callable[[], object]:
    """What must happen between reading the head and reading the data behind it.

    include/uapi/linux/perf_event.h, struct perf_event_mmap_page, requires a read barrier there. x86 does not reorder
    loads, so nothing. Elsewhere a real fence where libatomic has one; else a system call:
    its exception entry synchronises the context, and together with the branch on the head that we just took, this
    orders the later loads after the earlier one (control dependency plus ISB in the Arm memory model).
    """
    if platform.machine() == "x86_64":
        return lambda: None
    try:
        fence = ctypes.CDLL("libatomic.so.1").atomic_thread_fence
    except (OSError, AttributeError):
        return os.getppid
    sequentially_consistent = 5
    return lambda: fence(sequentially_consistent)


def pages_for(wanted_bytes: int) -> int:
    """Rings are a power of two of pages; the smallest that holds `wanted_bytes`."""
    pages = max(1, -(-wanted_bytes // mmap.PAGESIZE))
    return 1 << (pages - 1).bit_length()


class Ring:
    """An event of one CPU with its mapped ring. Owns the event's file descriptor and those joined to it."""

    def __init__(self, fd: int, cpu: int, wanted_bytes: int, fence: Callable[[], object]) -> None:
        self.cpu = cpu
        self.fd = fd
        self._joined: list[int] = []
        self._fence = fence
        pages = pages_for(wanted_bytes)
        try:
            while True:
                try:
                    self._map = mmap.mmap(fd, (1 + pages) * mmap.PAGESIZE)
                    break
                except OSError:
                    # Locked memory is limited: a smaller ring is better than none.
                    if pages <= 4:
                        raise
                    pages //= 2
        except OSError:
            os.close(fd)
            raise
        self.size = pages * mmap.PAGESIZE
        self._words = memoryview(self._map).cast("Q")
        self._data = memoryview(self._map)[mmap.PAGESIZE :]

    def join(self, fd: int) -> None:
        """Let another event of the same CPU write into this ring."""
        try:
            fcntl.ioctl(fd, _IOC_SET_OUTPUT, self.fd)
        except OSError:
            os.close(fd)
            raise
        self._joined.append(fd)

    def enable(self) -> None:
        for fd in (self.fd, *self._joined):
            fcntl.ioctl(fd, _IOC_ENABLE, 0)

    def set_period(self, period: int) -> None:
        """Sample less or more often from now on (a period, or a frequency for a frequency event)."""
        fcntl.ioctl(self.fd, _IOC_PERIOD, period.to_bytes(8, "little"))

    def read(self) -> bytes:
        """All records since the last read; the room is given back to the kernel."""
        words = self._words
        head, tail = words[HEAD], words[TAIL]
        if head == tail:
            return b""
        self._fence()
        records = copy_out(self._data, tail, head)
        self._fence()
        words[TAIL] = head
        return records

    def close(self) -> None:
        self._words.release()
        self._data.release()
        self._map.close()
        for fd in (*self._joined, self.fd):
            os.close(fd)
        self._joined.clear()
