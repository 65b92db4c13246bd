"""A program that keeps one core busy in the kernel with one file of a cgroup. Standard library only.

Arguments: the core, the seconds, the file, and what to write to it (nothing: it is read). At the end it prints what it
took, as JSON. It ends by itself, also when its starter is gone.
"""

import contextlib
import json
import os
import resource
import signal
import sys
import time
from types import FrameType


class TimeIsUp(Exception):
    """Raised by the alarm, also out of a system call: the kernel's loops look for signals between two passes."""


def spin(core: int, seconds: float, path: str, data: bytes) -> dict[str, int | float]:
    """Keep the core busy for so long."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeIsUp

    os.sched_setaffinity(0, {core})
    fd = os.open(path, (os.O_WRONLY if data else os.O_RDONLY) | os.O_CLOEXEC)
    passes, longest = 0, 0.0
    signal.signal(signal.SIGALRM, ring)
    began = last = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        while True:
            one_pass(fd, data)
            now = time.monotonic()
            passes, longest, last = passes + 1, max(longest, now - last), now
    except TimeIsUp:
        pass
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "passes": passes,
        "longest_s": max(longest, time.monotonic() - last),
        "elapsed_s": time.monotonic() - began,
        "system_s": used.ru_stime,
        "user_s": used.ru_utime,
    }


def one_pass(fd: int, data: bytes) -> None:
    if not data:
        os.lseek(fd, 0, os.SEEK_SET)
        os.read(fd, 1 << 16)
        return
    # Less can be reclaimed than is asked for.
    with contextlib.suppress(BlockingIOError):
        os.write(fd, data)


if __name__ == "__main__":
    if sys.stdin.readline() != "spin\n":
        sys.exit("not asked to spin")
    core, seconds, path, data = sys.argv[1:]
    try:
        sys.stdout.write(json.dumps(spin(int(core), float(seconds), path, data.encode())) + "\n")
    except OSError as error:
        sys.exit(error.strerror)
