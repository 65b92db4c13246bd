"""Run-queue waits: /proc/schedstat (kernel/sched/stats.c, show_schedstat) and /proc/PID/schedstat (fs/proc/base.c,
proc_pid_schedstat)."""

from typing import NamedTuple


class RunQueue(NamedTuple):
    """How long tasks waited on a CPU's run queue in nanoseconds (run_delay), and the time slices run there (pcount)."""

    waited_ns: int
    slices: int


class TaskSched(NamedTuple):
    """How long a task ran and waited to run, in nanoseconds, and its time slices (pcount). A wait is added when it
    ends."""

    run_ns: int
    wait_ns: int
    slices: int


def parse_schedstat(content: bytes) -> dict[int, RunQueue]:
    """Run queues by CPU. The `cpuN` lines are the same in versions 15 to 17 of the file."""
    queues = {}
    for line in content.split(b"\n"):
        if line.startswith(b"cpu"):
            fields = line.split()
            if len(fields) >= 10:
                queues[int(fields[0][3:])] = RunQueue(int(fields[8]), int(fields[9]))
    return queues


def parse_task_schedstat(content: bytes) -> TaskSched | None:
    """Parse one task's line; None when it is truncated."""
    fields = content.split()
    return TaskSched(*map(int, fields[:3])) if len(fields) >= 3 else None
