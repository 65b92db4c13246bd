"""Retention: how much history is kept, bounded by size and by age. The oldest segment goes first.

Also a reserve of disk space, for the moment when another program fills the disk.

Only segments are ever removed: anything else in the directory is not exhume's to delete.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path

from exhume.model.clock import MILLIS, Tick
from exhume.model.ownership import PRIVATE_FILE, open_own
from exhume.store.format.names import RESERVE_NAME, SegmentName
from exhume.store.read.index import damaged_segments, in_recorded_order, sealed_segments
from exhume.store.write.seal import Sealed, discard

RESERVE_BYTES = 4 << 20
# Never more than this fraction of the free space: on a small disk the rows need it more.
_SHARE_OF_FREE = 16
_BLOCK = 4096
# There is not enough room after all, or the file system does not support fallocate.
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EOPNOTSUPP, errno.EINVAL, errno.EFBIG)


class Retention:
    """Tracks sealed segments and segments that could not be sealed, with their sizes, oldest first."""

    def __init__(self, recording: Path, max_bytes: int | None, max_age_s: float | None, boot: str) -> None:
        self._recording = recording
        self._boot = boot
        self._max_bytes = max_bytes
        self._max_age_ms = None if max_age_s is None else max_age_s * 1000
        found = in_recorded_order([*sealed_segments(recording), *damaged_segments(recording)])
        # Segments of earlier boots are older than those of this one, whatever their clocks say.
        found.sort(key=lambda segment: segment.name.boot == boot)
        self._kept = [Sealed(s.name, s.path, s.size()) for s in found]
        # The bytes of history that a full disk must not displace.
        self._floor = 0

    def add(self, sealed: Sealed) -> None:
        self._kept.append(sealed)

    def total(self) -> int:
        return sum(sealed.size for sealed in self._kept)

    def enforce(self, tick: Tick, reserve: int) -> None:
        """Remove segments that are too old, then those that exceed the size limit once `reserve` more bytes arrive. The
        newest segment always stays: a limit smaller than one segment would otherwise keep nothing at all."""
        if self._max_age_ms is not None:
            while self._kept and self._age_ms(self._kept[0].name, tick) > self._max_age_ms:
                self.drop_oldest()
        if self._max_bytes is not None:
            while len(self._kept) > 1 and self.total() + reserve > self._max_bytes:
                self.drop_oldest()

    def spare(self) -> Sealed | None:
        """The oldest segment, if it may be removed because the disk is full. Another program that fills the disk must
        not erase the history: half of the bytes present when the disk filled are kept, however often it fills.
        If the recording itself takes up most of the disk, it is what fills it, and the oldest segment may go."""
        self._floor = max(self._floor, self.total() // 2)
        if not self._kept:
            return None
        enough = self.total() - self._kept[0].size >= max(1, self._floor)
        return self._kept[0] if enough or _fills_its_disk(self._recording) else None

    def is_empty(self) -> bool:
        return not self._kept

    def drop_oldest(self) -> bool:
        """Remove the oldest segment; False if there is none."""
        if not self._kept:
            return False
        oldest = self._kept.pop(0)
        if oldest.path.exists():
            discard(self._recording, oldest.path)
        return True

    def _age_ms(self, name: SegmentName, tick: Tick) -> float:
        # Within a boot the age comes from the monotonic clock: a wall clock that is briefly wrong deletes nothing.
        since_boot = tick.end / MILLIS
        if name.boot == self._boot:
            return since_boot - name.end_ms
        # Recorded by an earlier boot, so older than this boot, even if that boot's clock was in the future.
        return max((tick.wall - name.span.until) / MILLIS, since_boot)


def _fills_its_disk(recording: Path) -> bool:
    """Whether the recording accounts for more than half of the used space on its file system."""
    disk = os.statvfs(recording)
    own = 0
    for place, _, names in os.walk(recording):
        for name in names:
            # The sealer may remove the file in the meantime.
            with suppress(FileNotFoundError):
                own += Path(place, name).lstat().st_blocks * 512
    return own > (disk.f_blocks - disk.f_bfree) * disk.f_frsize // 2


class Reserve:
    """A preallocated file. It is released when the disk is full, so that the current minute can still be sealed and the
    losses counted, and is allocated again when there is room."""

    def __init__(self, live: Path) -> None:
        self._path = live / RESERVE_NAME
        self._size = self._path.stat().st_size if self._path.exists() else 0

    def make(self) -> None:
        """Allocate the reserve, as far as enough space is free."""
        free = os.statvfs(self._path.parent)
        size = min(RESERVE_BYTES, free.f_bavail * free.f_frsize // _SHARE_OF_FREE) // _BLOCK * _BLOCK
        if size <= self._size:
            return
        try:
            fd = open_own(self._path, os.O_WRONLY | os.O_CREAT)
            try:
                os.fchmod(fd, PRIVATE_FILE)
                os.posix_fallocate(fd, 0, size)
                self._size = size
            finally:
                os.close(fd)
        except OSError as error:
            self._path.unlink(missing_ok=True)
            self._size = 0
            if error.errno not in _REFUSALS:
                raise

    def release(self) -> bool:
        """Release the reserve; False if none is held."""
        if not self._size:
            return False
        self._size = 0
        self._path.unlink(missing_ok=True)
        return True
