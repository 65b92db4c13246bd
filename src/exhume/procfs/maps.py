"""/proc/PID/maps and the header lines of /proc/PID/smaps (fs/proc/task_mmu.c, show_map_vma)."""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_EXECUTABLE = ord("x")


class MapsEntry(NamedTuple):
    """One mapping. `path` is as the kernel prints it, with ` (deleted)` for an unlinked file."""

    start: int
    end: int
    offset: int
    major: int
    minor: int
    inode: int
    path: str

    @property
    def device(self) -> int:
        return os.makedev(self.major, self.minor)


def parse_maps(lines: Iterable[bytes], *, executable_only: bool = False) -> Iterator[MapsEntry]:
    """The mappings in some lines; anything else (a truncated line, the details in smaps) is left out."""
    for line in lines:
        space = line.find(b" ")
        if space < 0 or len(line) < space + 5 or (executable_only and line[space + 3] != _EXECUTABLE):
            continue
        entry = parse_entry(line)
        if entry is not None:
            yield entry


def parse_entry(line: bytes) -> MapsEntry | None:
    """Parse one line; None for another format."""
    fields = line.split(None, 5)
    if len(fields) < 5 or not fields[4].isdigit():
        return None
    start, dash, end = fields[0].partition(b"-")
    major, colon, minor = fields[3].partition(b":")
    if not (dash and colon):
        return None
    try:
        # The only byte that the kernel escapes is the newline (seq_path with "\n").
        path = os.fsdecode(fields[5].replace(b"\\012", b"\n")) if len(fields) > 5 else ""
        return MapsEntry(
            int(start, 16), int(end, 16), int(fields[2], 16), int(major, 16), int(minor, 16), int(fields[4]), path
        )
    except ValueError:
        return None
