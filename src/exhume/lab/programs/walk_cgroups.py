"""Walks a cgroup and all below it, and reads what each says of itself. Words: seconds, cgroup."""

import contextlib
import os
import sys
import time

FILES = ("memory.stat", "memory.usage_in_bytes", "memory.current", "cgroup.procs", "pids.current", "cpu.stat")


def walk(path: str, until: float) -> None:
    for directory, _, names in os.walk(path):
        for name in FILES:
            if name in names:
                with contextlib.suppress(OSError), open(f"{directory}/{name}", "rb") as file:  # noqa: PTH123
                    file.read()
        if time.monotonic() >= until:
            return


if __name__ == "__main__":
    until = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < until:
        walk(sys.argv[2], until)
