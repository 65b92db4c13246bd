"""What remedies changed for a while, written down before it is changed, so that it is undone even after kill -9.

The journal is a file in a directory that one remedy at a time holds the lock of. What is in it when nobody holds the
lock was left behind.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

from exhume.collect.cgroup.layout import hierarchies
from exhume.model.clock import read_boot_id
from exhume.model.errors import ExhumeError
from exhume.procfs.host import Host
from exhume.remedy.documents import own_directory, private_file

_NAME = "journal.json"
_VERSION = 1


class JournalError(ExhumeError):
    """The journal can't be used."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something to undo. `what` is swapfile (made at `path`), swap-off (of `path`, which had a `priority`), or setting
    (the file at `path` held `was`)."""

    what: str
    path: str
    priority: int = 0
    was: str = ""

    def __str__(self) -> str:
        if self.what == "swapfile":
            return f"the temporary swapfile {self.path}"
        if self.what == "swap-off":
            return f"the swap {self.path}, which was taken off"
        return f"{self.path}, which held {self.was}"


@dataclass
class Journal:
    """The changes that are not undone yet, of this boot or (`earlier_boot`) one before."""

    place: Path
    boot_id: str
    changes: list[Change] = field(default_factory=list)
    earlier_boot: bool = False

    @classmethod
    def read(cls, place: Path, host: Host) -> Self:
        """What is written down. Raises JournalError when it can't be understood."""
        boot_id = read_boot_id(host.proc)
        try:
            content = json.loads((place / _NAME).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return cls(place, boot_id)
        except (OSError, ValueError) as error:
            raise JournalError(f"{place / _NAME} can't be read ({error}); look at it, and remove it") from None
        if content.get("version") != _VERSION:
            raise JournalError(f"{place / _NAME} was written by another version of exhume; clean up with that one")
        changes = [Change(**change) for change in content["changes"]]
        return cls(place, boot_id, changes, content["boot_id"] != boot_id)

    def check_settings(self, host: Host) -> None:
        """Raises JournalError where it would have root write anything but a setting of a cgroup."""
        mounts = [hierarchy.path.resolve() for hierarchy in hierarchies(host)]
        for change in self.changes:
            path = Path(change.path).resolve()
            if change.what == "setting" and not (
                path.name.startswith("memory.") and any(path.is_relative_to(mount) for mount in mounts)
            ):
                raise JournalError(
                    f"{self.place / _NAME} names {change.path}, not a file of a cgroup; look at it, and remove it"
                )

    def add(self, *changes: Change) -> None:
        """Write down what is about to be done."""
        self.changes.extend(changes)
        self._save()

    def forget(self, *changes: Change) -> None:
        """It is undone."""
        gone = set(changes)
        self.changes = [change for change in self.changes if change not in gone]
        self._save()

    def _save(self) -> None:
        if not self.changes:
            (self.place / _NAME).unlink(missing_ok=True)
            return
        content = {"version": _VERSION, "boot_id": self.boot_id, "changes": [asdict(change) for change in self.changes]}
        beside = self.place / f".{_NAME}"
        with private_file(beside) as file:
            json.dump(content, file)
            file.flush()
            os.fsync(file.fileno())
        beside.rename(self.place / _NAME)


@contextmanager
def hold_journal(place: Path, host: Host) -> Iterator[Journal]:
    """The journal, for one remedy at a time."""
    try:
        own_directory(place)
        lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise JournalError(
            f"{place} can't be used ({error.strerror}); name another directory with --work-dir"
        ) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(f"another exhume fix is at work in {place}; wait until it is done") from None
        journal = Journal.read(place, host)
        journal.check_settings(host)
        yield journal
    finally:
        os.close(lock)
