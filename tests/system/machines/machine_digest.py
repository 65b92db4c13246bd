"""What is on a machine's disk, so that two moments can be compared byte by byte."""

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

JOURNAL = "var/log/journal"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, directory, link or device: its type and mode, owner, and what it holds. `modified` is for files only: a
    directory in which a file was made and removed again is as it was."""

    mode: int
    user: int
    group: int
    content: str
    modified: int | None


def disk_digest(disk: Path, changes: Path, tree: Path) -> dict[str, Entry]:
    """Everything that differs from the tree that the machine was made of, the journal aside. What is only copied but
    equal does not count; what was removed does."""
    differs = {}
    for directory, names, files in os.walk(changes):
        for name in (*names, *files):
            path = os.path.relpath(os.path.join(directory, name), changes)  # noqa: PTH118
            if path == JOURNAL or path.startswith(f"{JOURNAL}/"):
                continue
            now, before = _entry(disk / path), _entry(tree / path)
            if now != before:
                differs[path] = now
    return differs


GONE = Entry(0, 0, 0, "gone", None)


def _entry(path: Path) -> Entry:
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return GONE
    content, modified = "", None
    if stat.S_ISREG(status.st_mode):
        content, modified = hashlib.sha256(path.read_bytes()).hexdigest(), status.st_mtime_ns
    elif stat.S_ISLNK(status.st_mode):
        content = os.readlink(path)  # noqa: PTH115
    elif stat.S_ISBLK(status.st_mode) or stat.S_ISCHR(status.st_mode):
        content = str(status.st_rdev)
    return Entry(status.st_mode, status.st_uid, status.st_gid, content, modified)
