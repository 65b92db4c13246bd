"""Seal in the background, so that no tick waits for compression or for the disk."""

import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from exhume.model.clock import Tick
from exhume.model.errors import RecordingError
from exhume.model.ownership import Access
from exhume.model.process import give_back, unmap_clean_pages
from exhume.model.tables import TABLES
from exhume.store.format.names import LIVE_DIRECTORY, LIVE_SUFFIX, SegmentName
from exhume.store.format.schema import DISK_FULL, UnreadableFile
from exhume.store.read.index import Segment
from exhume.store.read.reader import Request, count_rows, read_available
from exhume.store.write.lock import FULL, cannot_write
from exhume.store.write.retention import Reserve, Retention
from exhume.store.write.seal import (
    DamagedSegment,
    Sealed,
    SealProcessFailed,
    discard,
    leftovers,
    seal,
    set_aside,
    start_writing,
    sweep,
    sync,
)

if TYPE_CHECKING:
    from exhume.store.write.seal_process import SealProcess


# Live files are synced this often, which bounds what a power cut can lose.
SYNC_S = 5.0


@dataclass(frozen=True, slots=True)
class _Job:
    """A segment to seal. A leftover of another recorder may be damaged in any way, so it is sealed in a separate
    process."""

    live: Path
    tick: Tick | None = None
    reserve: int = 0
    leftover: bool = False


@dataclass(frozen=True, slots=True)
class StoreLoss:
    """Data that the store could not keep, for the losses table."""

    kind: str
    count: int
    text: str


class Sealer:
    """A thread that seals segments in order and enforces the retention. A segment that doesn't fit on the disk stays
    live, where readers can still read it, and is retried together with the next one.

    Leftovers that are not sealed within `leftovers_s` of the request to close are left to the next recorder.

    `live_bytes` counts the bytes written to live segments and is updated by the writer; `discarded_rows` counts the
    rows of complete segments that had to be removed before they were sealed."""

    def __init__(
        self, recording: Path, retention: Retention, access: Access | None = None, leftovers_s: float | None = None
    ) -> None:
        self._recording = recording
        self._access = access or Access()
        self._retention = retention
        self._waiting: deque[_Job] = deque()
        self._active: _Job | None = None
        self._changed = threading.Condition()
        self._stuck = False
        self._gave_up = False
        self._closing = False
        self._leftovers_s = leftovers_s
        self._leaving = False
        self._failure: RecordingError | None = None
        self._written = 0
        self._losses: list[StoreLoss] = []
        self.live_bytes = 0
        # The segment that was synced last, and the sizes of its files at that time.
        self._synced, self._synced_sizes = "", dict[str, int]()
        self._started = False
        self.discarded_rows = 0
        self._reserve = Reserve(recording / LIVE_DIRECTORY)
        self._reserve.make()
        self._process: SealProcess | None = None
        self._thread = threading.Thread(target=self._run, name="exhume-seal", daemon=True)
        self._thread.start()

    def submit(self, live: Path, tick: Tick | None = None, reserve: int = 0, *, leftover: bool = False) -> None:
        """Queue a complete segment for sealing. With a tick, the retention is enforced afterwards."""
        with self._changed:
            self._waiting.append(_Job(live, tick, reserve, leftover))
            self._stuck = False
            self._changed.notify_all()

    def take_losses(self) -> list[StoreLoss]:
        """Return the losses since the previous call."""
        with self._changed:
            losses, self._losses = self._losses, []
        return losses

    def make_room(self, *, may_discard: bool = True) -> bool:
        """Make room on a full disk: release the reserve, remove the oldest segment, or wait for one to be sealed, which
        makes it smaller; finally, if `may_discard`, discard a segment that could not be sealed. False if nothing more
        may be removed: new rows are then dropped instead of all of the history."""
        with self._changed:
            if self._reserve.release() or self._drop_history():
                return True
            if self._active is not None:
                self._changed.wait_for(lambda: self._active is None)
                return True
            if may_discard and len(self._waiting) > 1:
                # Neither could be sealed for lack of room: keep the newer one.
                self._discard(self._waiting.popleft().live)
                return True
            return False

    def written_bytes(self) -> int:
        """Total bytes written, to live and to sealed segments."""
        return self.live_bytes + self._written

    def raise_failure(self) -> None:
        """Raise RecordingError if sealing can't continue."""
        if self._failure is not None:
            raise self._failure
        if not self._thread.is_alive() and not self._closing:
            raise RecordingError(f"sealing of {self._recording} stopped unexpectedly; start the recorder again")

    def close(self) -> None:
        """Seal the queued segments, then stop."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(self._leftovers_s)
        with self._changed:
            self._leaving = True
        if process := self._process:
            process.kill()
        self._thread.join()
        self._reserve.release()

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                self._settle(job, self._seal(job))
                if self._process is not None and not (self._waiting and self._waiting[0].leftover):
                    self._process.close()
                    self._process = None
                give_back()
                unmap_clean_pages()
        except OSError as error:
            self._failure = cannot_write(self._recording, error)
        finally:
            if self._process is not None:
                self._process.close()
            # Wake up the callers that wait for this thread, however it ends.
            with self._changed:
                self._active = None
                self._changed.notify_all()

    def _next(self) -> _Job | None:
        """Wait for the next segment, syncing live files meanwhile. None when no more will come."""
        while True:
            with self._changed:
                # A stuck segment has to wait until another one is complete; by then the disk may have room.
                if self._changed.wait_for(lambda: (self._waiting and not self._stuck) or self._closing, SYNC_S):
                    while self._leaving and self._waiting and self._waiting[0].leftover:
                        self._waiting.popleft()
                    if not self._waiting or self._gave_up:
                        return None
                    self._active = self._waiting.popleft()
                    return self._active
            self._settle_start()
            self._sync_live()

    def _settle_start(self) -> None:
        """Unmap clean pages once the recorder has started: most of what it loaded is not needed again."""
        if not self._started:
            self._started = True
            unmap_clean_pages()

    def _sync_live(self) -> None:
        """Sync recent live data to the disk. It runs outside of the lock, since no tick may wait for a disk. A sync
        error is no reason to stop: sealing will find out what is broken."""
        with suppress(OSError):
            for segment in leftovers(self._recording):
                if segment.name != self._synced:
                    self._synced_sizes.clear()
                with os.scandir(segment) as entries:
                    live = [each for each in entries if each.name.endswith(LIVE_SUFFIX) and each.is_file()]
                sizes = {file.name: file.stat().st_size for file in live}
                # Live files only ever grow, so an unchanged size means unchanged data.
                grown = [file for file in live if self._synced_sizes.get(file.name) != sizes[file.name]]
                for file in grown:
                    start_writing(file.path)
                for file in grown:
                    sync(file.path, data_only=True)
                    self._synced_sizes[file.name] = sizes[file.name]
                if segment.name != self._synced:
                    # The directory entries of the segment and its files need to be synced only once.
                    self._synced = segment.name
                    sync(segment)
                    sync(segment.parent)

    def _settle(self, job: _Job, finished: bool) -> None:
        with self._changed:
            self._active = None
            self._stuck = not finished
            self._gave_up = self._closing and not finished
            if not finished:
                self._waiting.appendleft(job)
            self._changed.notify_all()

    def _seal(self, job: _Job) -> bool:
        """Seal one segment; False if the disk is full and nothing older may be removed."""
        while True:
            try:
                sealed = self._sealed(job)
            except (DamagedSegment, pa.ArrowException):
                self._set_aside(job.live)
                return True
            except SealProcessFailed:
                # Killed, or out of memory: the segment stays as it is, for readers and for the next start.
                sweep(self._recording)
                return True
            except OSError as error:
                if error.errno not in FULL:
                    raise
                with self._changed:
                    if not self._reserve.release() and not self._drop_history():
                        return False
                continue
            with self._changed:
                if sealed is not None:
                    self._retention.add(sealed)
                    self._written += sealed.size
                    if sealed.damaged:
                        self._lose(len(sealed.damaged), f"{job.live.name}: some of {', '.join(sealed.damaged)}")
                if job.tick is not None:
                    self._retention.enforce(job.tick, job.reserve)
                self._reserve.make()
            return True

    def _sealed(self, job: _Job) -> Sealed | None:
        if not job.leftover:
            return seal(self._recording, job.live, self._access)
        # Imported late: only a recorder that follows a killed one needs it.
        from exhume.store.write.seal_process import SealProcess

        if self._process is None:
            self._process = SealProcess(self._recording, self._access)
        try:
            if self._leaving:
                raise SealProcessFailed
            return self._process.seal(job.live)
        except (DamagedSegment, SealProcessFailed):
            self._process.close()
            self._process = None
            raise

    def _drop_history(self) -> bool:
        """Remove the oldest segment if that leaves enough history."""
        oldest = self._retention.spare()
        if oldest is None:
            return False
        self._carry_over(oldest.path)
        return self._retention.drop_oldest()

    def _discard(self, live: Path) -> None:
        """Drop a complete segment that was never sealed."""
        self._carry_over(live)
        name = SegmentName.parse(live.name)
        if name is not None and not self._retention.is_empty():
            # Not the oldest segment of the recording, so the loss leaves a gap in the middle of it.
            rows = 0
            for table in TABLES:
                with suppress(UnreadableFile):
                    rows += count_rows(Segment(name, live), table)
            self.discarded_rows += rows
            self._losses.append(StoreLoss(DISK_FULL, rows, "rows of a segment that a full disk had no room to seal"))
        discard(self._recording, live)

    def _carry_over(self, leaving: Path) -> None:
        """Carry over the count of dropped rows, which would otherwise be removed with the segment that holds it."""
        name = SegmentName.parse(leaving.name)
        losses = None if name is None else read_available(Segment(name, leaving), Request("losses"))
        rows = [] if losses is None else losses.to_pylist()
        if count := sum(row["count"] for row in rows if row["kind"] == DISK_FULL):
            self._losses.append(StoreLoss(DISK_FULL, count, "rows dropped on a full disk, of segments that are gone"))

    def _set_aside(self, live: Path) -> None:
        """Never retry a segment that can't be sealed: one that crashed once would crash every recorder started here."""
        aside, name = set_aside(live), SegmentName.parse(live.name)
        assert name is not None
        size = sum(path.lstat().st_size for path in aside.iterdir())
        with self._changed:
            self._retention.add(Sealed(name, aside, size))
            self._lose(1, f"{live.name} could not be sealed; it is {aside}")

    def _lose(self, count: int, text: str) -> None:
        self._losses.append(StoreLoss("damaged", count, f"damaged on disk: {text}"))
