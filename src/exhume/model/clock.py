"""One clock for every row: CLOCK_MONOTONIC nanoseconds of one boot.

Wall time is only ever displayed, and is derived from the anchors recorded each second, so a step of the wall clock
moves nothing that was recorded. Tests inject a clock of their own.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

NANOS = 1_000_000_000
MILLIS = 1_000_000
# The type of fields that hold wall nanoseconds since the epoch.
WALL = "wall"
Wall = Annotated[int, WALL]
# Two clock readings this close together count as simultaneous; on a starved node the closest of several attempts do.
_ONE_MOMENT_NS, _LOOKS = MILLIS // 20, 5


class Clock(Protocol):
    """The clocks that the recorder needs."""

    def monotonic_ns(self) -> int: ...

    def wall_ns(self) -> int: ...


class SystemClock:
    """The kernel's clocks."""

    def monotonic_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def wall_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_REALTIME)


def both_ns(clock: Clock) -> tuple[int, int]:
    """Read monotonic and wall time of the same moment. Between the two readings the caller may have to wait for a core,
    on a starved node for long: the readings then don't belong together, and are repeated."""
    nearest: tuple[int, int, int] | None = None
    for _ in range(_LOOKS):
        monotonic, wall = clock.monotonic_ns(), clock.wall_ns()
        apart = clock.monotonic_ns() - monotonic
        if nearest is None or apart < nearest[0]:
            nearest = apart, monotonic, wall
        if apart < _ONE_MOMENT_NS:
            break
    assert nearest is not None
    return nearest[1:]


@dataclass(frozen=True, slots=True)
class Tick:
    """One cycle of the recorder: the half-open interval [start, end) that its rows describe.

    `wall` is the wall time at `end`. A row's `time` column is the start of its interval.
    """

    index: int
    start: int
    end: int
    wall: int

    @property
    def nanos(self) -> int:
        return self.end - self.start

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / NANOS


def read_boot_id(proc: Path = Path("/proc")) -> str:
    """The id of this boot (32 hex digits); an empty string if it can't be read."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip().replace("-", "")
    except OSError:
        return ""


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

    def clamp(self, other: "Window") -> "Window":
        """The part of this window that lies inside the other; empty if they don't overlap."""
        since = max(self.since, other.since)
        return Window(since, max(since, min(self.until, other.until)))
