"""The spool of a node: data to send, kept on its disk until the receiver acknowledged it.

Files are written and synced first; then `state.json` is replaced, which records how far the recording is summarised
and the next sequence number. That is the commit: files with later numbers are removed when the spool is opened, and
created again from the recording. So a node that is killed at any moment sends every minute once.
"""

import fcntl
import json
import os
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from exhume.fleet.batch import Batch, Columns, decode, rows_of
from exhume.fleet.lake import BUNDLE_SUFFIX
from exhume.fleet.schema import SUMMARIES
from exhume.model.errors import ExhumeError, os_reason
from exhume.model.ownership import PRIVATE_FILE, Access

MAX_BYTES = 64 << 20
MAX_AGE_S = 7 * 86_400.0
_VERSION = 1
_STATE, _LOCK = "state.json", "push.lock"
_BATCH_SUFFIX = ".json.gz"
# The sequence number, then the number of minutes of a batch or the incident id of a bundle.
_NAME = re.compile(r"(\d{12})-(\w{1,64})(?:\.json\.gz|\.exhume\.zip)", re.ASCII)


class SpoolError(ExhumeError):
    """The spool can't be used; the message says why."""


@dataclass(slots=True)
class SpoolState:
    """How far a recording was summarised. `cursor` is the boot and start of the last summarised segment; `marks_since`
    the wall time of the oldest mark that is not part of an incident yet; `attributes` are those sent on
    `attributes_day`. Minutes that were dropped unsent are counted."""

    spool: str = field(default_factory=lambda: secrets.token_hex(8))
    next: int = 0
    cursor: tuple[str, int] | None = None
    marks_since: int | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    attributes_day: str = ""
    cost_per_zombie_us: float | None = None
    dropped_minutes: int = 0

    @classmethod
    def from_json(cls, text: str) -> "SpoolState":
        """Parse a state file. Raises ValueError, TypeError, KeyError."""
        found = json.loads(text)
        if found["version"] != _VERSION:
            raise ValueError("a spool of another version")
        known = {each.name: found[each.name] for each in fields(cls) if each.name in found}
        if known.get("cursor") is not None:
            boot, start = known["cursor"]
            known["cursor"] = str(boot), int(start)
        return cls(**known)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry to send: a batch, or the bundle of an incident."""

    seq: int
    path: Path
    incident: str | None
    minutes: int = 0

    def read(self) -> bytes:
        return self.path.read_bytes()


class Spool:
    """A directory of entries to send, oldest first. Raises SpoolError if it can't be used or another process uses
    it."""

    def __init__(self, directory: Path, *, max_bytes: int = MAX_BYTES, max_age_s: float = MAX_AGE_S) -> None:
        self.directory, self._max_bytes, self._max_age_s = directory, max_bytes, max_age_s
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            Access().make_directory(directory)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._lock = os.open(directory / _LOCK, flags, PRIVATE_FILE)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._lock)
                raise SpoolError(f"another process pushes from {directory}; end it first") from None
            self.state = self._load()
            self._discard_uncommitted()
        except OSError as error:
            raise _unusable(directory, error) from error

    def close(self) -> None:
        os.close(self._lock)

    def entries(self) -> list[Entry]:
        """The entries to send, oldest first."""
        found = []
        for path in self.directory.iterdir():
            match = _NAME.fullmatch(path.name)
            if match is not None:
                batch = path.name.endswith(_BATCH_SUFFIX)
                found.append(Entry(int(match[1]), path, None if batch else match[2], int(match[2]) if batch else 0))
        return sorted(found, key=lambda entry: entry.seq)

    @property
    def size(self) -> int:
        return sum(entry.path.stat().st_size for entry in self.entries())

    def place_of_bundle(self, incident: str) -> Path:
        """The path for an incident's bundle, to be written before `commit`; it takes the next sequence number."""
        path = self.directory / f"{self.state.next:012d}-{incident}{BUNDLE_SUFFIX}"
        self.state.next += 1
        return path

    def commit(self, node: str, tables: Mapping[str, Columns]) -> None:
        """Commit rows as a batch, if there are any, together with the bundles written to their reserved paths and the
        current state. Raises SpoolError, with nothing added."""
        state = self.state
        try:
            if tables:
                rows = tables.get(SUMMARIES.name)
                minutes = rows_of(SUMMARIES, rows) if rows is not None else 0
                body = Batch(node, state.spool, state.next, tables).encode()
                self._write(f"{state.next:012d}-{minutes}{_BATCH_SUFFIX}", body)
                state.next += 1
            self._bound()
            self._save()
        except OSError as error:
            self.state = self._load()
            self._discard_uncommitted()
            raise _unusable(self.directory, error) from error

    def remove(self, entry: Entry, *, refused: bool = False) -> None:
        """Remove an entry that was sent, or that the receiver refused for good."""
        if refused:
            self.state.dropped_minutes += entry.minutes
            self._save()
        entry.path.unlink(missing_ok=True)

    def renumber(self) -> None:
        """Change the spool id: the receiver already has other batches with these numbers, because this directory was
        restored from a copy."""
        entries = self.entries()
        contents = [entry.read() if entry.incident is None else None for entry in entries]
        self.state.spool = secrets.token_hex(8)
        for entry, content in zip(entries, contents, strict=True):
            if content is None:
                continue
            batch = decode(content)
            self._write(entry.path.name, Batch(batch.node, self.state.spool, entry.seq, batch.tables).encode())
        self._save()

    def _discard_uncommitted(self) -> None:
        for entry in self.entries():
            if entry.seq >= self.state.next:
                entry.path.unlink()

    def _bound(self) -> None:
        """Drop entries that are too old or exceed the size limit, the oldest first: bundles before batches, which are
        small."""
        entries = self.entries()
        sizes = {entry: entry.path.stat() for entry in entries}
        total = sum(status.st_size for status in sizes.values())
        oldest = time.time() - self._max_age_s
        for entry in sorted(entries, key=lambda each: (each.incident is None, each.seq)):
            if total > self._max_bytes or sizes[entry].st_mtime < oldest:
                total -= sizes[entry].st_size
                self.state.dropped_minutes += entry.minutes
                entry.path.unlink()

    def _load(self) -> SpoolState:
        try:
            return SpoolState.from_json((self.directory / _STATE).read_text())
        except FileNotFoundError:
            return SpoolState()
        except (ValueError, TypeError, KeyError):
            # Numbering begins again under a new id; the most recent part of the recording is summarised once more.
            return SpoolState()

    def _save(self) -> None:
        known: dict[str, Any] = {"version": _VERSION, **asdict(self.state)}
        self._write(_STATE, json.dumps(known).encode())

    def _write(self, name: str, content: bytes) -> None:
        staged = self.directory / f".{name}"
        fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(fd)
            staged.rename(self.directory / name)
        except OSError:
            staged.unlink(missing_ok=True)
            raise
        directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _unusable(directory: Path, error: OSError) -> SpoolError:
    return SpoolError(f"the spool {directory} can't be used: {os_reason(error)}")
