"""Reads a file again and again, or writes the same words to it. Words: seconds, file, what to write (nothing: read)."""

import contextlib
import os
import signal
import sys
from types import FrameType


class TimeIsUp(Exception):
    """Raised by the alarm, also out of a system call: the kernel's loops look for signals between two passes."""


def ring(number: int, frame: FrameType | None) -> None:
    raise TimeIsUp


def use(path: str, words: bytes) -> None:
    fd = os.open(path, (os.O_WRONLY if words else os.O_RDONLY) | os.O_CLOEXEC)
    while True:
        if words:
            # Less can be reclaimed than is asked for.
            with contextlib.suppress(BlockingIOError):
                os.write(fd, words)
        else:
            os.lseek(fd, 0, os.SEEK_SET)
            os.read(fd, 1 << 16)


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
    with contextlib.suppress(TimeIsUp):
        use(sys.argv[2], sys.argv[3].encode())
