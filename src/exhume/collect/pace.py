"""Pacing for reads that aren't cheap everywhere: the dearer a read turned out to be, the longer until the next.

A table of 30,000 mounts or 100,000 cgroups must not make the recorder the load that it is looking for.
"""

import time

from exhume.model.clock import NANOS


class Pace:
    """When a slow read is due: every `every_s` seconds, or less often to stay below `share` of a core."""

    def __init__(self, every_s: float = 10.0, share: float = 0.001) -> None:
        self._every = int(every_s * NANOS)
        self._share = share
        self._due = 0
        self._began = 0

    def due(self, now: int) -> bool:
        """Whether to read at `now` (monotonic nanoseconds); the cost is taken from here until `done`."""
        if now < self._due:
            return False
        self._began = time.thread_time_ns()
        return True

    def done(self, now: int) -> None:
        cost = time.thread_time_ns() - self._began
        self._due = now + max(self._every, int(cost / self._share))
