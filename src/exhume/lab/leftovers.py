"""A journal of what the lab creates on the machine, written before it is created: `lab clean` removes it even after
kill -9.

Each run has a directory with a journal, which is locked while a process works on it; the kernel releases the lock when
that process dies. Everything may be gone already: undo is idempotent.
"""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from exhume.collect.cgroup.dying import count_below
from exhume.control.files import lock_directory
from exhume.control.journal import FILE, Change, Journal, JournalError
from exhume.control.swap import is_on, swap_off
from exhume.lab.hierarchies import MemoryHierarchy, find_memory_hierarchy
from exhume.lab.mounts import detach, mount_points, unmount
from exhume.lab.programs.keeper import end_marked
from exhume.model.clock import read_boot_id
from exhume.model.errors import LabError
from exhume.model.text import count
from exhume.procfs.host import Host
from exhume.procfs.pid_stat import parse_pid_stat

DEFAULT_WORK = Path("/var/lib/exhume-lab")
_ASIDE = ".exhume-lab-"
# On a busy machine a killed process takes seconds to end.
_PATIENCE_S = 30.0
_COUNTED_LATE_S = 5.0
_RELEASED_S = 5.0

# Undoing adds mounts that a process still uses to the list: their pages are freed when that process releases them.
LabChange = Change[list[Path]]


@dataclass(frozen=True)
class Process(LabChange):
    """A process with its whole process group, by pid and start time (in ticks since boot), as a pid may be reused."""

    pid: int
    started: int
    kind: ClassVar[str] = "process"

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """The process with a pid; None if there is none, or only a zombie process."""
        try:
            stat = parse_pid_stat(Path(f"/proc/{pid}/stat").read_bytes())
        except OSError:
            return None
        return None if stat is None or stat.state in ("Z", "X") else cls(pid, stat.start)

    @property
    def alive(self) -> bool:
        return Process.of(self.pid) == self

    def undo(self, used: list[Path]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                # The pid of a group stays in use while the group has a member.
                leads = os.getpgid(self.pid) == self.pid
                (os.killpg if leads else os.kill)(self.pid, signal.SIGKILL)
        while self.alive:
            if time.monotonic() > deadline:
                raise LabError(f"process {self.pid} doesn't end: it is stuck in the kernel")
            time.sleep(0.005)


@dataclass(frozen=True)
class _AtPath(LabChange):
    path: str


class OwnCgroup(_AtPath):
    """A cgroup of the lab, with the cgroups below it and the processes in them."""

    kind = "cgroup"

    def undo(self, used: list[Path]) -> None:
        path = Path(self.path)
        deadline = time.monotonic() + _PATIENCE_S
        while path.is_dir():
            for pid in _members(path):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                _remove_cgroup(path)
            except LabError:
                # A process that was just killed is a member until it is gone.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


@dataclass(frozen=True)
class ZombieCgroup(LabChange):
    """The cgroup in which zombies are made; its name is arbitrary. `inode` is 0 until it is known to be created by the
    lab: a different cgroup with that name is left alone. `made` is 0 until all zombies are made and counted."""

    path: str
    pin: str
    inode: int = 0
    made: int = 0
    kind: ClassVar[str] = "zombies"

    def undo(self, used: list[Path]) -> None:
        path = Path(self.path)
        if not self.inode:
            with contextlib.suppress(OSError):
                path.rmdir()
        elif path.is_dir() and path.stat().st_ino == self.inode:
            _remove_cgroup(path)


class OwnMount(_AtPath):
    """All mounts at a path, including stacked ones."""

    kind = "mount"

    def undo(self, used: list[Path]) -> None:
        if not unmount(Path(self.path)):
            used.append(Path(self.path))


class LoopImage(_AtPath):
    """The backing file of a loop device."""

    kind = "loop"

    def undo(self, used: list[Path]) -> None:
        detach(Path(self.path))


class Swapfile(_AtPath):
    """A file that is used as swap; swapped-out memory of others returns to RAM."""

    kind = "swap"

    def undo(self, used: list[Path]) -> None:
        try:
            if is_on(Host(), self.path):
                swap_off(self.path)
        except OSError as error:
            raise LabError(f"{self.path} can't be turned off as swap: {error.strerror}; free some memory") from None


class NewPath(_AtPath):
    """A new file, or a new directory that contains only sockets. Other files in it are left alone."""

    kind = "new-path"

    def undo(self, used: list[Path]) -> None:
        path = Path(self.path)
        if not path.is_dir():
            path.unlink(missing_ok=True)
            return
        for inside in path.iterdir():
            if inside.is_socket():
                inside.unlink()
        with contextlib.suppress(OSError):
            path.rmdir()


KINDS: tuple[type[LabChange], ...] = (Process, OwnCgroup, ZombieCgroup, OwnMount, LoopImage, Swapfile, NewPath)


class Leftovers:
    """The journal of one run, in the run's directory."""

    def __init__(self, journal: Journal[list[Path]]) -> None:
        self.journal = journal
        self._lock = -1

    @classmethod
    def begin(cls, directory: Path) -> "Leftovers":
        """Claim a directory. It is created under another name and renamed, so that whatever is left is recognisable
        however early the process is killed."""
        work = directory.parent
        try:
            work.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=_ASIDE, dir=work))
        except OSError as error:
            raise LabError(f"cannot write to {work}: {error.strerror}; choose another directory with --work") from None
        aside.chmod(0o755)
        leftovers = cls(Journal.read(aside, read_boot_id(), KINDS))
        if not leftovers.take():
            raise LabError(f"{work} is being cleaned; try again")
        leftovers.journal.begin()
        aside.rename(directory)
        leftovers.journal.directory = directory
        return leftovers

    @classmethod
    def read(cls, directory: Path) -> "Leftovers":
        """The leftovers of a directory with a journal. Raises LabError."""
        try:
            journal = Journal.read(directory, read_boot_id(), KINDS)
        except JournalError as error:
            raise LabError(f"{error}, and {directory} with it") from None
        if not journal.begun:
            raise LabError(f"{journal.path} is damaged; remove by hand what the run left, then {directory}")
        return cls(journal)

    @property
    def directory(self) -> Path:
        return self.journal.directory

    @property
    def changes(self) -> list[LabChange]:
        return self.journal.changes

    @property
    def zombies(self) -> ZombieCgroup | None:
        """The last known state of a lab's zombies; None for other runs, and after a reboot."""
        found = [each for each in self.changes if isinstance(each, ZombieCgroup)]
        return found[-1] if found and not self.journal.earlier_boot else None

    def take(self) -> bool:
        """Lock the run, and read what its process wrote last; False while it is still in progress."""
        self._lock = lock_directory(self.directory)
        if self._lock >= 0:
            self.journal = Journal.read(self.directory, read_boot_id(), KINDS)
        return self._lock >= 0

    def add(self, change: LabChange) -> None:
        """Record what is about to be created."""
        self.journal.add(change)

    def undo(self, used: list[Path] | None = None) -> list[str]:
        """Remove everything, the journal last; return a message for each thing that could not be removed. Mounts that a
        process still uses are added to `used`."""
        used = [] if used is None else used
        failed = []
        if not self.journal.earlier_boot:
            stuck = end_marked(self.directory.name)
            failed += [f"process {pid} doesn't end: it is stuck in the kernel" for pid in stuck]
        # The last one first, but cgroups after all that is charged to them.
        failed += self.undo_some(sorted(self.changes, key=lambda each: not isinstance(each, ZombieCgroup)), used)
        # The files of a file system that is still mounted in it would be removed, too.
        inside = [path for path in mount_points() if Path(path).is_relative_to(self.directory)]
        for path in sorted(inside, key=len, reverse=True):
            try:
                OwnMount(path).undo(used)
            except LabError as error:
                failed.append(str(error))
        if not failed:
            self._remove_directory(failed)
        self.release()
        return failed

    def undo_some(self, changes: Iterable[LabChange], used: list[Path]) -> list[str]:
        """Undo these changes; return a message for each change that could not be undone."""
        failed = []
        for each in self.journal.undo(used, changes):
            named = isinstance(each.error, LabError)
            failed.append(str(each.error) if named else f"{each.change.kind} {each.change.fields}: {each.error}")
        return failed

    def release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _remove_directory(self, failed: list[str]) -> None:
        for path in self.directory.iterdir():
            if path.name == FILE:
                continue
            try:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            except OSError as error:
                failed.append(f"{error.filename}: {(error.strerror or '').lower()}")
        if not failed:
            shutil.rmtree(self.directory)
            if self.directory.parent == DEFAULT_WORK:
                # Another run may still be in it.
                with contextlib.suppress(OSError):
                    DEFAULT_WORK.rmdir()


def left_in(work: Path) -> list[Path]:
    """The directories of all runs below a work directory, the oldest first."""
    return [entry for entry in _own_directories(work) if not entry.name.startswith(_ASIDE)]


def left_here(work: Path) -> Iterator[str]:
    """Describe all runs below a work directory, one line each."""
    for directory in left_in(work):
        zombies = None
        with contextlib.suppress(LabError):
            zombies = Leftovers.read(directory).zombies
        if zombies is None:
            yield f"{directory}; if it is not running any more, remove it with exhume lab clean"
        else:
            state = f"{count(zombies.made, 'zombie')}, {zombies.pin}" if zombies.made else "unfinished"
            yield f"{zombies.path}: {state}; remove it with exhume lab clean"


@dataclass(slots=True)
class Cleaned:
    """The result of cleaning a work directory: the removed runs, each with its contents; the runs that a process still
    works on; mounts that go when their users end; and what could not be removed, and why. `zombies` is the machine's
    number of dying memory cgroups before and after; None if they can't be counted, or if none were the lab's.
    """

    removed: dict[Path, str] = field(default_factory=dict)
    busy: list[Path] = field(default_factory=list)
    used: list[Path] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    zombies: tuple[int, int] | None = None


def clean(work: Path) -> Cleaned:
    """Remove every run below a work directory that no process works on."""
    cleaned = Cleaned()
    hierarchy: MemoryHierarchy | None = None
    before = freed = 0
    for directory in _own_directories(work.absolute()):
        try:
            if directory.name.startswith(_ASIDE):
                _clean_aside(directory, cleaned)
                continue
            leftovers = Leftovers.read(directory)
            if not leftovers.take():
                cleaned.busy.append(directory)
                continue
            zombies, in_use = leftovers.zombies, len(cleaned.used)
            had = 0
            if zombies is not None:
                with contextlib.suppress(LabError):
                    if hierarchy is None:
                        found = find_memory_hierarchy(Host())
                        before, hierarchy = found.dying(found.root), found
                    had = _zombies_now(leftovers, zombies, hierarchy)
            failed = leftovers.undo(cleaned.used)
            cleaned.failed += failed
            if not failed:
                cleaned.removed[directory] = zombies.path if zombies else f"what {directory.name} left,"
            freed += had if len(cleaned.used) == in_use else 0
        except LabError as error:
            cleaned.failed.append(str(error))
        except OSError as error:
            cleaned.failed.append(f"{error.filename or directory}: {error.strerror}")
    if hierarchy is not None:
        with contextlib.suppress(LabError):
            cleaned.zombies = before, hierarchy.settled(hierarchy.root, before - freed if freed else None, before)
    return cleaned


def _own_directories(work: Path) -> list[Path]:
    """Directories of runs, and of runs that were killed while they started; the oldest first."""
    try:
        found = [entry for entry in work.iterdir() if entry.name.startswith(_ASIDE) or (entry / FILE).is_file()]
        return sorted(found, key=lambda directory: directory.stat().st_mtime_ns)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _clean_aside(directory: Path, cleaned: Cleaned) -> None:
    """Remove the directory of a run that was killed before anything else was created."""
    lock = lock_directory(directory)
    if lock < 0:
        cleaned.busy.append(directory)
        return
    shutil.rmtree(directory)
    os.close(lock)


def _zombies_now(leftovers: Leftovers, zombies: ZombieCgroup, hierarchy: MemoryHierarchy) -> int:
    """The number of a lab's current zombies, which the kernel releases once nothing pins them. For a lab that was
    killed it is not recorded; for any other, some may be gone since. The kernel counts pages late, so for zombies just
    made, the lab's own number is more accurate."""
    if zombies.made and time.time() - leftovers.journal.path.stat().st_mtime < _COUNTED_LATE_S:
        return zombies.made
    try:
        pages = hierarchy.residual_pages(Path(zombies.path))
        return hierarchy.dying(Path(zombies.path)) if pages is None else pages
    except (OSError, LabError):
        # Its cgroup is not created yet, or gone.
        return 0


def _members(path: Path) -> list[int]:
    members: list[int] = []
    for directory, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            members += map(int, Path(directory, "cgroup.procs").read_text().split())
    # A process of another pid namespace shows as 0, which would mean this process's group.
    return [pid for pid in members if pid > 0 and pid != os.getpid()]


def _wait_for_removed(path: Path) -> None:
    """Wait until the kernel has released the removed cgroups below a v2 cgroup, or releases none for a while.

    A block device keeps the cgroup that first wrote to it. When that is removed, the closest live ancestor takes its
    place (fs/fs-writeback.c, cleanup_offline_cgwb, since 5.14). If the ancestor were removed meanwhile, it would stay
    until some other cgroup is removed, which may never happen on a machine without other cgroups (measured on 6.1)."""
    least, fell = None, time.monotonic()
    while (below := count_below(path)) is not None and below.dying and time.monotonic() - fell < _RELEASED_S:
        if least is None or below.dying < least:
            least, fell = below.dying, time.monotonic()
        time.sleep(0.02)


def _remove_cgroup(path: Path) -> None:
    """Remove a cgroup and those below it."""
    try:
        for directory, _, _ in os.walk(path, topdown=False):
            # On v2, page cache that a program of the lab read while in this cgroup would keep the cgroup alive.
            with contextlib.suppress(OSError):
                Path(directory, "memory.reclaim").write_bytes(b"1G")
            _wait_for_removed(Path(directory))
            Path(directory).rmdir()
    except FileNotFoundError:
        # Its maker removes it at the same time.
        return
    except OSError as error:
        raise LabError(f"{error.filename} can't be removed ({error.strerror}); move its processes elsewhere") from None
