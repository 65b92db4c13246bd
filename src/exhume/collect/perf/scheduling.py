"""The scheduling policy of threads that keep a core: a real-time one lets nobody else in."""

import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# A thread with half of a core or more in a tick keeps it.
KEEPS = 0.5
_REAL_TIME = frozenset((os.SCHED_FIFO, os.SCHED_RR, 6))
# A policy may carry this mark of what happens to children.
_RESET_ON_FORK = 0x40000000


class Scheduling(NamedTuple):
    """A thread's policy (Linux's number) and its real-time priority (0 for ordinary ones)."""

    policy: int
    rt_priority: int


def scheduling_of(tid: int) -> Scheduling | None:
    """How a thread is scheduled; None when it is gone. Two system calls, far cheaper than its file in /proc."""
    try:
        policy = os.sched_getscheduler(tid) & ~_RESET_ON_FORK
        return Scheduling(policy, os.sched_getparam(tid).sched_priority)
    except OSError:
        return None


def keepers(
    pids: npt.NDArray[np.int32],
    tids: npt.NDArray[np.int32],
    samples_per_core: float,
    ask: Callable[[int], Scheduling | None] = scheduling_of,
) -> dict[int, Scheduling]:
    """How the threads that keep a core are scheduled, by process; a real-time thread speaks for its process."""
    distinct, first, counts = np.unique(tids, return_index=True, return_counts=True)
    found: dict[int, Scheduling] = {}
    for place in np.flatnonzero(counts >= max(1.0, KEEPS * samples_per_core)).tolist():
        tid, pid = int(distinct[place]), int(pids[first[place]])
        scheduling = ask(tid) if tid > 0 else None
        if scheduling is not None and (pid not in found or scheduling.policy in _REAL_TIME):
            found[pid] = scheduling
    return found
