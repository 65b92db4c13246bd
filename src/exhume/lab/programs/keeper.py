"""A program that ends all processes of a run when its starter is gone, however that ended. Argument: the run's mark.

It sleeps until its standard input is closed, which the kernel does even after kill -9. Processes of a run carry its
mark in their environment, and so does everything that they start: no child is lost because its parent is gone.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

MARK = "EXHUME_LAB_RUN"
_PATIENCE_S = 30.0
_PAUSE_S = 0.01
_LOOKS = 2


def marked(run: str) -> list[int]:
    """The living processes of a run, except this one."""
    wanted = f"{MARK}={run}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                # This file is empty for a process that ended and waits to be reaped.
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def end_marked(run: str) -> list[int]:
    """End every process of a run; return those that don't end because they are stuck in the kernel."""
    deadline = time.monotonic() + _PATIENCE_S
    found, looks_left = marked(run), 0
    while found or looks_left:
        if time.monotonic() > deadline:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # A process has no environment for a moment during an exec, so look again after none was found.
        looks_left = _LOOKS if found else looks_left - 1
        time.sleep(_PAUSE_S)
        found = marked(run)
    return found


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end_marked(sys.argv[1])
