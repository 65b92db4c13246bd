"""Programs that start, supervise or lose processes. Run as: processes.py PROGRAM ARGUMENT..."""

import contextlib
import os
import secrets
import sys
import time
from pathlib import Path


def run_fork_loop(argv: list[str]) -> None:
    """Starts processes that end at once, one after the other. Arguments: seconds, fork | PROGRAM to run."""
    until, program = time.monotonic() + float(argv[1]), argv[2]
    while time.monotonic() < until:
        for _ in range(50):
            if program == "fork":
                child = os.fork()
                if child == 0:
                    os._exit(0)
            else:
                child = os.posix_spawn(program, [program], {})
            os.waitpid(child, 0)


def run_spawn(argv: list[str]) -> None:
    """Starts short programs at a steady pace, as build tools and health checks do.

    Arguments: seconds, programs a second.
    """
    until, pause = time.monotonic() + float(argv[1]), 1.0 / float(argv[2])
    due = time.monotonic()
    while due < until:
        time.sleep(max(0.0, due - time.monotonic()))
        os.waitpid(os.posix_spawn("/bin/sh", ["/bin/sh", "-c", ":"], os.environ), 0)
        # After a stall the missed ones are not made up for.
        due = max(due + pause, time.monotonic() - pause)


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


def run_supervise(argv: list[str]) -> None:
    """Starts a command again whenever it ends, as service managers do, in a cgroup of its own where a parent is given.

    Arguments: seconds, pause, parent cgroup (or -), name of the cgroup (empty: a new id each time), command...
    """
    until, pause = time.monotonic() + float(argv[1]), float(argv[2])
    parent, name, command = argv[3], argv[4], argv[5:]
    while time.monotonic() < until:
        cgroup = None if parent == "-" else Path(parent) / (name or secrets.token_hex(32))
        if cgroup is not None:
            cgroup.mkdir()
        run(command, cgroup)
        if cgroup is not None:
            remove(cgroup)
        time.sleep(pause)


def run_failing_service(argv: list[str]) -> None:
    """A service that finds out while it starts that it can't work. Arguments: seconds of work, seconds of waiting."""
    until = time.monotonic() + float(argv[1])
    settings: dict[int, str] = {}
    while time.monotonic() < until:
        settings[len(settings) % 5000] = str(len(settings)) * 8
    time.sleep(float(argv[2]))
    sys.exit(1)


PAUSE_S = 0.3


def leak(life: int, args: list[str]) -> None:
    parent, home, join, pages, count = args
    for number in range(int(count)):
        cgroup = f"{parent}/task-{life}-{number}"
        os.mkdir(cgroup)  # noqa: PTH102 (pathlib takes longer to load)
        with open(f"{cgroup}/{join}", "w") as inside:  # noqa: PTH123
            inside.write("0")
        with open(f"{pages}/{life}-{number}", "w") as page:  # noqa: PTH123
            page.write("left")
        with open(home, "w") as outside:  # noqa: PTH123
            outside.write("0")
        os.rmdir(cgroup)  # noqa: PTH106
    os.abort()


def crash_again_and_again(until: float, args: list[str]) -> None:
    life = 0
    while time.monotonic() < until:
        child = os.fork()
        if child == 0:
            leak(life, args)
        os.waitpid(child, 0)
        life += 1
        time.sleep(PAUSE_S)


def run_crash_and_leak(argv: list[str]) -> None:
    """Starts a child that makes cgroups, leaves a page in each, removes them and crashes; and another one, again and
    again.

    Arguments: seconds, parent cgroup, join file of the cgroup between two, name of a cgroup's join file, directory
    for pages, cgroups in one life.
    """
    crash_again_and_again(time.monotonic() + float(argv[1]), argv[2:])


PROGRAMS = {
    "fork_loop": run_fork_loop,
    "spawn": run_spawn,
    "supervise": run_supervise,
    "failing_service": run_failing_service,
    "crash_and_leak": run_crash_and_leak,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](sys.argv[1:])
