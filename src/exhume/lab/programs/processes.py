"""Programs that start, supervise or lose processes. Run as: processes.py PROGRAM ARGUMENT..."""

import contextlib
import os
import random
import secrets
import sys
import time
from pathlib import Path


def fork_loop(seconds: str, program: str) -> None:
    """Starts processes that exit at once, one after the other: forks (`fork`), or a program."""
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        for _ in range(50):
            if program == "fork":
                child = os.fork()
                if child == 0:
                    os._exit(0)
            else:
                child = os.posix_spawn(program, [program], {})
            os.waitpid(child, 0)


def spawn(seconds: str, per_second: str) -> None:
    """Starts short programs at a steady pace, as build tools and health checks do."""
    until, pause = time.monotonic() + float(seconds), 1.0 / float(per_second)
    due = time.monotonic()
    while due < until:
        time.sleep(max(0.0, due - time.monotonic()))
        os.waitpid(os.posix_spawn("/bin/sh", ["/bin/sh", "-c", ":"], os.environ), 0)
        # After a stall, don't make up for the missed ones.
        due = max(due + pause, time.monotonic() - pause)


def build(seconds: str, jobs: str, job_s: str) -> None:
    """Keeps this many jobs running, as build tools do: each computes for about the given time and exits."""
    until, rng = time.monotonic() + float(seconds), random.Random(jobs + job_s)
    running: set[int] = set()
    while time.monotonic() < until:
        while len(running) < int(jobs):
            work_s = float(job_s) * rng.uniform(0.5, 1.5)
            child = os.fork()
            if child == 0:
                while time.process_time() < work_s and time.monotonic() < until:
                    sum(range(1000))
                os._exit(0)
            running.add(child)
        running.discard(os.wait()[0])


def supervise(seconds: str, pause: str, parent: str, name: str, *command: str) -> None:
    """Restarts a command whenever it ends, as service managers do, in a cgroup of its own if a parent is given
    (otherwise -). Without a name, the cgroup has a new id each time."""
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        cgroup = None if parent == "-" else Path(parent, name or secrets.token_hex(32))
        if cgroup is not None:
            cgroup.mkdir()
        child = os.fork()
        if child == 0:
            if cgroup is not None:
                (cgroup / "cgroup.procs").write_text(str(os.getpid()))
            os.execv(command[0], command)
        os.waitpid(child, 0)
        if cgroup is not None:
            remove(cgroup)
        time.sleep(float(pause))


def remove(cgroup: Path) -> None:
    """Remove a cgroup, which is empty only a moment after its last process ended."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            cgroup.rmdir()
            return
        time.sleep(0.01)


def failing_service(work_s: str, wait_s: str) -> None:
    """A service that finds out during its start that it can't work."""
    until = time.monotonic() + float(work_s)
    settings: dict[int, str] = {}
    while time.monotonic() < until:
        settings[len(settings) % 5000] = str(len(settings)) * 8
    time.sleep(float(wait_s))
    sys.exit(1)


PAUSE_S = 0.3


def crash_and_leak(seconds: str, parent: str, pages: str, in_one_life: str, *joins: str) -> None:
    """Starts a child that creates cgroups, leaves a page in each, removes them and crashes; then another one, again and
    again. `joins` are the path of the file to join the cgroup in which it is between two others, and the name of that
    file in each of those."""
    home, join = joins
    until = time.monotonic() + float(seconds)
    life = 0
    while time.monotonic() < until:
        child = os.fork()
        if child == 0:
            for number in range(int(in_one_life)):
                cgroup = f"{parent}/task-{life}-{number}"
                os.mkdir(cgroup)  # noqa: PTH102 (pathlib allocates more, which is charged)
                write(f"{cgroup}/{join}", "0")
                write(f"{pages}/{life}-{number}", "left")
                write(home, "0")
                os.rmdir(cgroup)  # noqa: PTH106
            os.abort()
        os.waitpid(child, 0)
        life += 1
        time.sleep(PAUSE_S)


def write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(text)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
