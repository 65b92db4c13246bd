"""Processes and containers ranked by CPU time, with the cores that they ran on.

A busy node runs millions of processes in a day: they are summed and ranked as arrays, and only those that are shown
become objects.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.present.web.handle import BoundQuery, RecordingHandle
from exhume.present.web.params import ProcessesParams, Refusal
from exhume.present.web.schemas import ProcessesShape, ProcessShape, Reply, json_reply
from exhume.store.read.recording import RecordedPod
from exhume.store.read.stacks import factorize, unique_inverse

Ints = npt.NDArray[np.int64]
# Process numbers have 31 bits at most, cores 16; one key holds the command, too.
_PID_BITS, _CPU_BITS = 31, 16
_PIDS, _CPUS = (1 << _PID_BITS) - 1, (1 << _CPU_BITS) - 1
_MAX_COMMS = 1 << 16
# Rows that are kept before equal ones are summed.
_FOLD_ROWS = 1_000_000
_COLUMNS = ["time", "pid", "cmdline", "cgroup", "container", "pod", "pod_name", "container_name"]


def processes(handle: RecordingHandle, params: ProcessesParams) -> Reply:
    """CPU time by process and by container, the most first, with the cores that they ran on."""
    query = BoundQuery.of(handle, params)
    query.check_samples("ranking reads every sample")
    sums = _Sums()
    for _, rows in query.recording.samples(query.window, query.filter, ["comm", "pid", "cpu", "weight_us"]):
        sums.add(rows)
    sums.fold()
    known = _Known(query.recording.read("processes", query.window, _COLUMNS), handle.container_names, handle.pods)
    total = int(sums.weights.sum())
    by_process, left_out = _rank(sums.keys >> _CPU_BITS, sums, params.limit)
    container, containers = known.containers_of(sums.keys >> _CPU_BITS & _PIDS)
    by_container, _ = _rank(container, sums, params.limit, container >= 0)
    shape: ProcessesShape = {
        "processes": [
            _shape(sums.comms[key >> _PID_BITS], key & _PIDS, cores, known.row(key & _PIDS), total)
            for key, cores in by_process
        ],
        "containers": [],
        "total_seconds": round(total / 1e6, 3),
        "left_out": left_out,
    }
    for code, cores in by_container:
        row = known.row_of_container(containers[code])
        # What holds a pod together has no name of its own, nor has what lived for an instant.
        short = containers[code][:12]
        unnamed = f"{row['pod_name']}/{short}" if row["pod_name"] else short
        shape["containers"].append(_shape(row["container_name"] or unnamed, None, cores, row, total))
    return json_reply(shape)


class _Sums:
    """CPU time in microseconds by command, process and core."""

    def __init__(self) -> None:
        self.keys: Ints = np.zeros(0, np.int64)
        self.weights: Ints = np.zeros(0, np.int64)
        self._comms: dict[str, int] = {}
        self._parts: list[tuple[Ints, Ints]] = []
        self._rows = 0

    @property
    def comms(self) -> list[str]:
        return list(self._comms)

    def add(self, rows: pa.Table) -> None:
        """Add samples. Raises Refusal where they have too many names."""
        names, values = factorize(rows.column("comm"))
        ids = np.array([self._comms.setdefault(name, len(self._comms)) for name in values.to_pylist()], np.int64)
        if len(self._comms) > _MAX_COMMS:
            raise Refusal(413, f"over {_MAX_COMMS:,} names of threads in this time: choose a shorter one, or a filter")
        pids, cpus = (rows.column(name).to_numpy().astype(np.int64) for name in ("pid", "cpu"))
        keys, members = unique_inverse((ids[names] << _PID_BITS | np.maximum(pids, 0)) << _CPU_BITS | cpus)
        weights = np.bincount(members, rows.column("weight_us").to_numpy(), len(keys)).astype(np.int64)
        self._parts.append((keys, weights))
        self._rows += len(keys)
        if self._rows > _FOLD_ROWS + len(self.keys):
            self.fold()

    def fold(self) -> None:
        """Sum equal keys."""
        parts = [(self.keys, self.weights), *self._parts]
        keys, weights = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        self.keys, members = unique_inverse(keys)
        self.weights = np.bincount(members, weights, len(self.keys)).astype(np.int64)
        self._parts, self._rows = [], 0


class _Known:
    """The newest row of each process (a pid is used again), with the names of its container and pod."""

    def __init__(
        self,
        rows: pa.Table,
        container_names: Callable[[], Mapping[str, str]],
        pods: Callable[[], Mapping[str, RecordedPod]],
    ) -> None:
        rows = rows.sort_by("time")
        pids = rows.column("pid").to_numpy()
        # The last one of equal pids.
        self._pids, places = np.unique(pids[::-1], return_index=True)
        self._rows = rows.take(pa.array(len(pids) - 1 - places))
        # One process of a pod may have been recorded before its name was known, and another after.
        self._names = {kind: _names(rows, kind) for kind in ("pod", "container")}
        unnamed = {each for each in pc.unique(self._rows.column("container")).to_pylist() if each}
        if unnamed - self._names["container"].keys():
            # Names of Docker's may have been logged long before this window.
            self._names["container"] = {**container_names(), **self._names["container"]}
        in_pods = any(pc.unique(self._rows.column("pod")).to_pylist())
        self._pods = pods() if in_pods else {}
        self._names["pod"] = {uid: pod.name for uid, pod in self._pods.items()} | self._names["pod"]

    def row(self, pid: int) -> dict[str, Any]:
        """What is known of a process; nothing where it was not recorded."""
        place = int(np.searchsorted(self._pids, pid))
        return self._named(place) if place < len(self._pids) and self._pids[place] == pid else {}

    def row_of_container(self, container: str) -> dict[str, Any]:
        """What is known of a process of a container, without its command line."""
        place = pc.index(self._rows.column("container"), container).as_py()
        return self._named(place) | {"cmdline": None}

    def containers_of(self, pids: Ints) -> tuple[Ints, list[str]]:
        """For each pid the place of its container in the list, -1 where it has none."""
        encoded = self._rows.column("container").combine_chunks().dictionary_encode()
        names: list[str] = encoded.dictionary.to_pylist()
        of_row = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        of_row = np.array([-1 if not name else place for place, name in enumerate(names)] + [-1], np.int64)[of_row]
        if not len(self._pids):
            return np.full(len(pids), -1, np.int64), names
        places = np.minimum(np.searchsorted(self._pids, pids), len(self._pids) - 1)
        return np.where(self._pids[places] == pids, of_row[places], -1), names

    def _named(self, place: int) -> dict[str, Any]:
        row: dict[str, Any] = self._rows.slice(place, 1).to_pylist()[0]
        for kind, names in self._names.items():
            row[f"{kind}_name"] = names.get(row[kind])
        known = self._pods.get(row["pod"] or "")
        row["owner"] = known.owner if known is not None else None
        return row


def _names(rows: pa.Table, kind: str) -> dict[str, str]:
    named = rows.select([kind, f"{kind}_name"]).group_by([kind, f"{kind}_name"], use_threads=False).aggregate([])
    return {row[kind]: row[f"{kind}_name"] for row in named.to_pylist() if row[f"{kind}_name"]}


def _rank(
    groups: Ints, sums: _Sums, limit: int, among: npt.NDArray[np.bool_] | None = None
) -> tuple[list[tuple[int, list[tuple[int, int]]]], int]:
    """The groups with the most CPU time, each with its (core, microseconds), the most first; and how many are left
    out."""
    weights, cpus = sums.weights, sums.keys & _CPUS
    if among is not None:
        groups, weights, cpus = groups[among], weights[among], cpus[among]
    keys, members = unique_inverse(groups)
    order = np.argsort(-np.bincount(members, weights, len(keys)), kind="stable")[:limit]
    rank = np.full(len(keys), -1, np.int64)
    rank[order] = np.arange(len(order))
    ranks = rank[members]
    shown = ranks >= 0
    # All groups at once: one after the other took a quarter of the answer.
    pairs, members = unique_inverse(ranks[shown] << _CPU_BITS | cpus[shown])
    used = np.bincount(members, weights[shown], len(pairs)).astype(np.int64)
    # Both sorts are stable: cores with as much time stay in the order in which they were seen.
    by_rank = np.lexsort((-used, pairs >> _CPU_BITS))
    pairs, used = pairs[by_rank], used[by_rank]
    ranked = list(zip((pairs & _CPUS).tolist(), used.tolist(), strict=True))
    edges = np.searchsorted(pairs >> _CPU_BITS, np.arange(len(order) + 1)).tolist()
    found = [(int(keys[place]), ranked[a:b]) for place, (a, b) in zip(order.tolist(), pairwise(edges), strict=True)]
    return found, max(0, len(keys) - limit)


def _shape(
    comm: str, pid: int | None, cores: list[tuple[int, int]], known: Mapping[str, Any], total: int
) -> ProcessShape:
    used = sum(weight for _, weight in cores)
    return {
        "comm": comm,
        "pid": pid,
        "cmdline": known.get("cmdline"),
        "container": known.get("container"),
        "container_name": known.get("container_name"),
        "pod": known.get("pod"),
        "pod_name": known.get("pod_name"),
        "owner": known.get("owner"),
        "cgroup": known.get("cgroup"),
        "share": round(used / max(1, total), 5),
        "seconds": round(used / 1e6, 3),
        "per_cpu": [(cpu, round(weight / 1e6, 3)) for cpu, weight in cores],
    }
