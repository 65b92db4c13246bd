"""The time of a synthetic recording: it begins on a minute of the wall clock, a week after the node's boot."""

from dataclasses import dataclass

from exhume.model.clock import NANOS

# 2025-03-03T18:00:00Z: fixed, so that the same seed writes the same bytes on any day.
WALL_START = 1_741_024_800 * NANOS
UPTIME = 7 * 86_400 * NANOS + 5_417 * NANOS + 250_000_000
MINUTE_S = 60


@dataclass(frozen=True, slots=True)
class Timeline:
    """`seconds` ticks of one second each, cut into minutes; the last minute may be shorter."""

    seconds: int

    @property
    def start(self) -> int:
        return UPTIME

    @property
    def length_ns(self) -> int:
        return self.seconds * NANOS

    @property
    def minutes(self) -> int:
        return -(-self.seconds // MINUTE_S)

    def seconds_in(self, minute: int) -> int:
        return min(MINUTE_S, self.seconds - minute * MINUTE_S)

    def start_of(self, minute: int) -> int:
        return UPTIME + minute * MINUTE_S * NANOS

    def wall(self, time: int) -> int:
        return time - UPTIME + WALL_START
