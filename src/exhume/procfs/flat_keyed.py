"""Flat keyed files (vmstat, meminfo, memory.stat, cgroup.stat, cpu.stat): a name and a number on each line, possibly
with a colon between them and a unit at the end."""

from collections.abc import Mapping, Sequence


def parse_flat_keyed(content: bytes) -> dict[bytes, int]:
    """Numbers by name; lines in another format are left out."""
    found: dict[bytes, int] = {}
    for line in content.splitlines():
        name, _, rest = line.partition(b" ")
        value = rest.split(None, 1)[0] if rest.strip() else b""
        if value.isdigit():
            found[name.rstrip(b":")] = int(value)
    return found


def parse_meminfo(content: bytes) -> dict[str, int]:
    """Parse /proc/meminfo (fs/proc/meminfo.c, meminfo_proc_show) in bytes. The few lines without a unit are counts of
    huge pages, which no caller needs."""
    return {name.decode("ascii", "replace"): value * 1024 for name, value in parse_flat_keyed(content).items()}


class NamedCounters:
    """Columns from /proc/vmstat (mm/vmstat.c, vmstat_show) or /proc/meminfo, cheap enough for every second.

    The names and their order stay the same until the next boot, so the lines are looked up once, and again only when
    the file no longer has the expected number of lines. A column is the sum of the lines that it names; it is left out
    if the kernel has none of them.
    """

    def __init__(self, columns: Mapping[str, Sequence[str]]) -> None:
        self._wanted = {column: [name.encode() for name in names] for column, names in columns.items()}
        self._layout = (-1, b"")
        self._lines: list[tuple[str, list[int]]] = []

    def read(self, content: bytes) -> dict[str, int]:
        lines = content.split(b"\n")
        layout = (len(lines), lines[-2].split(b" ", 1)[0] if len(lines) > 1 else b"")
        if layout != self._layout:
            self._find(lines)
            self._layout = layout
        values = {}
        for column, at in self._lines:
            value = int(lines[at[0]].split()[1])
            for other in at[1:]:
                value += int(lines[other].split()[1])
            values[column] = value
        return values

    def _find(self, lines: list[bytes]) -> None:
        position = {fields[0]: index for index, line in enumerate(lines) if len(fields := line.split()) >= 2}
        found = {
            column: [position[name] for name in names if name in position] for column, names in self._wanted.items()
        }
        self._lines = [(column, at) for column, at in found.items() if at]
