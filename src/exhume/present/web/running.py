"""Who ran in a stretch of time: processes and containers, ranked, with the cores that they ran on."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from exhume.model.window import Window
from exhume.present.web.shapes import ProcessesShape, ProcessShape
from exhume.store.read.profile import ProfileFilter
from exhume.store.read.recording import Recording
from exhume.store.read.stacks import codes, grouped

NamesById = Callable[[], Mapping[str, str]]
Sums = dict[tuple[str, int], dict[int, int]]
_PID_BITS, _CPU_BITS = 31, 16


def who_ran(
    recording: Recording,
    window: Window,
    wanted: ProfileFilter,
    limit: int,
    container_names: NamesById,
) -> ProcessesShape:
    """CPU time by process and by container."""
    sums = _sums(recording, window, wanted)
    known = _known(recording, window, container_names)
    total = sum(weight for cores in sums.values() for weight in cores.values())
    ranked = sorted(sums.items(), key=lambda each: -sum(each[1].values()))
    processes = [_shape(comm, pid, cores, known.get(pid, {}), total) for (comm, pid), cores in ranked[:limit]]
    return ProcessesShape(
        processes=processes,
        containers=_containers(ranked, known, total, limit),
        total_seconds=round(total / 1e6, 3),
        left_out=max(0, len(ranked) - limit),
    )


def _sums(recording: Recording, window: Window, wanted: ProfileFilter) -> Sums:
    sums: Sums = {}
    for _, rows in recording.selected(window, wanted, ["comm", "pid", "cpu", "weight_us"]):
        names, values = codes(rows.column("comm"))
        # Process numbers have 31 bits at most, cores 16: one key holds all three.
        pids, cpus = (rows.column(name).to_numpy().astype(np.int64) for name in ("pid", "cpu"))
        keys, members = grouped((names << _PID_BITS | np.maximum(pids, 0)) << _CPU_BITS | cpus)
        weights = np.bincount(members, rows.column("weight_us").to_numpy(), len(keys)).astype(np.int64)
        comms = values.to_pylist()
        for key, weight in zip(keys.tolist(), weights.tolist(), strict=True):
            pid, cpu = key >> _CPU_BITS & (1 << _PID_BITS) - 1, key & (1 << _CPU_BITS) - 1
            cores = sums.setdefault((comms[key >> _PID_BITS + _CPU_BITS], pid), {})
            cores[cpu] = cores.get(cpu, 0) + weight
    return sums


def _known(recording: Recording, window: Window, container_names: NamesById) -> dict[int, dict[str, Any]]:
    """What is known of each process; the last word counts, as a number is used again."""
    columns = ["time", "pid", "cmdline", "cgroup", "container", "pod", "pod_name", "container_name"]
    rows = recording.read("processes", window, columns).sort_by("time").to_pylist()
    known = {row["pid"]: row for row in rows}
    for kind in ("pod", "container"):
        # One process of a pod may have been told of before its name was there, and another after.
        names = {row[kind]: name for row in rows if (name := row[f"{kind}_name"])}
        for row in known.values():
            row[f"{kind}_name"] = names.get(row[kind])
    unnamed = [row for row in known.values() if row["container"] and not row["container_name"]]
    # Those of Docker may have been told long before this window: not every node has any to look for.
    of_docker = container_names() if unnamed else {}
    for row in unnamed:
        row["container_name"] = of_docker.get(row["container"])
    return known


def _shape(comm: str, pid: int | None, cores: dict[int, int], known: dict[str, Any], total: int) -> ProcessShape:
    used = sum(cores.values())
    return ProcessShape(
        comm=comm,
        pid=pid,
        cmdline=known.get("cmdline"),
        container=known.get("container"),
        container_name=known.get("container_name"),
        pod=known.get("pod"),
        pod_name=known.get("pod_name"),
        cgroup=known.get("cgroup"),
        share=round(used / max(1, total), 5),
        seconds=round(used / 1e6, 3),
        per_cpu=[(cpu, round(weight / 1e6, 3)) for cpu, weight in sorted(cores.items(), key=lambda each: -each[1])],
    )


def _containers(
    ranked: list[tuple[tuple[str, int], dict[int, int]]], known: dict[int, dict[str, Any]], total: int, limit: int
) -> list[ProcessShape]:
    sums: dict[str, dict[int, int]] = {}
    facts: dict[str, dict[str, Any]] = {}
    for (_, pid), cores in ranked:
        told = known.get(pid, {})
        container = told.get("container")
        if not container:
            continue
        facts.setdefault(container, told | {"cmdline": None})
        into = sums.setdefault(container, {})
        for cpu, weight in cores.items():
            into[cpu] = into.get(cpu, 0) + weight
    # Those that are not shown are not shaped.
    most = sorted(sums.items(), key=lambda each: -sum(each[1].values()))[:limit]
    return [
        _shape(facts[container].get("container_name") or container[:12], None, cores, facts[container], total)
        for container, cores in most
    ]
