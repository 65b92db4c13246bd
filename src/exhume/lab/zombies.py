"""Make real zombie memory cgroups on demand: removed directories whose kernel objects stay, by each kind of pin; and a
storm over them: one core spins in the kernel, as in the incident, and every pass visits all of them.

Everything lies below one cgroup and one directory of the lab, and is in the journal before it is created.
"""

import json
import os
import re
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from exhume.control.swap import swaps
from exhume.lab.hierarchies import MemoryHierarchy, find_memory_hierarchy
from exhume.lab.leftovers import DEFAULT_WORK, Leftovers, ZombieCgroup, left_in
from exhume.lab.pins import PINS, PinFiles, Progress
from exhume.lab.stage import Started, refuse_without_room
from exhume.model.errors import LabError, UsageError
from exhume.procfs.cpulist import online_cpus
from exhume.procfs.host import Host

DEFAULT_PARENT = "exhume-lab"
# A swap entry stores its cgroup's id in 16 bits, which limits the number of these zombies.
MOST_SWAPPED = 60_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}")
_NAMES_AT_MOST = 1000
# Zombies of others that may have come while a lab was open.
_OTHERS = 50
# A kernel that reclaims by itself (DAMON, kswapd) sometimes takes a few before all are made, and cgroups of others come
# and go. If nearly all are there, another attempt is worthwhile; if the kernel doesn't keep them, it is not.
_ATTEMPTS = 4
_NEARLY_ALL = 0.9
# A read that walks takes 70 us per zombie; one that doesn't takes 20 us in all, however many there are.
_SLOW_READ_S = 0.002
_PROBES = 3
LONGEST_S = 3600


def make_zombies(
    count: int, pin: str, *, work: Path | None = None, parent: str | None = None, progress: Progress | None = None
) -> "ZombieLab":
    """Make exactly this many zombies with this kind of pin. If some went before all were made, they are made again.
    Raises LabError if this machine can't; then nothing is left behind.

    While the lab is open, other labs on the machine wait: on v1 only all zombies together can be counted.
    """
    if pin not in PINS:
        raise UsageError(f"{pin!r} is no kind of pin: choose {', '.join(PINS)}")
    if parent is not None and not _NAME.fullmatch(parent):
        raise UsageError(f"{parent!r} can't name a cgroup of the lab: use letters, digits, - and _")
    if os.geteuid() != 0:
        raise LabError("making zombies needs root")
    if PINS[pin].swapped and count > MOST_SWAPPED:
        raise LabError(f"the kernel has 65,535 numbers for cgroups in swap; ask for at most {MOST_SWAPPED:,}")
    hierarchy = find_memory_hierarchy(Host())
    work = (work or DEFAULT_WORK).absolute()
    refuse_without_room(count, PinFiles(work, PINS[pin], count).disk_bytes, work)
    for left in reversed(range(_ATTEMPTS)):
        try:
            with ExitStack() as undo:
                lab = undo.enter_context(ZombieLab(hierarchy, work, pin, count, parent))
                lab.make(progress or (lambda done, total: None))
                # Only now, so that Ctrl-C leaves nothing half-made either.
                undo.pop_all()
            break
        except _MiscountedError as error:
            if not left or error.made < count * _NEARLY_ALL:
                raise
    return lab


class _MiscountedError(LabError):
    """The number of zombies counted differs from the number made."""

    def __init__(self, count: int, made: int) -> None:
        super().__init__(
            f"{count:,} zombies were made, but {made:,} are there: this kernel doesn't keep them, "
            "or other cgroups came and went meanwhile"
        )
        self.made = made


class ZombieLab:
    """Zombies with one kind of pin below one cgroup, `parent`. `made` is their number, counted when all of them were
    made."""

    def __init__(self, hierarchy: MemoryHierarchy, work: Path, pin: str, count: int, parent: str | None) -> None:
        self.pin, self.made = pin, 0
        self._hierarchy, self._count, self._before = hierarchy, count, 0
        self._holder: Started | None = None
        self._maker_ran = False
        with ExitStack() as resources:
            resources.enter_context(hierarchy.alone())
            self._leftovers = self._claim(work, parent)
            self._resources = resources.pop_all()

    def _claim(self, work: Path, parent: str | None) -> Leftovers:
        """Claim a directory and a cgroup with the same name, both new."""
        names = [parent] if parent else [DEFAULT_PARENT, *(f"{DEFAULT_PARENT}-{n}" for n in range(2, _NAMES_AT_MOST))]
        for name in names:
            self.directory, self.parent = work / name, self._hierarchy.root / name
            if not self.parent.exists() and not self.directory.exists():
                break
        else:
            raise LabError(
                f"the cgroup or the lab {names[0]} exists already; choose another --parent, or run exhume lab clean"
            )
        self._files = PinFiles(self.directory, PINS[self.pin], self._count)
        leftovers = Leftovers.begin(self.directory)
        with ExitStack() as undo:
            undo.callback(leftovers.undo)
            leftovers.add(ZombieCgroup(os.fspath(self.parent), self.pin))
            self.parent.mkdir()
            leftovers.add(ZombieCgroup(os.fspath(self.parent), self.pin, self.parent.stat().st_ino))
            self._hierarchy.prepare(self.parent)
            undo.pop_all()
        return leftovers

    @property
    def files(self) -> list[Path]:
        """The files whose pages are the pins (for metadata: the directories)."""
        return self._files.files

    @property
    def holder_pid(self) -> int | None:
        """The process that keeps the file in memory, if the pin has one."""
        return self._holder.process.pid if self._holder else None

    def pinned(self, expected: int | None = None) -> int:
        """The current number of its zombies. The kernel is late to release those without a pin: if there should be
        `expected`, wait for that."""
        return self._hierarchy.own_zombies(self.parent, self._before, expected)

    def make(self, progress: Progress) -> None:
        self._files.set_up(self._leftovers)
        self._before = self._hierarchy.settled(self.parent)
        self._maker_ran = True
        self._files.make_zombies(self._leftovers, self._hierarchy, self.parent, progress)
        if self._files.pin.held:
            self._holder = Started(self._leftovers, "memory.hold_file", self.pin, self.files[0])
            self._holder.send("hold\n")
            if next(self._holder.lines(), "") != "holding":
                raise LabError(f"cannot keep {self.files[0]} in memory: {self._holder.complaint()}")
        self.made = self.pinned(self._count)
        if self.made != self._count:
            raise _MiscountedError(self._count, self.made)
        self._leftovers.add(ZombieCgroup(os.fspath(self.parent), self.pin, self.parent.stat().st_ino, self.made))

    def free(self) -> int:
        """Remove the pins; return how many zombies are left."""
        self._forget_holder()
        pins = [each for each in self._leftovers.changes if not isinstance(each, ZombieCgroup)]
        if failed := self._leftovers.undo_some(pins, []):
            raise LabError("; ".join(failed))
        return self.pinned(0)

    def keep(self) -> None:
        """Leave everything in place when this process ends; a later `clean` removes it."""
        self._leftovers.release()
        self._resources.close()

    def close(self) -> None:
        """Remove everything."""
        with self._resources:
            self._forget_holder()
            if failed := self._leftovers.undo():
                raise LabError("; ".join(failed))
            if self._hierarchy.version == 1 and self._maker_ran:
                # The next lab counts the whole machine too: let the kernel finish with these first.
                most = self._before + self._count
                self._hierarchy.settled(self._hierarchy.root, expected=self._before + _OTHERS, before=most)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _forget_holder(self) -> None:
        if self._holder is not None:
            self._holder.close()
            self._holder = None


@dataclass(frozen=True, slots=True)
class Storm:
    """A storm that is over: the file it read or wrote, how many times, and how much of the core it took."""

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
    """Spin over the zombies of a lab (the newest by default) on one core (the last by default)."""
    if os.geteuid() != 0:
        raise LabError("a storm over zombies needs root")
    if not 0 < seconds <= LONGEST_S:
        raise UsageError(f"a storm may last up to {LONGEST_S} seconds")
    hierarchy = find_memory_hierarchy(Host())
    online = online_cpus(Host()) or sorted(os.sched_getaffinity(0))
    core = online[-1] if core is None else core
    if core not in online:
        raise UsageError(f"there is no core {core} here; the last one is {online[-1]}")
    leftovers, zombies = _lab((work or DEFAULT_WORK).absolute(), parent)
    try:
        cgroup = Path(zombies.path)
        file, data = way_to_spin(hierarchy, cgroup)
        if data and (reason := _freed_by_reclaim(zombies.pin)):
            raise LabError(f"on this kernel the storm is made of reclaim, and {reason}; make zombies with --pin mlock")
        before = hierarchy.settled(cgroup) - zombies.made
        with closing(Started(leftovers, "files.spin", core, seconds, file, data)) as spinner:
            spinner.send("spin\n")
            began = time.monotonic()
            while spinner.running:
                time.sleep(0.05)
                if progress is not None:
                    progress(min(int((time.monotonic() - began) * 1000), int(seconds * 1000)), int(seconds * 1000))
            line = next(spinner.lines(), "")
            if complaint := spinner.complaint():
                raise LabError(f"cannot spin: {complaint}")
        left = hierarchy.own_zombies(cgroup, before, expected=zombies.made)
    finally:
        leftovers.release()
    return Storm(core, file, zombies.made, left, **json.loads(line))


def way_to_spin(hierarchy: MemoryHierarchy, cgroup: Path) -> tuple[Path, str]:
    """Find by timing the file that walks over every zombie, and what to write to it (empty: it is read). If reading
    memory.numa_stat walks all cgroups, reads are the storm, as they once were for kubelet; on other kernels reads cost
    next to nothing, and reclaim walks."""
    reading, reclaiming = cgroup / "memory.numa_stat", cgroup / hierarchy.reclaim_file
    if reading.exists() and min(_time_to_read(reading) for _ in range(_PROBES)) >= _SLOW_READ_S:
        return reading, ""
    if not reclaiming.exists():
        raise LabError(f"{reading} is quick to read here and there is no {reclaiming.name}: nothing to spin with")
    return reclaiming, hierarchy.reclaim_input


def _time_to_read(path: Path) -> float:
    """The CPU time of a read: on a busy machine, even a quick read may have to wait for a core."""
    began = time.thread_time()
    path.read_bytes()
    return time.thread_time() - began


def _freed_by_reclaim(pin: str) -> str:
    """Why reclaim would free these zombies rather than walk over them; empty if it wouldn't."""
    if PINS[pin].reclaimable:
        return f"that would free zombies pinned by {pin} at once"
    return "with swap on, that would swap out what pins them" if pin == "tmpfs" and swaps(Host()) else ""


def _lab(work: Path, parent: str | None) -> tuple[Leftovers, ZombieCgroup]:
    """Find and lock the lab to spin over."""
    for directory in reversed(left_in(work)):
        if parent is None or directory.name == parent:
            leftovers = Leftovers.read(directory)
            if leftovers.zombies is not None and leftovers.zombies.made:
                if not leftovers.take():
                    raise LabError(f"another process works on {directory}; wait for it to end")
                return leftovers, leftovers.zombies
    raise LabError("there are no zombies to spin over; make some: exhume lab run zombies --count 20000 --pin tmpfs")
