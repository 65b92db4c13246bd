"""Find the files that are likely pins: those with cached pages that are charged below a parent of zombies.

The kernel reports the closest live cgroup of a page, so a page of a zombie shows its parent. Pages charged to a cgroup
without pages of its own certainly belong to a zombie; other pages are only likely to.
"""

import ctypes
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from exhume.collect.cgroup.candidates import (
    Candidate,
    FileKey,
    ProcessFiles,
    SearchLimit,
    blind_spots,
    candidates,
    holders_of,
    scan_processes,
)
from exhume.collect.cgroup.pages import (
    DIRTY,
    MLOCKED,
    PAGE,
    SWAPBACKED,
    UNEVICTABLE,
    PageReader,
    Piece,
    cached_pages,
    cached_runs,
)
from exhume.model.errors import SourceUnavailable
from exhume.model.stop import Stop
from exhume.model.text import count
from exhume.model.zombies import ParentResidual, PinKind, PinnedFile, PinReport
from exhume.procfs.host import Host

Progress = Callable[[float], None]
SECONDS = 8.0
# A node at normal speed examines many times as many in that time.
_LEAST_FILES = 2048
_PROCESSES_SHARE = 0.25
_SLICE = 256 << 20
_LOOK_EVERY_S = 0.5
# A search is repeated if more than this part of what it looked for is newly missing.
_NEW_SHARE = 0.05
_DEVICE_S = 2.0
_TMPFS_MAGIC = 0x01021994
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOATIME

_libc = ctypes.CDLL(None, use_errno=True)


def likely_pins(
    host: Host,
    parents: Sequence[ParentResidual],
    roots: Sequence[Path] = (),
    progress: Progress | None = None,
    seconds: float = SECONDS,
    *,
    known: "KnownPins | None" = None,
    stop: Stop | None = None,
) -> PinReport:
    """The files that pin zombies below these parents. `roots` are directories to search first; the search ends when all
    bytes of the parents are accounted for, after the time limit in seconds, or when a stop is requested. With `known`,
    from an earlier search, it is only repeated if it is likely to find others; the known files are looked at in any
    case."""
    began = time.monotonic()
    known = known if known is not None else KnownPins()
    if not parents:
        return PinReport()
    try:
        reader = PageReader(host)
    except SourceUnavailable as error:
        return PinReport(
            blind_spots=[f"the files that pin can't be found: {error.missing.reason}; {error.missing.remedy}"]
        )
    with reader:
        limit = SearchLimit(seconds, _LEAST_FILES, stop)
        processes = scan_processes(host, seconds * _PROCESSES_SHARE, stop)
        search = _Search(reader, parents, limit, progress or (lambda _: None))
        if not known.account_for(search):
            for place in candidates(host, roots, processes):
                if not search.through(place):
                    break
            known.keep(search)
    files = [_pinned(host, found, search.parent_of(found), processes) for found in search.found.values()]
    files += search.swapped()
    files.sort(key=lambda file: (-file.pages, file.path))
    spots = blind_spots(host, processes) if search.missing_bytes() else []
    return PinReport(
        files, [*search.blind_spots(), *spots], search.expected_bytes, search.looked_at, time.monotonic() - began
    )


@dataclass(slots=True)
class _Found:
    """A file with pages of suspects, or in swap."""

    candidate: Candidate
    key: FileKey
    pages: int = 0
    dirty: int = 0
    locked: int = 0
    mapped: int = 0
    shmem: int = 0
    resident: int = 0
    allocated: int = 0
    # Without cachestat, the number of resident pages is known only after its pages were looked up.
    resident_by_look: bool = False
    parents: Counter[int] = field(default_factory=Counter)

    @property
    def pages_in_swap(self) -> int:
        """For a file on tmpfs: how many of its pages are not in memory."""
        return max(0, self.allocated - self.resident)

    @property
    def kind(self) -> PinKind:
        """What its pages are, before it is known which processes hold them."""
        if self.candidate.device:
            return PinKind.METADATA
        return PinKind.SHMEM if 2 * self.shmem > self.pages else PinKind.FILE


@dataclass(slots=True)
class KnownPins:
    """What the last search of the whole node found, for those that follow it soon: it would find the same again."""

    files: list[Candidate] = field(default_factory=list)
    # The bytes for which it found no file, by parent (and "" for swap; empty before the first search), of how many.
    missing: dict[str, int] = field(default_factory=dict)
    expected: int = 0
    looked_at: int = 0
    out_of_time: bool = False
    closed_devices: list[str] = field(default_factory=list)

    def keep(self, search: "_Search") -> None:
        """Replace what is known by the result of a search, unless the time was over before it got as far."""
        if search.out_of_time and search.looked_at < self.looked_at:
            return
        self.files = [found.candidate for found in (*search.found.values(), *search.partly_in_swap())]
        self.missing, self.expected = search.missing_by_parent(), search.expected_in_all
        self.looked_at, self.out_of_time = search.looked_at, search.out_of_time
        self.closed_devices = list(search.closed_devices)

    def account_for(self, search: "_Search") -> bool:
        """Look at the known files only; True unless they leave notably more missing below any parent than before."""
        if not self.missing:
            return False
        search.through(self.files)
        new = sum(max(0, size - self.missing.get(name, 0)) for name, size in search.missing_by_parent().items())
        if new > _NEW_SHARE * self.expected:
            return False
        search.looked_at = max(search.looked_at, self.looked_at)
        search.out_of_time |= self.out_of_time
        search.closed_devices += (name for name in self.closed_devices if name not in search.closed_devices)
        return True


class _Search:
    """One run through the candidates, within a time limit."""

    def __init__(
        self, reader: PageReader, parents: Sequence[ParentResidual], limit: SearchLimit, progress: Progress
    ) -> None:
        self._reader = reader
        self._limit, self._progress = limit, progress
        self._by_inode = {inode: parent for parent in parents if (inode := _inode(parent.path)) is not None}
        self._suspects = np.array(sorted(self._by_inode), np.uint64)
        self._expected = {
            PinKind.SHMEM: sum(parent.shmem_bytes for parent in parents),
            PinKind.FILE: sum(parent.file_bytes for parent in parents),
        }
        self._unclassified = sum(parent.unclassified_bytes for parent in parents)
        self._swap = sum(parent.swap_bytes for parent in parents)
        self._hidden = sum(parent.anon_bytes for parent in parents)
        self._seen: set[FileKey] = set()
        self._owners: list[tuple[Candidate, FileKey, _Found | None]] = []
        self._pieces_found: dict[PinKind, int] = dict.fromkeys(self._expected, 0)
        self._in_swap: list[_Found] = []
        self.closed_devices: list[str] = []
        self.out_of_time = False
        self._looked = time.monotonic()
        self.found: dict[FileKey, _Found] = {}
        self.looked_at = 0

    @property
    def expected_bytes(self) -> int:
        return sum(self._expected.values()) + self._unclassified

    def missing_bytes(self) -> int:
        """Bytes of the parents for which no file was found yet."""
        missing = [size - self._pieces_found[kind] * PAGE for kind, size in self._expected.items()]
        # Bytes found beyond the known kinds are part of the unclassified ones.
        beyond = -sum(min(0, size) for size in missing)
        return sum(max(0, size) for size in missing) + max(0, self._unclassified - beyond)

    @property
    def expected_in_all(self) -> int:
        """All bytes that files may account for, in memory and in swap."""
        return self.expected_bytes + self._swap

    def missing_by_parent(self) -> dict[str, int]:
        """Bytes for which no file was found yet, by the path of the parent; "" is what is in swap."""
        held: Counter[tuple[int, bool]] = Counter()
        for found in self.found.values():
            for inode, pages in found.parents.items():
                held[inode, found.kind is PinKind.SHMEM] += pages * PAGE
        missing = {"": max(0, self._swap - sum(found.pages_in_swap for found in self._in_swap) * PAGE)}
        for inode, parent in self._by_inode.items():
            shmem, cached = parent.shmem_bytes - held[inode, True], parent.file_bytes - held[inode, False]
            beyond = -min(0, shmem) - min(0, cached)
            missing[parent.path] = max(0, shmem) + max(0, cached) + max(0, parent.unclassified_bytes - beyond)
        return missing

    def partly_in_swap(self) -> list[_Found]:
        """tmpfs files with swapped pages, if zombies have any pages in swap."""
        return [found for found in self._in_swap if found.pages_in_swap] if self._swap else []

    def through(self, files: Iterable[Candidate]) -> bool:
        """Examine all of these; False when there is no need, or no time, to continue."""
        for candidate in files:
            if self._limit.reached(self.looked_at):
                self.out_of_time = True
                break
            self._add(candidate)
            if time.monotonic() > self._looked + _LOOK_EVERY_S:
                self._look()
                if self._complete():
                    break
        self._look()
        return not (self.out_of_time or self._complete())

    def blind_spots(self) -> list[str]:
        spots = []
        if self.out_of_time and self.missing_bytes():
            ended = "was stopped" if self._limit.stopped else "ran out of time"
            spots.append(f"the search {ended} after {count(self.looked_at, 'file')}: more may pin than were found")
        if self.closed_devices and self.missing_bytes():
            spots.append(f"filesystem metadata can't be looked at: {', '.join(self.closed_devices)}")
        if self._hidden:
            spots.append("memory of processes (anonymous pages) can't be traced to the process that holds it")
        if self._swap:
            spots.append("the cgroup of pages in swap can't be read: files with pages there are only likely")
        return spots

    def swapped(self) -> list[PinnedFile]:
        """The same as pins: files that are likely to hold zombies by their pages in swap."""
        return [
            PinnedFile(found.candidate.shown, PinKind.SWAP, pages, pages * PAGE, certain=False)
            for found in self.partly_in_swap()
            if (pages := found.pages_in_swap)
        ]

    def _add(self, candidate: Candidate) -> None:
        try:
            fd = os.open(candidate.path, _FLAGS)
        except OSError as error:
            if candidate.device:
                self.closed_devices.append(f"{candidate.shown} ({error.strerror})")
            return
        try:
            self._place(candidate, fd, os.fstat(fd))
        except OSError:
            return
        finally:
            os.close(fd)

    def _place(self, candidate: Candidate, fd: int, status: os.stat_result) -> None:
        device = stat.S_ISBLK(status.st_mode)
        size = os.lseek(fd, 0, os.SEEK_END) if device else status.st_size
        key = (status.st_rdev, 0) if device else (status.st_dev, status.st_ino)
        if key in self._seen or not size or not (device or stat.S_ISREG(status.st_mode)):
            return
        self._seen.add(key)
        self.looked_at += 1
        cached = cached_pages(fd) if candidate.cachestat else None
        found = None
        if self._swap and not device and _on_tmpfs(fd):
            found = _Found(candidate, key, resident=cached or 0, allocated=status.st_blocks * 512 // PAGE)
            found.resident_by_look = cached is None
            self._in_swap.append(found)
        if cached == 0:
            return
        small = size <= _SLICE and not device
        for offset, length in ((0, size),) if small else self._stretches(fd, size, cached, device):
            if self._reader.room < length:
                self._look()
            counted = found is not None and found.resident_by_look
            if self._reader.add(len(self._owners), fd, offset, length, all_cached=device, counted=counted):
                self._owners.append((candidate, key, found))
            if not small and self._limit.reached(self.looked_at):
                self.out_of_time = True
                return

    def _stretches(self, fd: int, size: int, cached: int | None, device: bool) -> Iterator[tuple[int, int]]:
        """The ranges of a device or a large file that are worth mapping: those with cached pages."""
        if device and cached is None:
            # mincore reports none of a device's pages: their buffers are up to date, but the pages themselves are not.
            self.closed_devices.append("this kernel (before 6.5) has no cachestat")
        elif device:
            for offset, length in cached_runs(fd, size, time.monotonic() + _DEVICE_S):
                yield from ((at, min(_SLICE, offset + length - at)) for at in range(offset, offset + length, _SLICE))
        else:
            for offset in range(0, size, _SLICE):
                length = min(_SLICE, size - offset)
                if cached is None or cached_pages(fd, offset, length) != 0:
                    yield offset, length

    def _look(self) -> None:
        owners, self._owners = self._owners, []
        self._looked = time.monotonic()
        for piece in self._reader.look(self._suspects):
            candidate, key, found = owners[piece.owner]
            if found is None:
                found = self.found.get(key) or _Found(candidate, key)
            found.resident += piece.resident if found.resident_by_look else 0
            self._take(found, piece)
        known = 1 - self.missing_bytes() / self.expected_bytes if self.expected_bytes else 0.0
        self._progress(max(self._limit.share(self.looked_at), known))

    def _take(self, found: _Found, piece: Piece) -> None:
        pages = len(piece.cgroups)
        if not pages:
            return
        self.found.setdefault(found.key, found)
        found.pages += pages
        found.dirty += int(np.count_nonzero(piece.flags & np.uint64(DIRTY)))
        found.locked += int(np.count_nonzero(piece.flags & np.uint64(MLOCKED | UNEVICTABLE)))
        found.mapped += int(np.count_nonzero(piece.mapped))
        shmem = int(np.count_nonzero(piece.flags & np.uint64(SWAPBACKED)))
        found.shmem += shmem
        found.parents.update(piece.cgroups.tolist())
        self._pieces_found[PinKind.SHMEM] += shmem
        self._pieces_found[PinKind.FILE] += pages - shmem

    def _complete(self) -> bool:
        """Whether everything is found (among what was examined so far)."""
        in_swap = sum(found.pages_in_swap for found in self._in_swap)
        return not self.missing_bytes() and in_swap * PAGE >= self._swap

    def parent_of(self, found: _Found) -> ParentResidual:
        """The parent that most of a file's pages are charged below."""
        return self._by_inode[found.parents.most_common(1)[0][0]]


def classify(parents: Sequence[ParentResidual], report: PinReport, dying: int | None) -> list[ParentResidual]:
    """The parents with filesystem metadata separated from other cached pages, and with unclassified pages attributed to
    the kind of file that they belong to, as far as the search found them. If pages of known kinds account for all dying
    cgroups, the unclassified rest is the per-CPU stock."""
    found: Counter[tuple[str, PinKind]] = Counter()
    for file in report.files:
        found[file.parent, file.kind] += file.bytes
    known = [_classified(parent, {kind: found[parent.path, kind] for kind in PinKind}) for parent in parents]
    if dying is not None and sum(parent.bytes - parent.unclassified_bytes for parent in known) >= dying * PAGE:
        known = [parent for parent in known if not 0 < parent.unclassified_bytes == parent.bytes]
        return [replace(parent, unclassified_bytes=0) for parent in known]
    return known


def _classified(parent: ParentResidual, found: dict[PinKind, int]) -> ParentResidual:
    if parent.unclassified_bytes:
        locked = found[PinKind.MLOCKED]
        cached = found[PinKind.FILE] + found[PinKind.MAPPED] + found[PinKind.METADATA] + locked
        shmem = min(parent.unclassified_bytes, max(0, found[PinKind.SHMEM] - parent.shmem_bytes))
        cached = min(parent.unclassified_bytes - shmem, max(0, cached - parent.file_bytes))
        parent = replace(
            parent,
            shmem_bytes=parent.shmem_bytes + shmem,
            file_bytes=parent.file_bytes + cached,
            mapped_bytes=max(parent.mapped_bytes, found[PinKind.MAPPED]),
            unevictable_bytes=max(parent.unevictable_bytes, locked),
            unclassified_bytes=parent.unclassified_bytes - shmem - cached,
        )
    return replace(parent, metadata_bytes=min(parent.file_bytes, found[PinKind.METADATA]))


def _pinned(host: Host, found: _Found, parent: ParentResidual, processes: ProcessFiles) -> PinnedFile:
    kind = found.kind
    path = found.candidate.shown
    holders = holders_of(host, found.key, path, processes) if found.mapped or found.locked else []
    if found.locked:
        kind = PinKind.MLOCKED
    elif holders and kind is PinKind.FILE:
        kind = PinKind.MAPPED
    return PinnedFile(
        path,
        kind,
        found.pages,
        found.pages * PAGE,
        holders,
        parent.path,
        certain=not parent.own_bytes if parent.exact else not parent.populated,
        dirty_pages=found.dirty,
    )


def _on_tmpfs(fd: int) -> bool:
    buffer = ctypes.create_string_buffer(256)
    return _libc.fstatfs(fd, buffer) == 0 and ctypes.c_long.from_buffer(buffer).value == _TMPFS_MAGIC


def _inode(directory: str) -> int | None:
    try:
        return Path(directory).stat().st_ino
    except OSError:
        return None
