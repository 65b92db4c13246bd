"""Files of the node that an inventory is read from, bounded, with the reason when one cannot be read.

The names and values in them are untrusted: they are truncated, and invalid Unicode is replaced.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exhume.collect.node_root import NodeRoot
from exhume.model.inventory import Missing, Reason

MOST_TEXT = 300
_MOST_BYTES = 1 << 20
_PART = 1 << 16


class Unreadable(Exception):
    """A file, or a whole section, that could not be read."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """Reads files of a node; `missing` collects what could not be read, under the name of the section."""

    root: NodeRoot
    section: str
    missing: list[Missing] = field(default_factory=list)

    def read(self, name: str | Path, most: int = _MOST_BYTES) -> bytes:
        """The beginning of a regular file: by the node's name for it, or by the path of a file of /proc or /sys. Raises
        Unreadable."""
        try:
            path = name if isinstance(name, Path) else self.root.file(name)
            return read_plain(path, most)
        except OSError as error:
            raise _unreadable(error, str(name)) from None

    def text(self, name: str | Path, most: int = _MOST_BYTES) -> str:
        return self.read(name, most).decode("utf-8", "replace")

    def line(self, name: str | Path) -> str:
        """The first line of a small file; empty when it cannot be read."""
        return self.optional(name, 4096).partition("\n")[0].strip()[:MOST_TEXT]

    def optional(self, name: str | Path, most: int = _MOST_BYTES) -> str:
        """The same for an optional file: empty when it does not exist. A file without read permission is noted."""
        try:
            return self.text(name, most)
        except Unreadable as error:
            if error.reason is not Reason.ABSENT:
                self.note(Path(name).name, error.reason, error.detail)
            return ""

    def note(self, part: str, reason: Reason, detail: str) -> None:
        """Note that something is missing: a part of the section, or (empty) some of the whole."""
        name = f"{self.section}.{clean(part, 80)}" if part else self.section
        self.missing.append(Missing(name, reason, clean(detail)))

    def bounded(self, values: Mapping[str, str], most: int) -> dict[str, str]:
        """At most this many values, sorted; a note records that there were more."""
        if len(values) > most:
            self.note("", Reason.TRUNCATED, f"{len(values):,} entries, of which {most:,} are kept")
        return {clean(name): clean(values[name]) for name in sorted(values)[:most]}


def read_plain(path: Path, most: int) -> bytes:
    """Read a regular file. Raises OSError, also for anything else, which may block forever on open."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileNotFoundError(f"{path} is not a plain file")
        parts, left = [], most
        while left > 0 and (part := os.read(fd, min(left, _PART))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(fd)


def _unreadable(error: OSError, name: str) -> Unreadable:
    if isinstance(error, PermissionError):
        return Unreadable(Reason.PERMISSION, f"{name} may not be read; run as root")
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return Unreadable(Reason.ABSENT, f"there is no {name}")
    return Unreadable(Reason.FAILED, f"{name}: {error.strerror or error}")


def clean(text: str, most: int = MOST_TEXT) -> str:
    """Make an untrusted name or value safe: truncated, and encodable."""
    return text[:most].encode("utf-8", "replace").decode()


def assignments(text: str, separator: str = "=") -> Iterator[tuple[str, str]]:
    """`KEY=value` and `KEY="value"` lines, in the format of os-release(5)."""
    for line in text.splitlines():
        name, found, value = line.strip().partition(separator)
        if found and name and not name.startswith("#"):
            yield name.strip(), clean(value.strip().strip("\"'"))
