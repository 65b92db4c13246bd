"""What a scenario leaves on the machine, in the journal before it is made: `lab clean` removes it even after kill -9.

Each run has a directory with a journal, locked while the run lasts; the kernel releases the lock when its process dies.
Everything may be gone already: undoing twice is undoing once.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from exhume.control.files import lock_directory
from exhume.control.journal import FILE, Change, Journal, JournalError
from exhume.lab.hierarchies import remove_below
from exhume.lab.processes import Process
from exhume.lab.programs.keeper import end_marked
from exhume.lab.traces import ASIDE, DEFAULT_WORK
from exhume.model.clock import read_boot_id
from exhume.model.errors import LabError
from exhume.procfs.mountinfo import read_mounts

_ATTEMPTS = 50
# Half a minute.
_CGROUP_ATTEMPTS = 300

LabChange = Change[None]


@dataclass(frozen=True)
class StartedProcess(LabChange):
    """A process with all of its group: its pid stays taken while the group has a member."""

    pid: int
    started: int
    kind: ClassVar[str] = "process"

    def undo(self, tools: None = None) -> None:
        process = Process(self.pid, self.started)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if process.alive and os.getpgid(process.pid) == process.pid:
                os.killpg(process.pid, signal.SIGKILL)
        if not process.kill():
            raise LabError(f"process {process.pid} doesn't end: it is stuck in the kernel")


@dataclass(frozen=True)
class OwnCgroup(LabChange):
    """A cgroup of the lab's own, with those below it and the processes in them."""

    path: str
    kind: ClassVar[str] = "cgroup"

    def undo(self, tools: None = None) -> None:
        path = Path(self.path)
        for attempt in range(_CGROUP_ATTEMPTS):
            if not path.is_dir():
                return
            for pid in _members(path):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                remove_below(path, path.stat().st_ino)
            except FileNotFoundError:
                # Its maker removes it at the same time.
                continue
            except LabError:
                # A process that was just killed is a member until it is gone.
                if attempt == _CGROUP_ATTEMPTS - 1:
                    raise
                time.sleep(0.1)


@dataclass(frozen=True)
class OwnMount(LabChange):
    """All that is mounted at a path, in layers too."""

    path: str
    kind: ClassVar[str] = "mount"

    def undo(self, tools: None = None) -> None:
        for _ in range(_ATTEMPTS):
            if self.path not in mount_points():
                return
            # There is no unmount in the standard library, and umount(8) is on every machine.
            subprocess.run(["umount", "-l", self.path], check=False, capture_output=True)
        raise LabError(f"{self.path} can't be unmounted")


@dataclass(frozen=True)
class NetworkNamespace(LabChange):
    """A named network namespace."""

    name: str
    kind: ClassVar[str] = "netns"

    def undo(self, tools: None = None) -> None:
        path = Path("/run/netns", self.name)
        if path.exists():
            _ip("netns", "del", path.name)
        if path.exists():
            raise LabError(f"the network namespace {path.name} can't be removed; try: ip netns del {path.name}")


@dataclass(frozen=True)
class NetworkLink(LabChange):
    """A network device of the lab's own."""

    name: str
    kind: ClassVar[str] = "link"

    def undo(self, tools: None = None) -> None:
        path = Path("/sys/class/net", self.name)
        if path.exists():
            _ip("link", "del", path.name)
        if path.exists():
            raise LabError(f"the network device {path.name} can't be removed; try: ip link del {path.name}")


@dataclass(frozen=True)
class Setting(LabChange):
    """A file of the kernel that held `value`."""

    path: str
    value: str
    kind: ClassVar[str] = "setting"

    def undo(self, tools: None = None) -> None:
        with contextlib.suppress(FileNotFoundError):
            Path(self.path).write_text(self.value)


@dataclass(frozen=True)
class OwnFile(LabChange):
    """A file of the lab's own."""

    path: str
    kind: ClassVar[str] = "file"

    def undo(self, tools: None = None) -> None:
        Path(self.path).unlink(missing_ok=True)


@dataclass(frozen=True)
class NewPath(LabChange):
    """A file, or a directory with nothing but sockets in it, that was not there before. What others put there stays."""

    path: str
    kind: ClassVar[str] = "new-path"

    def undo(self, tools: None = None) -> None:
        path = Path(self.path)
        if not path.is_dir():
            path.unlink(missing_ok=True)
            return
        for inside in path.iterdir():
            if inside.is_socket():
                inside.unlink()
        with contextlib.suppress(OSError):
            path.rmdir()


KINDS: tuple[type[LabChange], ...] = (
    StartedProcess, OwnCgroup, OwnMount, NetworkNamespace, NetworkLink, Setting, OwnFile, NewPath,
)  # fmt: skip


class Leftovers:
    """The journal of one scenario's run, in the run's directory."""

    def __init__(self, journal: Journal[None]) -> None:
        self.journal = journal
        self._lock = -1

    @classmethod
    def begin(cls, directory: Path) -> "Leftovers":
        """Claim a directory. Made aside and renamed: however early it is killed, what it leaves is known as such."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=ASIDE, dir=directory.parent))
        aside.chmod(0o755)
        leftovers = cls(Journal.read(aside, read_boot_id(), KINDS))
        if not leftovers.take():
            raise LabError(f"{directory.parent} is being cleaned; try again")
        leftovers.journal.begin()
        aside.rename(directory)
        leftovers.journal.directory = directory
        return leftovers

    @classmethod
    def read(cls, directory: Path) -> "Leftovers | None":
        """The leftovers of a directory; None where it has no journal. Raises LabError."""
        if not (directory / FILE).is_file():
            return None
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

    def take(self) -> bool:
        """Lock the run; False while it is still going on."""
        self._lock = lock_directory(self.directory)
        return self._lock >= 0

    def note(self, kind: str, **fields: str | int) -> None:
        """Record what is about to be made; KINDS has the kinds and the fields of each."""
        if kind not in self.journal.kinds:
            raise ValueError(f"nothing undoes {kind!r}")
        self.journal.add(self.journal.kinds[kind].from_fields(fields))

    def undo(self) -> list[str]:
        """Remove everything; returns what could not be removed, one message each. The journal goes last."""
        failed = []
        if not self.journal.earlier_boot:
            stuck = end_marked(self.directory.name)
            failed += [f"process {pid} doesn't end: it is stuck in the kernel" for pid in stuck]
        for each in self.journal.undo(None):
            named = isinstance(each.error, LabError)
            failed.append(str(each.error) if named else f"{each.change.kind} {each.change.fields}: {each.error}")
        # A file system that is still mounted in it would lose its files with it.
        failed += unmount_below(self.directory)
        if not failed:
            self._remove_directory(failed)
        self.release()
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
    try:
        found = [entry for entry in work.iterdir() if (entry / FILE).is_file() and not entry.name.startswith(ASIDE)]
        return sorted(found, key=lambda directory: directory.stat().st_mtime_ns)
    except (FileNotFoundError, NotADirectoryError):
        return []


def unmount_below(directory: Path) -> list[str]:
    """Unmount whatever is mounted in a directory; returns what stays, one message each."""
    failed = []
    inside = [path for path in mount_points() if Path(path).is_relative_to(directory)]
    for path in sorted(inside, key=len, reverse=True):
        try:
            OwnMount(path).undo()
        except LabError as error:
            failed.append(str(error))
    return failed


def mount_points() -> set[str]:
    """Where something is mounted."""
    return {mount.point for mount in read_mounts(Path("/proc/self/mountinfo"))}


def _members(path: Path) -> list[int]:
    members: list[int] = []
    for directory, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            members += map(int, Path(directory, "cgroup.procs").read_text().split())
    # A process of another pid namespace shows as 0, which would be this process's group.
    return [pid for pid in members if pid > 0 and pid != os.getpid()]


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=False, capture_output=True)
