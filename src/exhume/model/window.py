"""An interval of wall time, half-open, so that neighbours never count anything twice."""

from dataclasses import dataclass

from exhume.model.clock import NANOS, Wall


@dataclass(frozen=True, slots=True)
class Window:
    """Wall-clock nanoseconds [since, until). A window whose end is not after its start is empty, not an error."""

    since: Wall
    until: Wall

    @property
    def empty(self) -> bool:
        return self.until <= self.since

    @property
    def nanos(self) -> int:
        return max(0, self.until - self.since)

    @property
    def seconds(self) -> float:
        return self.nanos / NANOS

    def contains(self, wall: int) -> bool:
        return self.since <= wall < self.until

    def overlaps(self, other: "Window") -> bool:
        return self.since < other.until and other.since < self.until

    def clamp(self, other: "Window") -> "Window":
        """The part of this window that lies inside the other; empty where they don't meet."""
        since = max(self.since, other.since)
        return Window(since, max(since, min(self.until, other.until)))
