"""Removing all that labs and scenarios left behind, also those whose process was killed."""

import contextlib
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from exhume.collect.host import Host
from exhume.lab.leftovers import Leftovers, left_in
from exhume.lab.memory_hierarchy import MemoryHierarchy, find_memory_hierarchy, remove_below
from exhume.lab.pins import take_down
from exhume.lab.traces import DEFAULT_WORK, Traces, labs_in, lock_directory
from exhume.model.errors import LabError


@dataclass(slots=True)
class Cleaned:
    """What became of the labs of a work directory: those removed, the runs of scenarios removed, those that a process
    still works on, mounts that go only when whoever uses them lets go, and what could not be removed and why. `zombies`
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
    hierarchy = _hierarchy() if found else None
    before = hierarchy.dying(hierarchy.root) if hierarchy else 0
    for directory in found:
        try:
            _clean_one(directory, cleaned)
        except LabError as error:
            cleaned.failed.append(str(error))
        except OSError as error:
            cleaned.failed.append(f"{error.filename or directory}: {error.strerror}")
    if hierarchy:
        freed = sum(traces.zombies for traces in cleaned.removed if traces.of_this_boot)
        cleaned.zombies = before, hierarchy.settled(hierarchy.root, expected=before - freed)
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


def _hierarchy() -> MemoryHierarchy | None:
    try:
        return find_memory_hierarchy(Host())
    except LabError:
        return None


def _clean_one(directory: Path, cleaned: Cleaned) -> None:
    lock = lock_directory(directory)
    if lock < 0:
        cleaned.busy.append(directory)
        return
    try:
        traces = Traces.read(directory)
        if traces is None:
            # Killed before anything but the directory was made.
            shutil.rmtree(directory)
        else:
            cleaned.used += remove(traces)
            cleaned.removed.append(traces)
    finally:
        os.close(lock)


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
