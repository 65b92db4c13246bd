"""Processes that live for less than a second, and the parents that keep starting them."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from exhume.diagnose.case import Case
from exhume.diagnose.rows import Mask
from exhume.model.clock import NANOS

BRIEF_NS = NANOS
# A shell starts a subshell that starts the command: as far up is looked for whoever keeps starting them.
_GENERATIONS = 4


@dataclass(frozen=True)
class Family:
    """The brief processes of a focus: their samples, their parents (pid and number of children, the busiest first),
    and the samples of those parents. `started_by` is whose child each brief one was, in the end."""

    brief: Mask
    parents: tuple[tuple[int, int], ...]
    of_parents: Mask
    started_by: Mapping[int, int]

    @property
    def everybody(self) -> Mask:
        return self.brief | self.of_parents

    def pids_of(self, parent: int) -> list[int]:
        """A parent and those that it started."""
        return [parent, *(pid for pid, starter in self.started_by.items() if starter == parent)]


def find_family(case: Case) -> Family:
    """Who was brief in the focus, and whose children they were."""
    sampled = case.sampled
    now = sampled.within(case.focus)
    nobody = np.zeros(len(sampled), np.bool_)
    parent_of = {
        pid: ppid for pid, ppid in case.now("processes").listed("pid", "ppid") if ppid is not None and ppid > 0
    }
    if not now.any():
        return Family(nobody, (), nobody, {})
    pids, members = np.unique(sampled.pid, return_inverse=True)
    first = np.full(len(pids), np.iinfo(np.int64).max)
    last = np.zeros(len(pids), np.int64)
    np.minimum.at(first, members, sampled.wall)
    np.maximum.at(last, members, sampled.wall)
    born = _born(case)
    # One that is sampled once may be as old as the node: only a process that is known to have begun here is brief.
    young = np.array([born(int(pid)) >= case.focus.since - NANOS for pid in pids], np.bool_)
    brief_pids = young & (last - first < BRIEF_NS) & (pids > 0)
    brief = brief_pids[members] & now
    short = set(pids[brief_pids & (first < case.focus.until) & (last >= case.focus.since)].tolist())
    started_by = {pid: _ancestor(pid, parent_of, short) for pid in short}
    counts = Counter(started_by.values())
    counts.pop(0, None)
    ranked = tuple(counts.most_common())
    of_parents = np.isin(sampled.pid, [pid for pid, _ in ranked]) & now & ~brief
    return Family(brief, ranked, of_parents, started_by)


def _born(case: Case) -> Callable[[int], int]:
    """The wall time at which a process began, or was first seen; 0 for one that the recording says nothing of."""
    rows = case.now("processes")
    told: dict[int, int] = {}
    for wall, moment, pid, start in rows.listed("wall", "time", "pid", "start"):
        # Both are of the boot's clock; one that was gone when it was asked about has no start, and was young.
        told[pid] = wall if start is None else wall - moment + start
    return lambda pid: told.get(pid, 0)


def _ancestor(pid: int, parent_of: Mapping[int, int], short: set[int]) -> int:
    """The nearest ancestor that isn't brief itself; 0 where it isn't known."""
    for _ in range(_GENERATIONS):
        pid = parent_of.get(pid, 0)
        if pid not in short:
            break
    return pid
