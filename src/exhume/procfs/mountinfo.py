"""/proc/PID/mountinfo (fs/proc_namespace.c, show_mountinfo): what is mounted where, and from what."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of a mount table. `device` is (major, minor), `root` the part of the filesystem that is mounted;
    `options` are those of the filesystem, `flags` those of this mount (ro, noatime)."""

    device: tuple[int, int]
    root: str
    point: str
    kind: str
    source: str
    options: frozenset[str]
    flags: frozenset[str] = frozenset()

    def option(self, name: str) -> str | None:
        """The value of a filesystem option `name=value`."""
        prefix = f"{name}="
        return next((option[len(prefix) :] for option in self.options if option.startswith(prefix)), None)


def parse_mountinfo(content: bytes) -> list[Mount]:
    """The mounts of a table; lines in another format are left out."""
    return [mount for line in content.split(b"\n") if (mount := _parse(line)) is not None]


def read_mounts(table: Path) -> list[Mount]:
    """The mounts that a process sees; none when its table cannot be read."""
    try:
        return parse_mountinfo(table.read_bytes())
    except OSError:
        return []


def _parse(line: bytes) -> Mount | None:
    # Split at the separator, since the number of optional fields before it varies.
    before, separator, after = line.partition(b" - ")
    fields, kind = before.split(b" "), after.split(b" ")
    if not separator or len(fields) < 5 or len(kind) < 3:
        return None
    major, _, minor = fields[2].partition(b":")
    if not (major.isdigit() and minor.isdigit()):
        return None
    root, point, source = (_unescape(text) for text in (fields[3], fields[4], kind[1]))
    options = frozenset(_unescape(kind[2]).split(","))
    flags = frozenset(_unescape(fields[5]).split(",")) if len(fields) > 5 else frozenset()
    return Mount((int(major), int(minor)), root, point, os.fsdecode(kind[0]), source, options, flags)


def _unescape(text: bytes) -> str:
    """Decode the octal escapes of blanks, tabs, newlines and backslashes, in types and sources also #
    (fs/proc_namespace.c, show_mountinfo and mangle)."""
    if b"\\" in text:
        text = _OCTAL.sub(lambda match: bytes((int(match[1], 8) & 0xFF,)), text)
    return os.fsdecode(text)
