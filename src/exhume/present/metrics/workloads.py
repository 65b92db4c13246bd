"""CPU time, direct reclaim and throttling by workload: a pod, or the unit, container or cgroup of a process.

CPU time comes from stack samples: they show how much of a pod's time was spent in direct reclaim, which the kernel
counts for no cgroup. Operators look at 15% of it.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from exhume.collect.containers.identity import identify
from exhume.collect.symbols.owners import accounted_cgroup
from exhume.diagnose.counting import DIRECT_RECLAIM
from exhume.model.clock import NANOS
from exhume.model.tables import Columns
from exhume.model.text import path_pattern
from exhume.present.metrics.values import Labels, Ranking

_MOST_PROCESSES, _MOST_PODS, _MOST_STACKS = 8192, 1024, 8192
_LONGEST_PATH = 256
_RANKED_BY_CPU = 0.01
_FLUSH_TICKS = 10


class _Place(NamedTuple):
    """The workload of a cgroup: the uid of its pod, else the pattern of its service, container or path."""

    pod: str | None
    cgroup: str


@lru_cache(maxsize=1024)
def _place_of(cgroup: str) -> _Place:
    """The workload of a cgroup path; cached, as dozens of processes start each second, most of them in the same few
    cgroups."""
    identity = identify(cgroup)
    if identity is not None and identity.pod is not None:
        return _Place(identity.pod, "")
    return _Place(None, path_pattern(accounted_cgroup(cgroup)[:_LONGEST_PATH]))


class Workloads:
    """Three counters per workload: throttled, sampled and reclaiming seconds. Workloads are ranked by trouble; CPU
    time alone has little weight."""

    def __init__(self) -> None:
        self.ranking = Ranking(width=3, labels=3)
        self._process: dict[int, _Place] = {}
        self._pod: dict[str, tuple[str, str]] = {}
        # Frames and stacks are identified by content hashes, which are the same in every segment.
        self._frames: set[int] = set()
        self._stacks: dict[int, None] = {}
        self._sorted: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._samples: list[Columns] = []
        self._ticks = 0

    def take(self, rows: Mapping[str, Sequence[Columns]]) -> None:
        """Process the relevant tables of a tick."""
        for columns in rows.get("processes", ()):
            self._learn_processes(columns)
        for columns in rows.get("events", ()):
            self._learn_pods(columns)
        for columns in rows.get("frames", ()):
            self._learn_frames(columns)
        for columns in rows.get("stacks", ()):
            self._learn_stacks(columns)
        self._samples += rows.get("samples", ())
        self._ticks += 1
        if self._ticks % _FLUSH_TICKS == 0:
            self._flush()
        for columns in rows.get("throttling", ()):
            for cgroup, throttled_ns in zip(columns["cgroup"], columns["throttled_ns"], strict=True):
                seconds = throttled_ns / NANOS
                self.ranking.add((seconds, 0.0, 0.0), seconds, *self.labels_of(cgroup))

    def labels_of(self, cgroup: str) -> Labels:
        """The namespace, pod and cgroup labels of a workload: for a pod the first two, with its uid if its name is
        unknown."""
        return self._labels(_place_of(cgroup))

    def _labels(self, place: "_Place") -> Labels:
        return ("", "", place.cgroup) if place.pod is None else (*self._pod.get(place.pod, ("", place.pod)), "")

    def _learn_processes(self, columns: Columns) -> None:
        self._learn_pods(columns)
        known, pids = self._process, columns["pid"]
        for pid, cgroup in zip(pids, columns.get("cgroup") or [None] * len(pids), strict=True):
            # A pid that appears again replaces the old entry: pids are reused.
            known.pop(pid, None)
            if cgroup:
                known[pid] = _place_of(cgroup)
        # Trimmed once per tick: hundreds of processes may have started in it.
        _bound(known, _MOST_PROCESSES)

    def _learn_pods(self, columns: Columns) -> None:
        if not columns.get("pod") or not columns.get("pod_name"):
            return
        # Most processes of a tick are in the same few pods, or in none, so distinct pairs are enough.
        for pod, pod_name in dict.fromkeys(zip(columns["pod"], columns["pod_name"], strict=True)):
            if pod and pod_name:
                namespace, _, name = pod_name.rpartition("/")
                self._pod[pod] = namespace, name
        _bound(self._pod, _MOST_PODS)

    def _learn_frames(self, columns: Columns) -> None:
        for frame, kind, name in zip(columns["frame"], columns["kind"], columns["name"], strict=True):
            if name in DIRECT_RECLAIM and kind == "kernel":
                self._frames.add(int(frame))

    def _learn_stacks(self, columns: Columns) -> None:
        if not self._frames:
            return
        before = len(self._stacks)
        for stack, frames in zip(columns["stack"], columns["frames"], strict=True):
            if not self._frames.isdisjoint(frames):
                self._stacks[int(stack)] = None
        if len(self._stacks) != before:
            _bound(self._stacks, _MOST_STACKS)
            self._sorted = np.sort(np.fromiter(self._stacks, np.uint64, len(self._stacks)))

    def _flush(self) -> None:
        """Count the samples of several ticks at once: grouping by process takes as long for one tick as for several."""
        if not self._samples:
            return
        pids, weights = (np.concatenate([each[name] for each in self._samples]) for name in ("pid", "weight_us"))
        inside = None
        if len(self._sorted):
            stacks = np.concatenate([each["stack"] for each in self._samples]).astype(np.uint64)
            at = np.minimum(np.searchsorted(self._sorted, stacks), len(self._sorted) - 1)
            inside = self._sorted[at] == stacks
        self._samples = []
        # Counting needs a sort, summing would need an argsort. The weight of a sample changes only with the sampling
        # rate.
        seconds: dict[int, list[float]] = {}
        alike = len(weights) > 0 and bool((weights == weights[0]).all())
        for weight in [int(weights[0])] if alike else np.unique(weights).tolist():
            chosen = slice(None) if alike else weights == weight
            _count(seconds, 0, pids[chosen], weight / 1e6)
            if inside is not None:
                _count(seconds, 1, pids[chosen][inside[chosen]], weight / 1e6)
        # Kernel threads and unknown processes share one entry: no workload is responsible for them.
        nothing = _Place(None, "/")
        sums: dict[_Place, list[float]] = {}
        for pid, (cpu_s, reclaim_s) in seconds.items():
            total = sums.setdefault(self._process.get(pid, nothing), [0.0, 0.0])
            total[0] += cpu_s
            total[1] += reclaim_s
        for found, (cpu_s, reclaim_s) in sums.items():
            self.ranking.add((0.0, cpu_s, reclaim_s), reclaim_s + cpu_s * _RANKED_BY_CPU, *self._labels(found))


def _count(seconds: dict[int, list[float]], place: int, pids: npt.NDArray[np.int32], each: float) -> None:
    """Add the samples of processes to one of their two sums."""
    found, counts = np.unique(pids, return_counts=True)
    for pid, count in zip(found.tolist(), counts.tolist(), strict=True):
        seconds.setdefault(pid, [0.0, 0.0])[place] += count * each


def _bound(known: dict[int, _Place] | dict[str, tuple[str, str]] | dict[int, None], most: int) -> None:
    """Evict the oldest entries beyond a limit."""
    while len(known) > most:
        del known[next(iter(known))]  # type: ignore[arg-type]
