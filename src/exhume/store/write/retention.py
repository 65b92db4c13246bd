"""How much of the past is kept: bounded by size and by age, the oldest goes first.

Only segments are ever removed: whatever else lies in the directory belongs to somebody else.
"""

from pathlib import Path

from exhume.model.clock import MILLIS, NANOS, Tick
from exhume.store.format.names import SegmentName
from exhume.store.read.index import damaged_segments, in_recorded_order, sealed_segments
from exhume.store.write.seal import Sealed, discard


class Retention:
    """Knows the sealed segments, and those that could not be sealed, and their sizes, oldest first."""

    def __init__(self, recording: Path, max_bytes: int | None, max_age_s: float | None) -> None:
        self._recording = recording
        self._max_bytes = max_bytes
        self._max_age_ms = None if max_age_s is None else max_age_s * 1000
        found = in_recorded_order([*sealed_segments(recording), *damaged_segments(recording)])
        self._kept = [Sealed(s.name, s.path, s.size()) for s in found]

    def add(self, sealed: Sealed) -> None:
        self._kept.append(sealed)

    def total(self) -> int:
        return sum(sealed.size for sealed in self._kept)

    def enforce(self, boot: str, tick: Tick, reserve: int) -> None:
        """Remove what is too old, then what is too much when `reserve` bytes are still to come. The newest
        segment stays whatever its size: a limit below one segment would keep nothing at all."""
        if self._max_age_ms is not None:
            while self._kept and self._age_ms(self._kept[0].name, boot, tick) > self._max_age_ms:
                self.drop_oldest()
        if self._max_bytes is not None:
            while len(self._kept) > 1 and self.total() + reserve > self._max_bytes:
                self.drop_oldest()

    def drop_oldest(self) -> bool:
        """Make room; False where nothing is left to give."""
        if not self._kept:
            return False
        oldest = self._kept.pop(0)
        if oldest.path.exists():
            discard(self._recording, oldest.path)
        return True

    @staticmethod
    def _age_ms(name: SegmentName, boot: str, tick: Tick) -> float:
        # Within a boot the monotonic clock tells the age: a wall clock set wrong for a moment costs nothing.
        if name.boot == boot:
            return tick.end / MILLIS - name.end_ms
        return (tick.wall - name.span.until) / NANOS * 1000
