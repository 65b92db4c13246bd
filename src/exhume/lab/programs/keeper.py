"""Ends all processes of a run as soon as whoever started it is gone, however that ended. Words: the run's mark.

It sleeps until its standard input ends, which the kernel sees to even after kill -9. Processes of a run carry its mark
in their environment, and so does all that they start: no child gets lost by losing its parent.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

MARK = "EXHUME_LAB_RUN"
_PATIENCE_S = 5.0


def marked(run: str) -> list[int]:
    """The living processes of a run, but not this one."""
    wanted = f"{MARK}={run}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                # Of a process that ended and waits to be reaped this file is empty.
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def end_marked(run: str) -> list[int]:
    """End every process of a run; returns those that don't end, because they are stuck in the kernel."""
    deadline = time.monotonic() + _PATIENCE_S
    while found := marked(run):
        if time.monotonic() > deadline:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    return found


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_marked(sys.argv[1])
