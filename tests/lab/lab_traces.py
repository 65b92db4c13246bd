"""What a lab may leave on a machine, looked for without the lab's own code."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from exhume.collect.cgroup.layout import find_v1, find_v2, hierarchies
from exhume.procfs.host import Host


def memory_root() -> Path:
    layout = hierarchies(Host())
    found = find_v1(layout, "memory") or find_v2(layout)
    assert found is not None
    return found.path


@dataclass(frozen=True)
class Left:
    """Cgroups, mounts, swaps, loop devices, files and processes that have to do with a directory or a name."""

    cgroups: tuple[str, ...]
    mounts: tuple[str, ...]
    swaps: tuple[str, ...]
    loops: tuple[str, ...]
    files: tuple[str, ...]
    processes: tuple[str, ...]


NOTHING = Left((), (), (), (), (), ())


def left_by(work: Path, parent: str) -> Left:
    # Only whole paths: others' labs have names that begin alike.
    where, cgroup = str(work), str(memory_root() / parent)
    return Left(
        cgroups=tuple(entry.name for entry in memory_root().iterdir() if entry.name == parent),
        mounts=tuple(line for line in Path("/proc/self/mountinfo").read_text().splitlines() if where in line),
        swaps=tuple(line for line in Path("/proc/swaps").read_text().splitlines() if where in line),
        loops=tuple(str(file) for file in Path("/sys/block").glob("loop*/loop/backing_file") if where in text_of(file)),
        files=tuple(map(str, work.rglob("*"))),
        processes=tuple(f"{pid} {line}" for pid, line in command_lines() if where in line or cgroup in line),
    )


def left_in_the_end(work: Path, parent: str) -> Left:
    """The same once what others delay is over: a process that looks for a free loop device has the lab's open for a
    moment, and it stays while any process has it open."""
    deadline = time.monotonic() + 30
    while (left := left_by(work, parent)) != NOTHING and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def command_lines() -> list[tuple[int, str]]:
    """Every other process with its command line."""
    entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = [(int(entry.name), text_of(entry / "cmdline")) for entry in entries]
    return [(pid, line) for pid, line in found if pid != os.getpid()]


def text_of(file: Path) -> str:
    try:
        return file.read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""
