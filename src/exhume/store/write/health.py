"""Keep `D/live/health.json` current: what a probe needs to know about the recorder without reading the recording."""

import errno
import os
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from exhume.model.clock import Tick
from exhume.model.facts import RecordingFacts
from exhume.model.ownership import Access, open_own
from exhume.model.tables import Columns, Losses, loss_total
from exhume.store.format.names import HEALTH_NAME, LIVE_DIRECTORY
from exhume.store.read.health import HEALTH_BYTES, LOSSES_NS, RecorderHealth

AVERAGED_TICKS = 60


class HealthFile:
    """Observer of the recorder's ticks. Write errors other than a full disk propagate to the loop, which retries:
    meanwhile the file's age grows, and that is what a probe checks."""

    name = "health-file"

    def __init__(self, directory: Path, facts: RecordingFacts, access: Access) -> None:
        self._path = directory / LIVE_DIRECTORY / HEALTH_NAME
        self._facts = facts
        self._access = access
        self._fd: int | None = None
        self._used = HEALTH_BYTES
        self._began: int | None = None
        # Left by an earlier recorder: there is nothing to report until this one's first tick.
        with suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._losses: deque[tuple[int, Counter[str]]] = deque()
        # Costs of the most recent ticks, and their sums.
        self._spent: deque[tuple[int, int]] = deque(maxlen=AVERAGED_TICKS)
        self._spent_us = self._spent_ns = 0

    def observe(self, tick: Tick, rows: Mapping[str, Sequence[Columns]], losses: Sequence[Losses]) -> None:
        """Raises OSError."""
        self._began = tick.start if self._began is None else self._began
        if losses:
            lost: Counter[str] = Counter()
            for loss in losses:
                lost[loss.kind] += loss_total(loss.kind, loss.count)
            self._losses.append((tick.end, lost))
        while self._losses and self._losses[0][0] < tick.end - LOSSES_NS:
            self._losses.popleft()
        counts: Counter[str] = Counter()
        for _, lost in self._losses:
            counts += lost
        own = rows["self"][0]
        spent_us = own["user_us"][0] + own["system_us"][0]
        gone_us, gone_ns = self._spent[0] if len(self._spent) == AVERAGED_TICKS else (0, 0)
        self._spent.append((spent_us, tick.nanos))
        self._spent_us += spent_us - gone_us
        self._spent_ns += tick.nanos - gone_ns
        self._write(
            RecorderHealth(
                pid=os.getpid(),
                boot_id=self._facts.boot_id,
                exhume_version=self._facts.exhume_version,
                began=self._began,
                tick=tick.end,
                wall=tick.wall,
                rate_hz=own["rate_hz"][0],
                requested_rate_hz=self._facts.rate_hz,
                cpu=round(self._spent_us * 1000 / max(self._spent_ns, 1), 5),
                rss_bytes=own["rss_kb"][0] * 1024,
                losses=dict(counts),
                sources_missing=self._facts.sources_missing,
            )
        )

    def _write(self, health: RecorderHealth) -> None:
        try:
            if self._fd is None:
                self._fd = open_own(self._path, os.O_WRONLY | os.O_CREAT)
                self._access.apply(self._fd)
            content = health.encode()
            used = len(content.rstrip(b" "))
            # Written in place: creating and renaming a file every second would make the file system write each one to
            # the disk. Padding that was already blank is not written again.
            os.pwrite(self._fd, content[: max(used, self._used)], 0)
            self._used = used
        except OSError as error:
            # The store reports a full disk; there is room again once it has removed old segments.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
