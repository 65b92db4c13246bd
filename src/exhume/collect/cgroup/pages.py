"""Cached pages of files: the cgroup that each page is charged to, and whether it is locked, dirty or mapped.

Parts of many files are mapped next to each other into one stretch of address space, so that a few calls cover thousands
of small files. Only pages that are already in memory are touched, and through process_vm_readv: if a file is truncated
in the meantime, that causes an error instead of a signal. Nothing is read from disk and nothing is charged.
"""

import contextlib
import ctypes
import mmap
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from exhume.model.errors import SourceUnavailable
from exhume.procfs.host import Host

PAGE = mmap.PAGESIZE
# Space for one GiB of files, in fewer parts than a process may have mappings (65,530).
ARENA_PAGES = 1 << 18
ARENA_PIECES = 8192

_PROT_NONE, _PROT_READ = 0, 1
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS, _MAP_NORESERVE = 0x01, 0x02, 0x10, 0x20, 0x4000
_MADV_RANDOM = 1
_FAILED = ctypes.c_void_p(-1).value
_CACHESTAT = 451
_IOVECS = 1024
# Page frames that are closer together than this are read with one call.
_GAP = 32

_PFN = np.uint64((1 << 55) - 1)
_PRESENT = np.uint64(1 << 63)
DIRTY, SWAPBACKED, UNEVICTABLE, MLOCKED = 1 << 4, 1 << 14, 1 << 18, 1 << 33

U64 = npt.NDArray[np.uint64]

_Span, _Cachestat = ctypes.c_uint64 * 2, ctypes.c_uint64 * 5
_WHOLE_FILE = _Span(0, 0)

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long
_syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint]
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.process_vm_readv.restype = ctypes.c_ssize_t
_libc.process_vm_readv.argtypes = [
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_void_p,
    ctypes.c_ulong,
    ctypes.c_ulong,
]


def cached_pages(fd: int, offset: int = 0, length: int = 0) -> int | None:
    """The number of cached pages of a file (or a range of it; 0 is the rest); None when the kernel has no cachestat
    (mm/filemap.c, since 6.5)."""
    stat = _Cachestat()
    if _syscall(_CACHESTAT, fd, _WHOLE_FILE if not (offset or length) else _Span(offset, length), stat, 0) != 0:
        return None
    return int(stat[0])


def cached_runs(fd: int, size: int, deadline: float) -> Iterator[tuple[int, int]]:
    """The cached ranges (offset, length) of a file, found by bisection, until time.monotonic() reaches the deadline.

    For block devices, where mincore does not see what a filesystem reads through buffers.
    """
    pending = [(0, -(-size // PAGE))]
    while pending and time.monotonic() < deadline:
        first, pages = pending.pop()
        cached = cached_pages(fd, first * PAGE, pages * PAGE)
        if not cached:
            continue
        if cached >= pages:
            yield first * PAGE, pages * PAGE
        else:
            half = pages // 2
            pending += [(first + half, pages - half), (first, half)]


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a file: how many of its pages are in memory, and for the pages charged to one of the requested
    cgroups, the cgroup (its inode), the kernel's flags, and whether any other process has the page mapped."""

    owner: int
    resident: int
    cgroups: U64
    flags: U64
    mapped: npt.NDArray[np.bool_]


class _Placed(NamedTuple):
    """The position of a file range in the arena, in pages."""

    owner: int
    start: int
    pages: int
    all_cached: bool
    counted: bool


class PageReader:
    """Looks up the pages of files. Raises SourceUnavailable without the necessary privileges."""

    def __init__(self, host: Host) -> None:
        self._files = contextlib.ExitStack()
        try:
            self._pagemap = self._open(host, "self/pagemap")
            self._cgroups = self._open(host, "kpagecgroup")
            self._flags = self._open(host, "kpageflags")
            self._counts = self._open(host, "kpagecount")
            os.pread(self._cgroups, 8, 8)
        except OSError as error:
            self._files.close()
            raise SourceUnavailable(
                "pages", f"{error.filename or '/proc/kpagecgroup'}: {error.strerror}", "run as root on the node itself"
            ) from None
        self._base = _reserve()
        self._files.callback(_libc.munmap, self._base, ARENA_PAGES * PAGE)
        self._used = 0
        self._pieces: list[_Placed] = []

    @property
    def room(self) -> int:
        """Free space in bytes."""
        return 0 if len(self._pieces) >= ARENA_PIECES else (ARENA_PAGES - self._used) * PAGE

    def add(
        self, owner: int, fd: int, offset: int, length: int, *, all_cached: bool = False, counted: bool = False
    ) -> bool:
        """Add a range of a file; `owner` is the caller's key for it. With `counted`, it is reported in any case. False
        when it cannot be mapped."""
        pages = -(-length // PAGE)
        address = self._base + self._used * PAGE
        if _libc.mmap(address, pages * PAGE, _PROT_READ, _MAP_SHARED | _MAP_FIXED, fd, offset) == _FAILED:
            # The reservation there may be lost: restore it.
            _reserve(address, pages * PAGE)
            return False
        self._pieces.append(_Placed(owner, self._used, pages, all_cached, counted))
        self._used += pages
        return True

    def look(self, charged_to: U64) -> list[Piece]:
        """The ranges that were added and have pages charged to these cgroups, with those; then empty the arena."""
        pieces, used = self._pieces, self._used
        if not pieces:
            return []
        try:
            return self._look(pieces, used, charged_to)
        finally:
            _reserve(self._base, used * PAGE)
            self._pieces, self._used = [], 0

    def close(self) -> None:
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _open(self, host: Host, name: str) -> int:
        fd = os.open(host.proc / name, os.O_RDONLY | os.O_CLOEXEC)
        self._files.callback(os.close, fd)
        return fd

    def _look(self, pieces: list[_Placed], used: int, charged_to: U64) -> list[Piece]:
        _libc.madvise(self._base, used * PAGE, _MADV_RANDOM)
        resident = self._resident(pieces, used)
        self._touch(resident)
        entries = np.frombuffer(os.pread(self._pagemap, used * 8, self._base // PAGE * 8), np.uint64)
        seen = resident[resident < len(entries)]
        # Without the privilege to see them, page frame numbers are all 0.
        frames = np.where((entries[seen] & _PRESENT) != 0, entries[seen] & _PFN, np.uint64(0))
        seen, frames = seen[frames != 0], frames[frames != 0]
        cgroups = self._of_frames(self._cgroups, frames)
        wanted = np.isin(cgroups, charged_to)
        seen, frames, cgroups = seen[wanted], frames[wanted], cgroups[wanted]
        flags = self._of_frames(self._flags, frames)
        # This process itself maps each page once.
        mapped = self._of_frames(self._counts, frames) > 1
        starts = np.array([piece.start for piece in pieces] + [used])
        bounds, counts = np.searchsorted(seen, starts), np.diff(np.searchsorted(resident, starts))
        # Few of thousands of small files have such pages.
        reported = np.flatnonzero((np.diff(bounds) > 0) | np.array([piece.counted for piece in pieces]))
        return [
            Piece(pieces[at].owner, int(counts[at]), cgroups[begin:end], flags[begin:end], mapped[begin:end])
            for at, begin, end in zip(
                reported.tolist(), bounds[reported].tolist(), bounds[reported + 1].tolist(), strict=True
            )
        ]

    def _resident(self, pieces: list[_Placed], used: int) -> npt.NDArray[np.intp]:
        states = np.zeros(used, np.uint8)
        if _libc.mincore(self._base, used * PAGE, states.ctypes.data) != 0:
            states[:] = 0
        for piece in pieces:
            if piece.all_cached:
                states[piece.start : piece.start + piece.pages] = 1
        return np.flatnonzero(states & 1)

    def _touch(self, pages: npt.NDArray[np.intp]) -> None:
        """Make the kernel enter pages into this process's page table."""
        remote = np.empty((len(pages), 2), np.uint64)
        remote[:, 0] = pages.astype(np.uint64) * np.uint64(PAGE) + np.uint64(self._base)
        remote[:, 1] = 1
        sink = ctypes.create_string_buffer(_IOVECS)
        local = np.array([[ctypes.addressof(sink), _IOVECS]], np.uint64)
        done, pid = 0, os.getpid()
        while done < len(remote):
            count = min(_IOVECS, len(remote) - done)
            local[0, 1] = count
            read = _libc.process_vm_readv(pid, local.ctypes.data, 1, remote[done:].ctypes.data, count, 0)
            # Skip a page that is no longer available (truncated, or evicted).
            done += max(read, 0) if read == count else max(read, 0) + 1

    def _of_frames(self, fd: int, frames: U64) -> U64:
        """A 64-bit value from the kernel for each page frame (fs/proc/page.c: kpagecgroup, kpageflags)."""
        values = np.zeros(len(frames), np.uint64)
        if not len(frames):
            return values
        order = np.argsort(frames)
        ordered = frames[order].astype(np.int64)
        begin = 0
        for end in [*(np.flatnonzero(np.diff(ordered) > _GAP) + 1).tolist(), len(ordered)]:
            first, last = int(ordered[begin]), int(ordered[end - 1])
            content = np.frombuffer(os.pread(fd, (last - first + 1) * 8, first * 8), np.uint64)
            places = ordered[begin:end] - first
            known = places < len(content)
            values[order[begin:end][known]] = content[places[known]]
            begin = end
        return values


def _reserve(address: int | None = None, length: int = ARENA_PAGES * PAGE) -> int:
    """Reserve address space without memory, replacing any existing mapping."""
    flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE | (_MAP_FIXED if address is not None else 0)
    found = _libc.mmap(address, length, _PROT_NONE, flags, -1, 0)
    if found == _FAILED or found is None:
        raise SourceUnavailable("pages", "no address space can be had", "raise the limit of virtual memory (ulimit -v)")
    return int(found)
