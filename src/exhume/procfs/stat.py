"""/proc/stat (fs/proc/stat.c, show_stat): the time that each CPU spent in each state, and machine-wide counts."""

import numpy as np
from numpy.typing import NDArray

CPU_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
_TOTALS = ("intr", "ctxt", "processes", "procs_running", "procs_blocked")


def parse_cpu_times(content: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The online CPUs, and their times in clock ticks: a row per CPU, a column for each of CPU_STATES.

    `user` and `nice` include the guest time; `idle` and `iowait` may go backwards.
    """
    start = content.find(b"\n") + 1
    end = content.find(b"\nintr", start - 1)
    table = content[start : end if end >= 0 else len(content)]
    if not table.startswith(b"cpu"):
        # In some configurations a kernel for one CPU prints only the total.
        table = b"cpu0" + content[3:start]
    width = len(table[: table.find(b"\n") if b"\n" in table else len(table)].split())
    numbers = np.fromstring(table.replace(b"cpu", b" "), np.int64, sep=" ").reshape(-1, width)
    times = np.zeros((len(numbers), len(CPU_STATES)), np.int64)
    width = min(width - 1, len(CPU_STATES))
    times[:, :width] = numbers[:, 1 : width + 1]
    return numbers[:, 0], times


def parse_machine_times(content: bytes) -> list[int]:
    """The first line: the times of all CPUs in clock ticks, in the order of CPU_STATES."""
    return [int(value) for value in content.partition(b"\n")[0].split()[1:]]


def parse_totals(content: bytes) -> dict[str, int]:
    """Machine-wide counts by the kernel's names: intr, ctxt, processes, procs_running, procs_blocked."""
    totals = {}
    for name in _TOTALS:
        label = b"\n%s " % name.encode()
        start = content.find(label)
        if start >= 0:
            # Only the first number: the interrupt line continues with one for each interrupt of the machine.
            first = start + len(label)
            end = min(at for at in (content.find(b" ", first), content.find(b"\n", first), len(content)) if at >= 0)
            totals[name] = int(content[first:end])
    return totals
