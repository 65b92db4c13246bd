"""Real zombie memory cgroups on demand: removed directories whose kernel objects stay, by each kind of pin.

Everything lies below one cgroup and one directory of the lab's own, and is written down before it is made.
"""

import json
import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from exhume.lab import clean
from exhume.lab.hierarchies import MemoryHierarchy, find_memory_hierarchy
from exhume.lab.pins import PINS, PinFiles
from exhume.lab.processes import Started, holder_of, maker_of_zombies
from exhume.lab.programs.zombie_maker import Order
from exhume.lab.stage import refuse_without_room
from exhume.lab.traces import DEFAULT_WORK, Traces
from exhume.model.errors import LabError, UsageError
from exhume.procfs.host import Host

DEFAULT_PARENT = "exhume-lab"
# A swap entry keeps the number of its cgroup in 16 bits, so there can't be more of these than such numbers.
MOST_SWAPPED = 60_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}")
_NAMES_AT_MOST = 1000
# Zombies of others that may have come while a lab was open.
_OTHERS = 50
# A kernel that reclaims by itself (DAMON, kswapd) takes one now and then before all are made; others' cgroups come and
# go. Where nearly all are there it is worth another try, where the kernel doesn't keep them it is not.
_ATTEMPTS = 4
_NEARLY_ALL = 0.9

Progress = Callable[[int, int], None]


def make_zombies(
    count: int, pin: str, *, work: Path | None = None, parent: str | None = None, progress: Progress | None = None
) -> "ZombieLab":
    """Make exactly so many zombies, pinned in this way. Raises LabError when this machine can't; nothing is left then.
    Where one or another went before all were made, they are made again.

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
                # Only now: Ctrl-C, too, leaves nothing half-made.
                undo.pop_all()
            break
        except _MiscountedError as error:
            if not left or error.made < count * _NEARLY_ALL:
                raise
    return lab


class _MiscountedError(LabError):
    """So many are there, and they are not as many as were made."""

    def __init__(self, count: int, made: int) -> None:
        super().__init__(
            f"{count:,} zombies were made, but {made:,} are there: this kernel doesn't keep them, "
            "or other cgroups came and went meanwhile"
        )
        self.made = made


class ZombieLab:
    """Zombies of one kind below one parent. `made` is how many there were, counted, when they were all made."""

    def __init__(self, hierarchy: MemoryHierarchy, work: Path, pin: str, count: int, parent: str | None) -> None:
        self._hierarchy = hierarchy
        self.made = 0
        self._holder: Started | None = None
        with ExitStack() as resources:
            resources.enter_context(hierarchy.alone())
            self._traces = self._claim(work, pin, parent)
            self._resources = resources.pop_all()
        self._stage = PinFiles(self._traces.directory, PINS[pin], count)
        self._before = 0
        self._maker_ran = False

    @property
    def pin(self) -> str:
        return self._traces.pin

    @property
    def parent(self) -> Path:
        """The cgroup that the zombies were made below of."""
        return self._traces.cgroup

    @property
    def directory(self) -> Path:
        """Where its files and mounts are."""
        return self._traces.directory

    @property
    def files(self) -> list[Path]:
        """The files whose pages pin (for metadata: the directories)."""
        return self._stage.files

    @property
    def holder_pid(self) -> int | None:
        """The process that keeps the file in memory, if the pin has one."""
        return self._holder.process.pid if self._holder else None

    def pinned(self, expected: int | None = None) -> int:
        """How many of its zombies there are now. The kernel is late to let go of those that nothing holds any more:
        where there should be `expected`, that is waited for."""
        return self._hierarchy.own_zombies(self.parent, self._before, expected)

    def make(self, progress: Progress) -> None:
        self._stage.set_up()
        self._before = self._hierarchy.settled(self.parent)
        self._run_maker(progress)
        self._stage.settle()
        if self._stage.pin.held:
            self._hold()
        self.made = self._hierarchy.own_zombies(self.parent, self._before, expected=self._stage.count)
        if self.made != self._stage.count:
            raise _MiscountedError(self._stage.count, self.made)
        self._traces.zombies, self._traces.finished = self.made, True
        self._traces.save()

    def free(self) -> int:
        """Take the pins away; how many zombies are left."""
        clean.release(self._traces)
        self._forget_holder()
        return self._hierarchy.own_zombies(self.parent, self._before, expected=0)

    def keep(self) -> None:
        """Leave everything in place when this process ends; `clean` removes it one day."""
        self._traces.unlock()
        self._resources.close()

    def close(self) -> None:
        """Remove everything."""
        with self._resources:
            clean.remove(self._traces)
            self._forget_holder()
            if self._hierarchy.version == 1 and self._maker_ran:
                # The next lab counts the whole machine too: let the kernel be done with these first.
                most = self._before + self._stage.count
                self._hierarchy.settled(self._hierarchy.root, expected=self._before + _OTHERS, before=most)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _claim(self, work: Path, pin: str, parent: str | None) -> Traces:
        """A directory and a cgroup of one name, both new."""
        names = [parent] if parent else [DEFAULT_PARENT, *(f"{DEFAULT_PARENT}-{n}" for n in range(2, _NAMES_AT_MOST))]
        for name in names:
            cgroup = self._hierarchy.root / name
            if cgroup.exists():
                continue
            try:
                traces = Traces.begin(work / name, pin, cgroup, self._hierarchy.version)
            except FileExistsError:
                continue
            except OSError as error:
                raise LabError(
                    f"cannot write to {work}: {error.strerror}; choose another directory with --work"
                ) from None
            with ExitStack() as undo:
                undo.callback(clean.remove, traces)
                cgroup.mkdir()
                traces.cgroup_inode = cgroup.stat().st_ino
                traces.save()
                self._hierarchy.prepare(cgroup)
                undo.pop_all()
            return traces
        raise LabError(
            f"the cgroup or the lab {names[0]} exists already; choose another --parent, or run exhume lab clean"
        )

    def _run_maker(self, progress: Progress) -> None:
        home = self._hierarchy.home_below(self.parent)
        order = Order(
            parent=os.fspath(self.parent),
            home=os.fspath(home),
            join=self._hierarchy.join_file,
            reclaim=self._hierarchy.reclaim_file,
            reclaim_input=self._hierarchy.reclaim_input,
            pin=self.pin,
            files=os.fspath(self._stage.files_directory),
            first=0,
            count=self._stage.count,
        )
        self._maker_ran = True
        maker = maker_of_zombies()
        self._started(maker)
        try:
            maker.send(json.dumps(order))
            for line in maker.lines():
                progress(int(line), self._stage.count)
            complaint = maker.complaint()
        finally:
            maker.stop()
        if complaint:
            raise LabError(f"cannot make zombies pinned by {self.pin}: {complaint}")

    def _hold(self) -> None:
        holder = holder_of(self.files[0], self.pin)
        self._started(holder)
        holder.send("hold\n")
        if next(holder.lines(), "") != "holding":
            raise LabError(f"cannot keep {self.files[0]} in memory: {holder.complaint()}")
        self._holder = holder

    def _forget_holder(self) -> None:
        if self._holder is not None:
            self._holder.stop()
            self._holder = None

    def _started(self, program: Started) -> None:
        self._traces.processes.append(program.process)
        self._traces.save()
