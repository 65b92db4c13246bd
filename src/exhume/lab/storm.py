"""A storm over zombies: one core spins in the kernel, as in the incident, and every pass visits all of them.

Which file does it is found by timing. Where reading memory.numa_stat walks all cgroups, reads are the storm, as a
kubelet's once were; elsewhere reads cost next to nothing, and reclaim is what walks.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.control.swap import swaps
from exhume.lab.hierarchies import MemoryHierarchy, find_memory_hierarchy
from exhume.lab.pins import PINS
from exhume.lab.processes import Started, spinner_on
from exhume.lab.traces import DEFAULT_WORK, Traces, labs_in
from exhume.lab.zombies import Progress
from exhume.model.errors import LabError, UsageError
from exhume.procfs.cpulist import online_cpus
from exhume.procfs.host import Host

# A read that walks takes 70 us for each zombie; one that doesn't takes 20 us, however many there are.
_SLOW_READ_S = 0.002
_PROBES = 3
LONGEST_S = 3600


@dataclass(frozen=True, slots=True)
class Storm:
    """A storm that is over: the file it went through, how often, and what it took of the core."""

    core: int
    file: Path
    zombies: int
    left: int
    passes: int
    longest_s: float
    elapsed_s: float
    system_s: float
    user_s: float


def raise_storm(
    core: int | None,
    seconds: float,
    *,
    work: Path | None = None,
    parent: str | None = None,
    progress: Progress | None = None,
) -> Storm:
    """Spin over the zombies of a lab, the newest unless it is named, on one core (the last unless said)."""
    if os.geteuid() != 0:
        raise LabError("a storm over zombies needs root")
    if not 0 < seconds <= LONGEST_S:
        raise UsageError(f"a storm may last up to {LONGEST_S} seconds")
    hierarchy = find_memory_hierarchy(Host())
    core = _usable_core(core)
    traces = _lab((work or DEFAULT_WORK).absolute(), parent)
    try:
        file, data = way_to_spin(hierarchy, traces.cgroup)
        if data and (reason := _freed_by_reclaim(traces.pin)):
            raise LabError(f"on this kernel the storm is made of reclaim, and {reason}; make zombies with --pin mlock")
        before = hierarchy.settled(traces.cgroup) - traces.zombies
        spinner = spinner_on(core, seconds, file, data)
        spun = _watch(spinner, traces, seconds, progress or (lambda done, total: None))
        left = hierarchy.own_zombies(traces.cgroup, before, expected=traces.zombies)
    finally:
        traces.unlock()
    return Storm(core, file, traces.zombies, left, **spun)


def way_to_spin(hierarchy: MemoryHierarchy, cgroup: Path) -> tuple[Path, str]:
    """The file that walks over every zombie, and what to write to it (nothing: it is read)."""
    reading, reclaiming = cgroup / "memory.numa_stat", cgroup / hierarchy.reclaim_file
    if reading.exists() and min(_time_to_read(reading) for _ in range(_PROBES)) >= _SLOW_READ_S:
        return reading, ""
    if not reclaiming.exists():
        raise LabError(f"{reading} is quick to read here and there is no {reclaiming.name}: nothing to spin with")
    return reclaiming, hierarchy.reclaim_input


def _freed_by_reclaim(pin: str) -> str:
    """Why reclaim would end these zombies rather than walk over them; empty when it wouldn't."""
    if PINS[pin].reclaimable:
        return f"that would free zombies pinned by {pin} at once"
    if pin == "tmpfs" and swaps(Host()):
        return "with swap on, that would swap out what pins them"
    return ""


def _watch(spinner: Started, traces: Traces, seconds: float, progress: Progress) -> dict[str, Any]:
    """Let it spin, written down so that it can be ended after kill -9 too; what it said at its end."""
    traces.processes.append(spinner.process)
    traces.save()
    try:
        spinner.send("spin\n")
        began = time.monotonic()
        while spinner.running:
            time.sleep(0.05)
            progress(min(int((time.monotonic() - began) * 1000), int(seconds * 1000)), int(seconds * 1000))
        said = next(spinner.lines(), "")
        complaint = spinner.complaint()
    finally:
        spinner.stop()
        traces.processes.remove(spinner.process)
        traces.save()
    if complaint:
        raise LabError(f"cannot spin: {complaint}")
    spun: dict[str, Any] = json.loads(said)
    return spun


def _usable_core(core: int | None) -> int:
    online = online_cpus(Host()) or sorted(os.sched_getaffinity(0))
    if core is None:
        return online[-1]
    if core not in online:
        raise UsageError(f"there is no core {core} here; the last one is {online[-1]}")
    return core


def _lab(work: Path, parent: str | None) -> Traces:
    """The lab to spin over, locked."""
    for directory in reversed(list(labs_in(work))):
        if parent is None or directory.name == parent:
            traces = Traces.read(directory)
            if traces is not None and traces.finished and traces.of_this_boot:
                if not traces.lock():
                    raise LabError(f"another process works on {directory}; wait for it to end")
                return traces
    raise LabError("there are no zombies to spin over; make some: exhume lab run zombies --count 20000 --pin tmpfs")


def _time_to_read(path: Path) -> float:
    """What it takes of a core: on a busy machine a quick read may have to wait for one."""
    began = time.thread_time()
    path.read_bytes()
    return time.thread_time() - began
