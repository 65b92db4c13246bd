"""Removing all that labs and scenarios left behind, also those whose process was killed."""

import contextlib
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from exhume.control.files import lock_directory
from exhume.lab.hierarchies import MemoryHierarchy, find_memory_hierarchy, remove_below
from exhume.lab.leftovers import Leftovers, left_in
from exhume.lab.pins import take_down
from exhume.lab.traces import DEFAULT_WORK, Traces, labs_in
from exhume.model.errors import LabError
from exhume.procfs.host import Host

_COUNTED_LATE_S = 5.0


@dataclass(slots=True)
class Cleaned:
    """What became of the labs of a work directory: those removed, the runs of scenarios removed, those that a process
    still works on, mounts that go when their users end, and what could not be removed and why. `zombies`
    is how many memory cgroups of the machine were dying before and are after it; None where that can't be counted."""

    removed: list[Traces] = field(default_factory=list)
    runs: list[Path] = field(default_factory=list)
    busy: list[Path] = field(default_factory=list)
    used: list[Path] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    zombies: tuple[int, int] | None = None


def clean(work: Path) -> Cleaned:
    """Remove every lab, and every run of a scenario, below a work directory that no process works on."""
    cleaned = Cleaned()
    for directory in left_in(work.absolute()):
        try:
            _clean_run(directory, cleaned)
        except LabError as error:
            cleaned.failed.append(str(error))
    found = list(labs_in(work.absolute()))
    hierarchy, before = _counted() if found else (None, 0)
    freed = 0
    for directory in found:
        try:
            freed += _clean_one(directory, cleaned, hierarchy)
        except LabError as error:
            cleaned.failed.append(str(error))
        except OSError as error:
            cleaned.failed.append(f"{error.filename or directory}: {error.strerror}")
    if hierarchy:
        with contextlib.suppress(LabError):
            cleaned.zombies = before, hierarchy.settled(hierarchy.root, before - freed if freed else None, before)
    return cleaned


def _clean_run(directory: Path, cleaned: Cleaned) -> None:
    leftovers = Leftovers.read(directory)
    if leftovers is None:
        return
    if not leftovers.take():
        cleaned.busy.append(directory)
        return
    # A scenario may have a lab of zombies in its directory.
    for lab in labs_in(directory):
        _clean_one(lab, cleaned)
    failed = leftovers.undo()
    cleaned.failed += failed
    if not failed:
        cleaned.runs.append(directory)


def _counted() -> tuple[MemoryHierarchy | None, int]:
    """The memory cgroups and how many of them are zombies; None where that can't be counted."""
    try:
        hierarchy = find_memory_hierarchy(Host())
        return hierarchy, hierarchy.dying(hierarchy.root)
    except LabError:
        return None, 0


def _clean_one(directory: Path, cleaned: Cleaned, hierarchy: MemoryHierarchy | None = None) -> int:
    """How many zombies nothing of the lab holds any more, as far as is known: the kernel lets them go soon."""
    lock = lock_directory(directory)
    if lock < 0:
        cleaned.busy.append(directory)
        return 0
    try:
        traces = Traces.read(directory)
        if traces is None:
            # Killed before anything but the directory was made.
            shutil.rmtree(directory)
            return 0
        had = _zombies_of(traces, hierarchy) if hierarchy and traces.of_this_boot else 0
        used = remove(traces)
        cleaned.used += used
        cleaned.removed.append(traces)
        return 0 if used else had
    finally:
        os.close(lock)


def _zombies_of(traces: Traces, hierarchy: MemoryHierarchy) -> int:
    """How many a lab has now. One that was killed doesn't know; of another, some may have gone since. The kernel
    counts pages late, so of what was just made the lab itself knows more."""
    if traces.finished and time.time() - traces.path.stat().st_mtime < _COUNTED_LATE_S:
        return traces.zombies
    try:
        pages = hierarchy.residual_pages(traces.cgroup)
        return hierarchy.dying(traces.cgroup) if pages is None else pages
    except (OSError, LabError):
        # Its cgroup is not made yet, or gone.
        return 0


def release(traces: Traces) -> list[Path]:
    """Let the zombies of a lab go; its cgroup and its files stay. Returns mounts that are still used by someone."""
    if not traces.of_this_boot:
        return []
    for process in traces.processes:
        if not process.kill():
            raise LabError(f"process {process.pid} doesn't end: it is stuck in the kernel")
    return take_down(traces.directory)


def remove(traces: Traces) -> list[Path]:
    """Remove a lab. The list of its traces goes last, so that a second attempt knows what is left.

    Returns mounts that are still used by someone.
    """
    used = release(traces)
    if traces.of_this_boot:
        remove_below(traces.cgroup, traces.cgroup_inode)
    for entry in traces.directory.iterdir():
        if entry != traces.path:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.rmtree(traces.directory)
    traces.unlock()
    if traces.directory.parent == DEFAULT_WORK:
        # Another lab may still be in it.
        with contextlib.suppress(OSError):
            DEFAULT_WORK.rmdir()
    return used
