"""Starts a command again whenever it ends, as service managers do, in a cgroup of its own where a parent is given.

Words: seconds, pause, parent cgroup (or -), name of the cgroup (empty: a new id each time), command...
"""

import contextlib
import os
import secrets
import sys
import time
from pathlib import Path


def run(command: list[str], cgroup: Path | None) -> None:
    """Run the command to its end."""
    child = os.fork()
    if child == 0:
        if cgroup is not None:
            (cgroup / "cgroup.procs").write_text(str(os.getpid()))
        os.execv(command[0], command)
    os.waitpid(child, 0)


def remove(cgroup: Path) -> None:
    """A cgroup is empty only a moment after its last process ended."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            cgroup.rmdir()
            return
        time.sleep(0.01)


if __name__ == "__main__":
    until, pause = time.monotonic() + float(sys.argv[1]), float(sys.argv[2])
    parent, name, command = sys.argv[3], sys.argv[4], sys.argv[5:]
    while time.monotonic() < until:
        cgroup = None if parent == "-" else Path(parent) / (name or secrets.token_hex(32))
        if cgroup is not None:
            cgroup.mkdir()
        run(command, cgroup)
        if cgroup is not None:
            remove(cgroup)
        time.sleep(pause)
