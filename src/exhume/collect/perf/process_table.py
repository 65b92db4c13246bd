"""Rows of the processes table: each sampled process once per segment, with the scheduling policy of threads that hold a
core, since a real-time policy lets no other task run."""

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from exhume.collect.containers.names import PodNames, has_pods
from exhume.collect.processes import ProcessReader
from exhume.collect.symbols.owners import UNKNOWN_OWNER, Owner, Owners, fair_level
from exhume.model.facts import MissingSource
from exhume.model.tables import Columns, Processes, to_columns
from exhume.procfs.host import Host

# A thread with this share of a core or more in a tick holds it.
KEEPS = 0.5
_REAL_TIME = frozenset((os.SCHED_FIFO, os.SCHED_RR, 6))
# This flag in a policy (SCHED_RESET_ON_FORK) concerns only the children.
_RESET_ON_FORK = 0x40000000


class Scheduling(NamedTuple):
    """A thread's policy (Linux's number) and its real-time priority (0 for ordinary threads)."""

    policy: int
    rt_priority: int


def scheduling_of(tid: int) -> Scheduling | None:
    """The scheduling of a thread; None when it has exited. Two system calls, far cheaper than its file in /proc."""
    try:
        policy = os.sched_getscheduler(tid) & ~_RESET_ON_FORK
        return Scheduling(policy, os.sched_getparam(tid).sched_priority)
    except OSError:
        return None


def keepers(
    pids: npt.NDArray[np.int32],
    tids: npt.NDArray[np.int32],
    samples_per_core: float,
    read: Callable[[int], Scheduling | None] = scheduling_of,
) -> dict[int, Scheduling]:
    """The scheduling of the threads that hold a core, by process; of several threads, a real-time one takes
    precedence."""
    least = max(1.0, KEEPS * samples_per_core)
    ordered = np.sort(tids)
    # As many equal numbers in a row; on most ticks there is no such thread.
    apart = math.ceil(least) - 1
    if len(tids) < least or not (ordered[apart:] == ordered[: len(tids) - apart]).any():
        return {}
    found_tids, first, counts = np.unique(tids, return_index=True, return_counts=True)
    found: dict[int, Scheduling] = {}
    for place in np.flatnonzero(counts >= least).tolist():
        tid, pid = int(found_tids[place]), int(pids[first[place]])
        scheduling = read(tid) if tid > 0 else None
        if scheduling is not None and (pid not in found or scheduling.policy in _REAL_TIME):
            found[pid] = scheduling
    return found


# Reading a process costs about 50 us; in a fork storm the rest waits for the next tick, if it lives that long.
DESCRIBED_PER_TICK = 64
KNOWN = 4096
_MAX_RELATIVES = 512
_NO_POD_NAMES = MissingSource(
    "pod-names",
    "there are pods, and kubelet's /var/log/pods can't be read: pods and containers have ids and no names",
    "mount the node's /var/log into the container (hostPath, read-only)",
)
_NO_KEEPERS: Mapping[int, Scheduling] = MappingProxyType({})


class ProcessRows:
    """Describes sampled processes from /proc; a process that has exited inherits its parent's cgroup."""

    def __init__(self, reader: ProcessReader, names: PodNames, owners: Owners) -> None:
        self._reader = reader
        self._names = names
        self._owners = owners
        self._deferred: Counter[Owner] = Counter()
        self._known: dict[int, Processes] = {}
        self._written: set[int] = set()

    def changed(self, pids: Iterable[int]) -> None:
        """Forget processes that are new, or run another program now."""
        for pid in pids:
            self._known.pop(pid, None)
            self._written.discard(pid)

    def forget(self) -> None:
        """Forget everything: any pid may have been reused."""
        self._known.clear()
        self._written.clear()

    def begin_segment(self) -> None:
        self._written.clear()

    def rows(
        self,
        time: int,
        seen: Iterable[tuple[int, int | None, str]],
        gone: Set[int],
        keepers: Mapping[int, Scheduling] = _NO_KEEPERS,
    ) -> Columns | None:
        """Rows for those of `seen` (pid, parent if known, name) that the segment does not have yet; `gone` have exited.
        `keepers` get another row when their scheduling changed."""
        if len(self._known) > KNOWN:
            self._known.clear()
        rows: list[Processes] = []
        seen = list(seen)
        known, written = self._known, self._written
        new = {pid: parent for pid, parent, _ in seen if pid not in gone and pid not in known and pid not in written}
        deferred = self._beyond_share(new) if len(new) > DESCRIBED_PER_TICK else ()
        for pid, parent, name in seen:
            row = self._known.get(pid)
            scheduling = keepers.get(pid)
            if row is not None and scheduling is not None and scheduling != (row.policy, row.rt_priority):
                row = self._known[pid] = replace(row, time=time, **scheduling._asdict())
                self._written.discard(pid)
            if pid in self._written:
                continue
            if row is None:
                if pid in gone:
                    row = Processes(time, pid)
                elif pid in deferred:
                    continue
                else:
                    row = Processes(time=time, **self._reader.describe(pid))
                if row.start is None:
                    self._inherit(row, parent, name)
                if scheduling is not None:
                    row = replace(row, **scheduling._asdict())
                self._known[pid] = row
            if row.pod is not None and (row.pod_name is None or row.container_name is None):
                # A name that was missing so far is looked up again for the next segment.
                row = self._known[pid] = self._named(row, row.pod, time)
            self._written.add(pid)
            rows.append(row)
        return to_columns("processes", rows) if rows else None

    def _beyond_share(self, parents: dict[int, int | None]) -> set[int]:
        """The new processes that must wait: each owner has a share of what is described in a tick. Children are charged
        to the owner of their parent, since there are fewer parents to look up."""
        relatives = list(dict.fromkeys(parent or pid for pid, parent in parents.items()))
        owners = {pid: self._owners.of(pid) for pid in relatives[:_MAX_RELATIVES]}
        owner_of = {pid: owners.get(parent or pid, UNKNOWN_OWNER) for pid, parent in parents.items()}
        level = fair_level(Counter(owner_of.values()).values(), DESCRIBED_PER_TICK)
        taken: Counter[Owner] = Counter()
        deferred: set[int] = set()
        for pid, owner in owner_of.items():
            taken[owner] += 1
            if taken[owner] > level:
                deferred.add(pid)
                self._deferred[owner] += 1
        return deferred

    def pods_without_names(self, host: Host) -> MissingSource | None:
        """What is missing when there are pods but no source of their names."""
        return None if self._names.readable or not has_pods(host) else _NO_POD_NAMES

    def take_deferred(self) -> list[tuple[Owner, int]]:
        """How many processes of each owner were deferred to a later tick since the last call."""
        deferred, self._deferred = self._deferred, Counter()
        return deferred.most_common()

    def _named(self, row: Processes, pod: str, time: int) -> Processes:
        """The row with the node's names for its pod and container."""
        names = self._names.of(pod, row.container, time)
        pod_name, container_name = names.pod or row.pod_name, names.container or row.container_name
        if (pod_name, container_name) == (row.pod_name, row.container_name):
            return row
        # A name that is only known now makes a row with the current time.
        return replace(row, time=time, pod_name=pod_name, container_name=container_name)

    def _inherit(self, row: Processes, parent: int | None, name: str) -> None:
        """Describe a process that has exited: its task records, and the cgroup of its parent."""
        row.comm, row.ppid = name, parent
        relative = self._known.get(parent) if parent is not None else None
        if relative is not None:
            row.cgroup, row.runtime = relative.cgroup, relative.runtime
            row.container, row.container_name = relative.container, relative.container_name
            row.pod, row.pod_name = relative.pod, relative.pod_name
