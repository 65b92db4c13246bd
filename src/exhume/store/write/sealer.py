"""Sealing in the background, so that no tick waits for compression or for the disk."""

import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from exhume.model.clock import Tick
from exhume.model.errors import RecordingError
from exhume.model.memory import give_back
from exhume.model.ownership import Access
from exhume.store.write.lock import FULL, cannot_write
from exhume.store.write.retention import Retention
from exhume.store.write.seal import discard, seal


@dataclass(frozen=True, slots=True)
class _Job:
    live: Path
    tick: Tick | None
    reserve: int


class Sealer:
    """One thread that seals segments in their order and keeps the retention. A segment that doesn't fit on
    the disk stays live (readers read it all the same) and is tried again with the next one."""

    def __init__(self, recording: Path, retention: Retention, boot: str, access: Access | None = None) -> None:
        self._recording = recording
        self._access = access or Access()
        self._retention = retention
        self._boot = boot
        self._waiting: deque[_Job] = deque()
        self._active: _Job | None = None
        self._changed = threading.Condition()
        self._stuck = False
        self._gave_up = False
        self._closing = False
        self._failure: RecordingError | None = None
        self._written = 0
        self._thread = threading.Thread(target=self._run, name="exhume-seal", daemon=True)
        self._thread.start()

    def submit(self, live: Path, tick: Tick | None = None, reserve: int = 0) -> None:
        """Seal a segment that is complete. With a tick, the retention is kept afterwards."""
        with self._changed:
            self._waiting.append(_Job(live, tick, reserve))
            self._changed.notify_all()

    def make_room(self) -> bool:
        """Make room by the oldest complete segment: remove it, or wait until it is sealed, which makes it small.
        False where there is none."""
        with self._changed:
            if self._retention.drop_oldest():
                return True
            if self._active is not None:
                self._changed.wait_for(lambda: self._active is None)
                return True
            if self._waiting:
                discard(self._recording, self._waiting.popleft().live)
                return True
            return False

    def written_bytes(self) -> int:
        return self._written

    def raise_failure(self) -> None:
        """Raises RecordingError where sealing can't go on."""
        if self._failure is not None:
            raise self._failure
        if not self._thread.is_alive() and not self._closing:
            raise RecordingError(f"sealing of {self._recording} stopped unexpectedly; start the recorder again")

    def close(self) -> None:
        """Seal what waits, then stop."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                self._settle(job, self._seal(job))
                give_back()
        except OSError as error:
            self._failure = cannot_write(self._recording, error)
        finally:
            # However the thread ends, nobody is left waiting for it.
            with self._changed:
                self._active = None
                self._changed.notify_all()

    def _next(self) -> _Job | None:
        """The next segment, when there is one; None when nothing more will come."""
        with self._changed:
            if self._stuck and not self._closing:
                # Nothing can be done until another segment is complete; by then the disk may have room.
                self._changed.wait()
            self._changed.wait_for(lambda: self._waiting or self._closing)
            if not self._waiting or self._gave_up:
                return None
            self._active = self._waiting.popleft()
            return self._active

    def _settle(self, job: _Job, finished: bool) -> None:
        with self._changed:
            self._active = None
            self._stuck = not finished
            self._gave_up = self._closing and not finished
            if not finished:
                self._waiting.appendleft(job)
            self._changed.notify_all()

    def _seal(self, job: _Job) -> bool:
        """False where the disk is full and nothing older can go."""
        while True:
            try:
                sealed = seal(self._recording, job.live, self._access)
            except pa.ArrowException:
                # Damaged in a way that its checks let through: it stays as it is, for readers and for the next start.
                return True
            except OSError as error:
                if error.errno not in FULL:
                    raise
                with self._changed:
                    if not self._retention.drop_oldest():
                        return False
                continue
            with self._changed:
                if sealed is not None:
                    self._retention.add(sealed)
                    self._written += sealed.size
                if job.tick is not None:
                    self._retention.enforce(self._boot, job.tick, job.reserve)
            return True
