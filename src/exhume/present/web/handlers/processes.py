"""CPU time by process, program, container or pod: by core, in the kernel, over time, and compared with the time
before.

A busy node runs millions of processes in a day: they are summed and ranked as arrays, and only the ones shown become
Python objects.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.present.web.handle import BoundQuery, RecordingHandle
from exhume.present.web.params import Grouping, ProcessesParams, Refusal
from exhume.present.web.schemas import ProcessesShape, ProcessShape, Reply, json_reply
from exhume.store.format.names import SegmentName
from exhume.store.read.profile import IN_KERNEL
from exhume.store.read.recording import RecordedPod
from exhume.store.read.stacks import factorize, unique_inverse

Ints = npt.NDArray[np.int64]
# pids have at most 31 bits and core numbers 16; the rest of a 64-bit key holds the command.
_PID_BITS, _CPU_BITS = 31, 16
_PIDS, _CPUS = (1 << _PID_BITS) - 1, (1 << _CPU_BITS) - 1
_MAX_COMMS = 1 << 16
# Rows buffered before equal keys are summed.
_FOLD_ROWS = 1_000_000
# The use over time is given for 2^5 parts of the window.
_PART_BITS = 5
_PARTS = 1 << _PART_BITS
# The time before is as long as the window, but bounded: long enough to show what is usual, short enough to read
# quickly.
_LEAST_BEFORE_NS, _MOST_BEFORE_NS = 60 * NANOS, 600 * NANOS
_COLUMNS = ["time", "pid", "cmdline", "cgroup", "container", "pod", "pod_name", "container_name"]


def processes(handle: RecordingHandle, params: ProcessesParams) -> Reply:
    """CPU time by group, greatest first: its cores, its kernel part, its course over time, and the time before."""
    query = BoundQuery.of(handle, params)
    query.check_samples("ranking reads every sample")
    recording, window = query.recording, query.window
    use = _Use(window)
    for name, rows in recording.samples(window, query.filter, ["comm", "pid", "cpu", "weight_us", IN_KERNEL]):
        use.add(name, rows)
    length = min(max(window.nanos, _LEAST_BEFORE_NS), _MOST_BEFORE_NS)
    before = Window(window.since - length, window.since).clamp(handle.span())
    if not before.empty:
        for _, rows in recording.samples(before, query.filter, ["comm", "pid", "weight_us"]):
            use.add_before(rows)
    use.fold()
    known = _Known(
        recording.read("processes", Window(before.since, window.until), _COLUMNS), handle.container_names, handle.pods
    )
    ranking = _Ranking(use, known.groups(params.by), params.limit)
    shape: ProcessesShape = {
        "by": params.by,
        "processes": _shapes(ranking, known, params.by, use, before),
        "total_seconds": round(use.total / 1e6, 3),
        "seconds": round(window.seconds, 3),
        "before_seconds": round(before.seconds, 3),
        "left_out": ranking.left_out,
    }
    return json_reply(shape)


class _Sums:
    """Sums by key, of one or more values."""

    def __init__(self, values: int) -> None:
        self.keys: Ints = np.zeros(0, np.int64)
        self.values: Ints = np.zeros((values, 0), np.int64)
        self._parts: list[tuple[Ints, Ints]] = []
        self._rows = 0

    def add(self, keys: Ints, *values: npt.NDArray[Any]) -> None:
        self._parts.append(_summed(keys, values))
        self._rows += len(self._parts[-1][0])
        if self._rows > _FOLD_ROWS + len(self.keys):
            self.fold()

    def fold(self) -> None:
        """Sum equal keys."""
        parts = [(self.keys, self.values), *self._parts]
        keys = np.concatenate([part[0] for part in parts])
        self.keys, self.values = _summed(keys, list(np.concatenate([part[1] for part in parts], axis=1)))
        self._parts, self._rows = [], 0


def _summed(keys: Ints, values: Sequence[npt.NDArray[Any]]) -> tuple[Ints, Ints]:
    distinct, members = unique_inverse(keys)
    # bincount adds in float64, which is exact up to 2^53 us.
    return distinct, np.stack([np.bincount(members, each, len(distinct)) for each in values]).astype(np.int64)


class _Use:
    """CPU time in microseconds by command and process: on each core (total and kernel), in each part of the window,
    and in the time before."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.by_core, self.by_part, self.before = _Sums(2), _Sums(1), _Sums(1)
        self._comms: dict[str, int] = {}

    @property
    def comms(self) -> list[str]:
        return list(self._comms)

    @property
    def total(self) -> int:
        return int(self.by_core.values[0].sum())

    def add(self, segment: SegmentName, rows: pa.Table) -> None:
        """Add samples of the window. Raises Refusal if they have too many command names."""
        keys, weights = self._processes(rows), rows.column("weight_us").to_numpy()
        cpus, in_kernel = rows.column("cpu").to_numpy().astype(np.int64), rows.column(IN_KERNEL).to_numpy()
        self.by_core.add(keys << _CPU_BITS | cpus, weights, weights * in_kernel)
        since = rows.column("time_ms").to_numpy() * MILLIS + segment.offset - self.window.since
        parts = np.clip(since * _PARTS // max(1, self.window.nanos), 0, _PARTS - 1)
        self.by_part.add(keys << _PART_BITS | parts, weights)

    def add_before(self, rows: pa.Table) -> None:
        """Add samples of the time before."""
        self.before.add(self._processes(rows), rows.column("weight_us").to_numpy())

    def fold(self) -> None:
        for sums in (self.by_core, self.by_part, self.before):
            sums.fold()

    def _processes(self, rows: pa.Table) -> Ints:
        """The command and pid of each row, packed into one integer."""
        names, values = factorize(rows.column("comm"))
        ids = np.array([self._comms.setdefault(name, len(self._comms)) for name in values.to_pylist()], np.int64)
        if len(self._comms) > _MAX_COMMS:
            raise Refusal(413, f"over {_MAX_COMMS:,} names of threads in this time: choose a shorter one, or a filter")
        pids = rows.column("pid").to_numpy().astype(np.int64)
        keys: Ints = ids[names] << _PID_BITS | np.maximum(pids, 0)
        return keys


class _Ranking:
    """The groups with the most CPU time, in descending order, as parallel columns. `group_of` maps packed commands and
    pids to groups."""

    def __init__(self, use: _Use, group_of: Callable[[Ints], Ints], limit: int) -> None:
        keys, (weights, in_kernel) = use.by_core.keys, use.by_core.values
        groups, members = unique_inverse(group_of(keys >> _CPU_BITS))
        order = np.argsort(-np.bincount(members, weights, len(groups)), kind="stable")[:limit]
        self._groups: Ints = groups[order]
        self._ascending = np.argsort(self._groups, kind="stable")
        self.left_out = max(0, len(groups) - limit)
        ranks = self._ranks(group_of(keys >> _CPU_BITS))
        shown = ranks >= 0
        ranks, keys, weights = ranks[shown], keys[shown], weights[shown]
        self.used, self.in_kernel = self._sum(ranks, weights), self._sum(ranks, in_kernel[shown])
        self.cores = self._cores(ranks, keys & _CPUS, weights)
        self.processes = np.bincount(
            unique_inverse(ranks << _PID_BITS | keys >> _CPU_BITS & _PIDS)[0] >> _PID_BITS, minlength=len(self)
        )
        # The command and process with the most CPU time in each group: sorted by weight, the last assignment wins.
        by_weight = np.argsort(weights, kind="stable")
        self.largest: Ints = np.zeros(len(self), np.int64)
        self.largest[ranks[by_weight]] = keys[by_weight] >> _CPU_BITS
        parts = self._ranks(group_of(use.by_part.keys >> _PART_BITS))
        shown = parts >= 0
        places = parts[shown] << _PART_BITS | use.by_part.keys[shown] & _PARTS - 1
        over_time = np.bincount(places, use.by_part.values[0][shown], len(self) << _PART_BITS)
        self.over_time = over_time.reshape(len(self), _PARTS)
        earlier = self._ranks(group_of(use.before.keys))
        self.before = self._sum(earlier[earlier >= 0], use.before.values[0][earlier >= 0])

    def __len__(self) -> int:
        return len(self._groups)

    def _ranks(self, groups: Ints) -> Ints:
        """The rank of each group, -1 if it is not shown."""
        if not len(self):
            return np.full(len(groups), -1, np.int64)
        ascending = self._groups[self._ascending]
        at = np.minimum(np.searchsorted(ascending, groups), len(ascending) - 1)
        return np.where(ascending[at] == groups, self._ascending[at], -1)

    def _sum(self, ranks: Ints, values: Ints) -> Ints:
        return np.bincount(ranks, values, len(self)).astype(np.int64)

    def _cores(self, ranks: Ints, cpus: Ints, weights: Ints) -> list[list[tuple[int, float]]]:
        """The (core, seconds) pairs of each group, in descending order."""
        # All groups at once: processing them one by one took a quarter of the request.
        pairs, (used,) = _summed(ranks << _CPU_BITS | cpus, [weights])
        # Both sorts are stable: cores with equal time stay in the order in which they were seen.
        by_rank = np.lexsort((-used, pairs >> _CPU_BITS))
        pairs, used = pairs[by_rank], used[by_rank]
        ranked = list(zip((pairs & _CPUS).tolist(), np.round(used / 1e6, 3).tolist(), strict=True))
        edges = np.searchsorted(pairs >> _CPU_BITS, np.arange(len(self) + 1)).tolist()
        return [ranked[a:b] for a, b in pairwise(edges)]


class _Known:
    """The newest row of each pid (pids are reused), with the names of its container and pod."""

    def __init__(
        self,
        rows: pa.Table,
        container_names: Callable[[], Mapping[str, str]],
        pods: Callable[[], Mapping[str, RecordedPod]],
    ) -> None:
        rows = rows.sort_by("time")
        pids = rows.column("pid").to_numpy()
        # Reversed, so that np.unique finds the last of equal pids.
        self._pids, places = np.unique(pids[::-1], return_index=True)
        self._rows = rows.take(pa.array(len(pids) - 1 - places))
        # Of the processes of a pod, one may have been recorded before its name was known, another after.
        self._names = {kind: _names(rows, kind) for kind in ("pod", "container")}
        unnamed = {each for each in pc.unique(self._rows.column("container")).to_pylist() if each}
        if unnamed - self._names["container"].keys():
            # Names of Docker containers may have been logged long before this window.
            self._names["container"] = {**container_names(), **self._names["container"]}
        in_pods = any(pc.unique(self._rows.column("pod")).to_pylist())
        self._pods = pods() if in_pods else {}
        self._names["pod"] = {uid: pod.name for uid, pod in self._pods.items()} | self._names["pod"]

    def rows(self, pids: Ints) -> list[dict[str, Any]]:
        """The known fields of each process; empty for one that was not recorded."""
        places = self._places(pids)
        shown = places >= 0
        found = iter(self._rows.take(pa.array(places[shown])).to_pylist())
        return [self._named(next(found)) if each else {} for each in shown.tolist()]

    def groups(self, by: Grouping) -> Callable[[Ints], Ints]:
        """A function from packed commands and pids to group numbers; everything outside containers or pods is one
        group."""
        if by == "process":
            return lambda keys: keys
        if by == "program":
            return lambda keys: keys >> _PID_BITS
        encoded = self._rows.column(by).combine_chunks().dictionary_encode()
        names = encoded.dictionary.to_pylist()
        of_row = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        # An empty name means none; the extra last entry is for processes without a row.
        of_row = np.array([place if name else -1 for place, name in enumerate(names)] + [-1], np.int64)[of_row]
        return lambda keys: np.append(of_row, -1)[self._places(keys & _PIDS)]

    def _places(self, pids: Ints) -> Ints:
        """The row index of each process, -1 if there is none."""
        if not len(self._pids):
            return np.full(len(pids), -1, np.int64)
        at = np.minimum(np.searchsorted(self._pids, pids), len(self._pids) - 1)
        return np.where(self._pids[at] == pids, at, -1)

    def _named(self, row: dict[str, Any]) -> dict[str, Any]:
        for kind, names in self._names.items():
            row[f"{kind}_name"] = names.get(row[kind])
        known = self._pods.get(row["pod"] or "")
        row["owner"] = known.owner if known is not None else None
        return row


def _names(rows: pa.Table, kind: str) -> dict[str, str]:
    named = rows.select([kind, f"{kind}_name"]).group_by([kind, f"{kind}_name"], use_threads=False).aggregate([])
    return {row[kind]: row[f"{kind}_name"] for row in named.to_pylist() if row[f"{kind}_name"]}


def _shapes(ranking: _Ranking, known: _Known, by: Grouping, use: _Use, before: Window) -> list[ProcessShape]:
    comms, total = use.comms, max(1, use.total)
    part_ms = max(use.window.nanos / _PARTS / MILLIS, 1e-9)
    # Microseconds per millisecond are thousandths of a core.
    over_time = np.rint(ranking.over_time / part_ms).astype(np.int64).tolist()
    columns = (ranking.largest, ranking.processes, ranking.used, ranking.in_kernel, ranking.before)
    numbers = zip(*(column.tolist() for column in columns), strict=True)
    found: list[ProcessShape] = []
    for row, cores, course, (largest, many, used, in_kernel, earlier) in zip(
        known.rows(ranking.largest & _PIDS), ranking.cores, over_time, numbers, strict=True
    ):
        one = by == "process" or (by == "program" and many == 1)
        in_container, in_pod = one or by == "container", one or by in {"container", "pod"}
        container, pod = row.get("container") if in_container else None, row.get("pod") if in_pod else None
        found.append(
            {
                "comm": comms[largest >> _PID_BITS] if one or by == "program" else _title(by, row),
                "pid": largest & _PIDS if one else None,
                "processes": many,
                "cmdline": row.get("cmdline") if one else None,
                "container": container,
                "container_name": row.get("container_name") if container else None,
                "pod": pod,
                "pod_name": row.get("pod_name") if pod else None,
                "owner": row.get("owner") if pod else None,
                "cgroup": row.get("cgroup") if one or container else None,
                "share": round(used / total, 5),
                "seconds": round(used / 1e6, 3),
                "kernel_seconds": round(in_kernel / 1e6, 3),
                "before_seconds": None if before.empty else round(earlier / 1e6, 3),
                "per_cpu": cores,
                "over_time": course,
            }
        )
    return found


def _title(by: Grouping, row: Mapping[str, Any]) -> str:
    """The name of a container or pod; a pod's sandbox has no name of its own, nor do short-lived containers."""
    if not row.get(by):
        return f"not in a {by}"
    short: str = row[by][:12]
    if by == "pod":
        return row["pod_name"] or short
    return row["container_name"] or (f"{row['pod_name']}/{short}" if row["pod_name"] else short)
