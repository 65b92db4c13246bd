"""/proc/PID/stat (fs/proc/array.c, do_task_stat)."""

from typing import NamedTuple

# Fields of proc(5), counted from the state, which is the first after the name.
_PPID, _NICE, _START, _RT_PRIORITY, _POLICY = 1, 16, 19, 37, 38


class PidStat(NamedTuple):
    """A process; `start` is in clock ticks since boot, the scheduling is None in a line that ends before it."""

    comm: str
    state: str
    ppid: int
    start: int
    rt_priority: int | None
    policy: int | None
    nice: int


def parse_pid_stat(content: bytes) -> PidStat | None:
    """Parse the fields; None for a truncated line."""
    # The name may contain spaces and parentheses: only the last closing one ends it.
    opening, closing = content.find(b"("), content.rfind(b")")
    fields = content[closing + 2 :].split()
    if opening < 0 or closing < opening or len(fields) <= _START:
        return None
    complete = len(fields) > _POLICY
    try:
        return PidStat(
            content[opening + 1 : closing].decode("utf-8", "replace"),
            fields[0].decode("ascii", "replace"),
            int(fields[_PPID]),
            int(fields[_START]),
            int(fields[_RT_PRIORITY]) if complete else None,
            int(fields[_POLICY]) if complete else None,
            int(fields[_NICE]),
        )
    except ValueError:
        return None
