"""Temporary changes to the node, made while a remedy works and undone by the journal: swapfiles, swap that is turned
off, and cgroup settings."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from exhume.collect.cgroup.layout import hierarchies
from exhume.control.files import DirectoryNotPrivate, lock_directory, private_directory
from exhume.control.journal import Change, Journal, JournalError
from exhume.control.swap import is_on
from exhume.control.worker import JobFailed, Workers
from exhume.model.clock import read_boot_id
from exhume.model.errors import ExhumeError
from exhume.procfs.host import Host

# The only files of a memory cgroup that are ever written as settings.
_SWAPPINESS, _SWAP_MAX = "memory.swappiness", "memory.swap.max"


@dataclass(frozen=True, slots=True)
class NodeTools:
    """What is needed to make and undo changes. `directory` is the remedy's own directory, where swapfiles are made."""

    workers: Workers
    host: Host
    directory: Path


NodeChange = Change[NodeTools]
NodeJournal = Journal[NodeTools]


@dataclass(frozen=True)
class Swapfile(NodeChange):
    """A temporary swapfile at `path`."""

    path: str
    kind: ClassVar[str] = "swapfile"
    outlives_boot: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"the temporary swapfile {self.path}"

    def undo(self, tools: NodeTools) -> None:
        path = Path(self.path)
        if is_on(tools.host, self.path):
            tools.workers.must({"job": "swapoff", "path": self.path}, f"the swapfile {path} could not be turned off")
        # Only a regular file in the remedy's own directory is ever removed.
        if path.parent == tools.directory and path.exists() and stat.S_ISREG(path.lstat().st_mode):
            path.unlink()


@dataclass(frozen=True)
class SwapOff(NodeChange):
    """Swap at `path` that is turned off temporarily; its priority was `priority`."""

    path: str
    priority: int
    kind: ClassVar[str] = "swap-off"

    def __str__(self) -> str:
        return f"the swap {self.path}, which was turned off"

    def undo(self, tools: NodeTools) -> None:
        if not is_on(tools.host, self.path):
            job = {"job": "swapon", "path": self.path, "priority": self.priority}
            tools.workers.must(job, f"the swap {self.path} could not be turned on again")


@dataclass(frozen=True)
class CgroupSettings(NodeChange):
    """Cgroup settings that are changed temporarily: each file with its previous value."""

    values: tuple[tuple[str, str], ...]
    kind: ClassVar[str] = "cgroup-settings"

    def __str__(self) -> str:
        path, was = self.values[0] if self.values else ("", "")
        more = f" and {len(self.values) - 1:,} more" if len(self.values) > 1 else ""
        return f"settings of cgroups ({path} was {was}{more})"

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "CgroupSettings":
        return cls(tuple((str(path), str(was)) for path, was in fields["values"]))

    def undo(self, tools: NodeTools) -> None:
        write_settings([*reversed(self.values), *self._inherited()], tools, "settings of cgroups could not be restored")

    def _inherited(self) -> list[tuple[str, str]]:
        """Find cgroups created in the meantime, which inherited the setting; they get their parent's previous value.

        mm/memcontrol.c, mem_cgroup_css_alloc copies swappiness from the parent (v1).
        """
        was = dict(self.values)
        found = []
        for name, value in self.values:
            if Path(name).name == _SWAPPINESS and value != "0":
                # The glob is empty if the cgroup is gone.
                children = map(os.fspath, Path(name).parent.glob(f"*/{_SWAPPINESS}"))
                found += [(child, value) for child in children if child not in was and _content(child) == "0"]
        return found


@contextmanager
def hold_journal(directory: Path, host: Host) -> Iterator[NodeJournal]:
    """Hold the journal of a work directory, which only one remedy may do at a time. Raises JournalError."""
    try:
        private_directory(directory)
        lock = lock_directory(directory)
    except DirectoryNotPrivate as error:
        raise JournalError(str(error)) from None
    except OSError as error:
        raise JournalError(
            f"{directory} can't be used ({error.strerror}); name another directory with --work-dir"
        ) from None
    if lock < 0:
        raise JournalError(f"another exhume fix is at work in {directory}; wait until it is done")
    try:
        journal = read_journal(directory, host)
        # A tampered journal must not make root write to anything but a cgroup setting.
        for change in journal.changes:
            if isinstance(change, CgroupSettings) and (others := _not_settings(change.values, host)):
                raise JournalError(
                    f"{journal.path} names {others[0]}, not a file of a cgroup; look at it, and remove it"
                )
        yield journal
    finally:
        os.close(lock)


def read_journal(directory: Path, host: Host) -> NodeJournal:
    """Read the journal of a work directory. Raises JournalError."""
    return Journal.read(directory, read_boot_id(host.proc), (Swapfile, SwapOff, CgroupSettings))


def undo(journal: NodeJournal, tools: NodeTools, *changes: NodeChange) -> None:
    """Undo changes (default: all). All are tried; then the first error is raised, and its change stays recorded."""
    failed = journal.undo(tools, changes or None)
    journal.remove_if_empty()
    if failed:
        error = failed[0].error
        raise error if isinstance(error, ExhumeError) else JobFailed(f"{failed[0].change}: {error.strerror}")


@contextmanager
def keep_out_of_swap(targets: tuple[str, ...], journal: NodeJournal, tools: NodeTools) -> Iterator[None]:
    """Context in which no live cgroup at or below the targets is swapped out, while removed ones are.

    v1 has a swappiness per cgroup, and removed ones keep theirs. v2 has a swap limit, which applies to the whole
    subtree: the targets themselves get no limit, since pages charged to removed cgroups are swapped out on their
    account.
    """
    change = CgroupSettings(tuple(each for target in targets for each in _settings_below(Path(target))))
    journal.add(change)
    try:
        zeros = [(path, "0") for path, _ in change.values]
        write_settings(zeros, tools, "live cgroups could not be kept out of swap")
        yield
    finally:
        undo(journal, tools, change)


def write_settings(values: list[tuple[str, str]], tools: NodeTools, failure: str) -> None:
    """Write cgroup settings. Raises JobFailed, also for a file that is not a cgroup setting."""
    if others := _not_settings(values, tools.host):
        raise JobFailed(f"{failure}: {others[0]} is not a setting of a cgroup")
    if values:
        tools.workers.must({"job": "settings", "values": values}, failure)


def _not_settings(values: Iterable[tuple[str, str]], host: Host) -> list[str]:
    """The paths that are not settings of a memory cgroup."""
    mounts = [hierarchy.path.resolve() for hierarchy in hierarchies(host)]
    return [
        path
        for path, _ in values
        if Path(path).name not in (_SWAPPINESS, _SWAP_MAX)
        or not any(Path(path).resolve().is_relative_to(mount) for mount in mounts)
    ]


def _settings_below(target: Path) -> Iterator[tuple[str, str]]:
    legacy = (target / _SWAPPINESS).exists()
    name = _SWAPPINESS if legacy else _SWAP_MAX
    for directory, _, files in os.walk(target):
        if name not in files or (not legacy and Path(directory) == target):
            continue
        path = os.fspath(Path(directory, name))
        if (was := _content(path)) is not None:
            yield path, was


def _content(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None
