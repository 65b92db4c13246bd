"""The write-ahead journal: a change is recorded on disk before it is made, and can be undone after kill -9.

A journal is an append-only file of JSON lines in a directory whose lock one process at a time holds. The first line
gives the format and the boot; each further line is a change (its `kind` and fields) or the ids of changes that have
been undone. A line without a newline was being written when its writer died: the change it announces was not made.
Documents (plans, fixes) are kept next to it as atomically written files.
"""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from exhume.control.files import DirectoryNotPrivate, private_directory, read_own, sync_directory, write_atomic
from exhume.model.errors import ExhumeError
from exhume.model.ownership import open_own

VERSION = 1
FILE = "journal.jsonl"
_Tools_contra = TypeVar("_Tools_contra", contravariant=True)
_Tools = TypeVar("_Tools")


class JournalError(ExhumeError):
    """A journal or one of its documents can't be used, read or written."""


class JournalDamaged(JournalError):
    """A journal contains something that exhume did not write."""


class Change(ABC, Generic[_Tools_contra]):
    """A change to the node that knows how to undo itself; subclasses are frozen dataclasses of JSON values.

    Undo is idempotent: what has been undone already, or no longer exists, is left alone.
    """

    kind: ClassVar[str]
    # Whether any of it persists across a reboot.
    outlives_boot: ClassVar[bool] = False

    @abstractmethod
    def undo(self, tools: _Tools_contra) -> None:
        """Restore the previous state. Raises ExhumeError or OSError if that isn't possible."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "Change[_Tools_contra]":
        """Build a change from the fields of a journal line. Raises TypeError or ValueError if they don't fit."""
        return cls(**fields)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that a journal line stores."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True, slots=True)
class UndoFailure(Generic[_Tools]):
    """A change that could not be undone, and the error."""

    change: Change[_Tools]
    error: ExhumeError | OSError


@dataclass
class Journal(Generic[_Tools]):
    """The changes not undone yet, made in this boot or (`earlier_boot`) a previous one; only `kinds` are accepted."""

    directory: Path
    boot_id: str
    kinds: Mapping[str, type[Change[_Tools]]]
    file: str = FILE
    changes: list[Change[_Tools]] = field(default_factory=list)
    earlier_boot: bool = False
    _ids: list[int] = field(default_factory=list, repr=False)
    _written: int = field(default=0, repr=False)
    _next_id: int = field(default=1, repr=False)

    @classmethod
    def read(
        cls, directory: Path, boot_id: str, kinds: Iterable[type[Change[_Tools]]], file: str = FILE
    ) -> "Journal[_Tools]":
        """Read the changes not undone yet; an empty journal if there is no file. Raises JournalError."""
        journal = cls(directory, boot_id, {each.kind: each for each in kinds}, file)
        try:
            content = read_own(journal.path)
        except (FileNotFoundError, NotADirectoryError):
            return journal
        except OSError as error:
            raise JournalError(f"{journal.path} can't be read ({error.strerror})") from None
        whole = content[: content.rfind(b"\n") + 1]
        journal._written = len(whole)
        if journal.begun:
            journal._replay(whole.splitlines())
        return journal

    def _replay(self, lines: list[bytes]) -> None:
        known: dict[int, Change[_Tools]] = {}
        try:
            head, *records = [json.loads(line) for line in lines]
            version, self.earlier_boot = head["version"], str(head["boot_id"]) != self.boot_id
            if version != VERSION:
                raise JournalError(f"{self.path} was written by another version of exhume; clean up with that one")
            for record in records:
                if "undone" in record:
                    for id_ in record["undone"]:
                        known.pop(id_, None)
                    continue
                id_, kind = int(record.pop("id")), str(record.pop("kind"))
                if kind not in self.kinds:
                    raise JournalError(f"{self.path} was written by another version of exhume; clean up with that one")
                known[id_] = self.kinds[kind].from_fields(record)
                self._next_id = id_ + 1
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise JournalDamaged(
                f"{self.path} is damaged ({error}); undo by hand what it names, then remove it"
            ) from None
        self._ids, self.changes = list(known), list(known.values())

    @property
    def path(self) -> Path:
        return self.directory / self.file

    @property
    def begun(self) -> bool:
        """Whether the first line has been written; before that, nothing was changed."""
        return self._written > 0

    def begin(self) -> None:
        """Write the first line. Raises JournalError."""
        if not self.begun:
            self._append({"version": VERSION, "boot_id": self.boot_id})
            sync_directory(self.directory)

    def add(self, *changes: Change[_Tools]) -> None:
        """Record changes that are about to be made; they are on disk on return. Raises JournalError."""
        if self.changes and self.earlier_boot:
            raise JournalError(f"{self.path} is of an earlier boot; undo what it names first")
        for change in changes:
            if change.kind not in self.kinds:
                raise ValueError(f"no kind of change {change.kind!r} in this journal")
        self.begin()
        ids = range(self._next_id, self._next_id + len(changes))
        self._append(*({"id": id_, "kind": each.kind, **each.fields} for id_, each in zip(ids, changes, strict=True)))
        self._next_id += len(changes)
        self._ids += ids
        self.changes += changes

    def undo(self, tools: _Tools, changes: Iterable[Change[_Tools]] | None = None) -> list[UndoFailure[_Tools]]:
        """Undo changes (default: all) in reverse order; those that can't be undone stay in the journal."""
        chosen = list(self.changes if changes is None else changes)
        failed: list[UndoFailure[_Tools]] = []
        undone: list[Change[_Tools]] = []
        for change in reversed(chosen):
            try:
                if change.outlives_boot or not self.earlier_boot:
                    change.undo(tools)
            except (ExhumeError, OSError) as error:
                failed.append(UndoFailure(change, error))
            else:
                undone.append(change)
        self.strike(undone)
        return failed

    def strike(self, undone: Sequence[Change[_Tools]]) -> None:
        """Remove changes from the journal that were undone or superseded. Raises JournalError."""
        gone = [id_ for id_, change in zip(self._ids, self.changes, strict=True) if change in undone]
        self._ids = [id_ for id_ in self._ids if id_ not in gone]
        self.changes = [change for change in self.changes if change not in undone]
        if gone:
            self._append({"undone": gone})

    def remove_if_empty(self) -> None:
        """Remove the file if everything is undone. Raises OSError."""
        if not self.changes:
            self.path.unlink(missing_ok=True)
            self._written, self.earlier_boot = 0, False

    def _append(self, *records: Mapping[str, Any]) -> None:
        content = b"".join(json.dumps(record).encode() + b"\n" for record in records)
        try:
            fd = open_own(self.path, os.O_WRONLY | os.O_CREAT)
            try:
                # Truncate the partial line of a killed writer, so that the next line is intact.
                os.ftruncate(fd, self._written)
                written = 0
                while written < len(content):
                    written += os.pwrite(fd, content[written:], self._written + written)
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise JournalError(
                f"{self.path} can't be written ({error.strerror}); make room there, or name another directory with "
                "--work-dir"
            ) from None
        self._written += len(content)


def write_document(path: Path, version: int, content: Mapping[str, Any]) -> None:
    """Write a document atomically into a private directory. Raises JournalError."""
    try:
        private_directory(path.parent.parent)
        private_directory(path.parent)
        write_atomic(path, json.dumps({"version": version, **content}, indent=1).encode())
    except DirectoryNotPrivate as error:
        raise JournalError(str(error)) from None
    except OSError as error:
        raise JournalError(
            f"{path} can't be written ({error.strerror}); make room there, or name another directory with --work-dir"
        ) from None


def read_document(path: Path, version: int) -> dict[str, Any]:
    """Read a document and strip its version. Raises JournalError; FileNotFoundError if it does not exist."""
    try:
        content = json.loads(read_own(path))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise JournalError(f"{path} can't be read ({error}); look at it, and move it away") from None
    if not isinstance(content, dict) or content.pop("version", None) != version:
        raise JournalError(f"{path} was written by another version of exhume; use that one, or move it away")
    return content


def prune_documents(directory: Path, most: int, keep: str) -> None:
    """Remove a directory's documents except the last `most` by name, and the one named `keep`."""
    for path in sorted(path for path in directory.glob("*.json") if path.name != keep)[:-most]:
        path.unlink(missing_ok=True)
