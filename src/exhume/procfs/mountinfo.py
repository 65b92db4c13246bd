"""The mount table: what is mounted where, and from what."""

import re
from dataclasses import dataclass
from pathlib import Path

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of a mount table. `device` is (major, minor), `root` the part of the file system that is shown."""

    device: tuple[int, int]
    root: str
    point: str
    kind: str
    source: str
    options: frozenset[str]

    def option(self, name: str) -> str | None:
        """The value of an option `name=value` of the file system."""
        prefix = f"{name}="
        return next((option[len(prefix) :] for option in self.options if option.startswith(prefix)), None)


def read_mounts(table: Path) -> list[Mount]:
    """What a process has mounted; nothing when its table can't be read."""
    try:
        lines = table.read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    return [mount for line in lines if (mount := _parse(line)) is not None]


def _parse(line: str) -> Mount | None:
    before, separator, after = line.partition(" - ")
    fields, kind = before.split(" "), after.split(" ")
    if not separator or len(fields) < 5 or len(kind) < 3:
        return None
    major, _, minor = fields[2].partition(":")
    if not (major.isdigit() and minor.isdigit()):
        return None
    root, point, source = (_unescaped(text) for text in (fields[3], fields[4], kind[1]))
    return Mount((int(major), int(minor)), root, point, kind[0], source, frozenset(_unescaped(kind[2]).split(",")))


def _unescaped(text: str) -> str:
    """The table writes blanks, backslashes and the like in octal."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text) if "\\" in text else text
