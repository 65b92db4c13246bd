"""/proc/pressure/RESOURCE and RESOURCE.pressure of a cgroup (kernel/sched/psi.c, psi_show)."""

from typing import NamedTuple


class Pressure(NamedTuple):
    """The fractions of time (0 to 1) over the last 10, 60 and 300 seconds in which tasks stalled, and the total in
    microseconds."""

    avg10: float
    avg60: float
    avg300: float
    total_us: int


def parse_stall_totals(content: bytes) -> dict[str, int]:
    """Only the totals in microseconds, by line: cheap enough for every second."""
    found = {}
    for line in content.split(b"\n"):
        head, equals, total = line.rpartition(b" total=")
        if equals and total.isdigit():
            found[head.split(b" ", 1)[0].decode("ascii", "replace")] = int(total)
    return found


def parse_pressure(content: bytes) -> dict[str, Pressure]:
    """Parse the values by line: `some` (at least one task stalled) and `full` (all of them)."""
    found = {}
    for line in content.split(b"\n"):
        kind, *pairs = line.split()[:5] or [b""]
        values = [value for _, equals, value in (pair.partition(b"=") for pair in pairs) if equals]
        if len(values) == 4:
            avg10, avg60, avg300 = (float(value) / 100 for value in values[:3])
            found[kind.decode("ascii", "replace")] = Pressure(avg10, avg60, avg300, int(values[3]))
    return found
