"""Removing all that labs left behind, also those whose process was killed."""

import contextlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from exhume.lab.memory_hierarchy import remove_below
from exhume.lab.mounts import is_mounted
from exhume.lab.pins import take_down
from exhume.lab.traces import DEFAULT_WORK, Traces, labs_in
from exhume.model.errors import LabError


@dataclass(slots=True)
class Cleaned:
    """What became of the labs of a work directory: those removed, those that a process still works on, and what could
    not be removed and why."""

    removed: list[Traces] = field(default_factory=list)
    busy: list[Path] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def clean(work: Path) -> Cleaned:
    """Remove every lab below a work directory that no process works on."""
    cleaned = Cleaned()
    for directory in labs_in(work):
        try:
            traces = Traces.read(directory)
            if traces is None:
                # Killed before anything but the directory was made.
                shutil.rmtree(directory)
            elif not traces.lock():
                cleaned.busy.append(directory)
            else:
                remove(traces)
                cleaned.removed.append(traces)
        except (LabError, OSError) as error:
            cleaned.failed.append(str(error))
    return cleaned


def release(traces: Traces) -> None:
    """Let the zombies of a lab go; its cgroup and its files stay."""
    if traces.of_this_boot:
        for process in traces.processes:
            if not process.kill():
                raise LabError(f"process {process.pid} doesn't end; it is stuck in the kernel")
        take_down(traces.directory)


def remove(traces: Traces) -> None:
    """Remove one lab: the list of its traces goes last, so that a second attempt knows what is left."""
    release(traces)
    if traces.of_this_boot:
        remove_below(traces.cgroup, traces.cgroup_inode)
    for mount in (traces.directory / "tmpfs", traces.directory / "ext4"):
        if is_mounted(mount):
            raise LabError(f"{mount} is still mounted")
    for entry in traces.directory.iterdir():
        if entry.name != "traces.json":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    shutil.rmtree(traces.directory)
    traces.unlock()
    if traces.directory.parent == DEFAULT_WORK:
        # Another lab may still be in it.
        with contextlib.suppress(OSError):
            DEFAULT_WORK.rmdir()
