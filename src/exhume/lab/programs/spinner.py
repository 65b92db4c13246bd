"""The program that keeps one core busy in the kernel: one file of a cgroup, again and again. Standard library only.

Words: the core, the seconds, the file, and what to write to it (nothing: it is read). At the end it says in JSON what
it took. It ends by itself, also when whoever started it is gone.
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


def spin(core: int, seconds: float, path: str, words: bytes) -> dict[str, int | float]:
    """Keep the core busy for so long."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeIsUp

    os.sched_setaffinity(0, {core})
    fd = os.open(path, (os.O_WRONLY if words else os.O_RDONLY) | os.O_CLOEXEC)
    passes, longest = 0, 0.0
    signal.signal(signal.SIGALRM, ring)
    began = last = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        while True:
            one_pass(fd, words)
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


def one_pass(fd: int, words: bytes) -> None:
    if not words:
        os.lseek(fd, 0, os.SEEK_SET)
        os.read(fd, 1 << 16)
        return
    # Less can be reclaimed than is asked for.
    with contextlib.suppress(BlockingIOError):
        os.write(fd, words)


if __name__ == "__main__":
    if sys.stdin.readline() != "spin\n":
        sys.exit("not asked to spin")
    core, seconds, path, words = sys.argv[1:]
    try:
        sys.stdout.write(json.dumps(spin(int(core), float(seconds), path, words.encode())) + "\n")
    except OSError as error:
        sys.exit(error.strerror)
