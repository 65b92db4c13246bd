"""How many memory cgroups were made, where no tracepoint tells.

The kernel numbers the directories and files of a v1 hierarchy in the order in which they are made, so between two looks
the number of the newest directory advances by as many steps as cgroups were made, each step being a directory and its
files. The recorder makes no directory of its own to probe with; it reads the newest of those that are there. Cgroups
made after that one and gone already show up once a later one stays: the count may come late, but it misses none.
"""

import os

from exhume.collect.cgroups import MemoryHierarchy
from exhume.collect.source import NOTHING, TickRows
from exhume.model.clock import Tick
from exhume.model.errors import SourceUnavailable


class ChurnSource:
    """Rows of cgroup_events with op `churn`; goes by the walks of the cgroups source, which must be read first."""

    name = "cgroup-churn"

    def __init__(self, memory: MemoryHierarchy | None) -> None:
        if memory is None:
            raise SourceUnavailable(
                self.name,
                "cgroups of v2 can't be counted by their numbers",
                "mount tracefs at /sys/kernel/tracing, with CAP_PERFMON or root",
            )
        self._memory = memory
        self._walks = memory.walks
        self._newest = 0

    def read(self, tick: Tick) -> TickRows:
        if self._memory.walks == self._walks:
            return NOTHING
        self._walks = self._memory.walks
        inode, path = self._memory.tree.newest
        before, self._newest = self._newest, max(inode, self._newest)
        hierarchy = self._memory.hierarchy_id
        if not before or inode <= before or hierarchy is None:
            return NOTHING
        made = cgroups_between(before, inode, _files_in(path))
        if not made:
            return NOTHING
        return {
            "cgroup_events": {"time": [tick.start], "hierarchy": [hierarchy], "op": ["churn"], "created": [made]},
        }

    def close(self) -> None:
        """Nothing is held open."""


def cgroups_between(before: int, now: int, files: int) -> int | None:
    """Cgroups made while the newest directory's number went from one to the other, with so many files in each.

    None when the numbers began again (above 32 bits is the round that they are in), or when nothing can be told.
    """
    if files <= 0 or now <= before or now >> 32 != before >> 32:
        return None
    return round((now - before) / (files + 1))


def _files_in(path: str) -> int:
    try:
        with os.scandir(path) as entries:
            return sum(1 for entry in entries if not entry.is_dir(follow_symlinks=False))
    except OSError:
        return 0
