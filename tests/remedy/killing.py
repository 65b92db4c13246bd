"""Processes that kill themselves, as kill -9 would, at a chosen point of a fix."""

import os
import signal
from collections.abc import Callable

from exhume.remedy.fixer import Point
from exhume.remedy.ledger import Entry

# What changes files; a crash can come before any of them.
CALLS = ("rename", "fsync", "mkdir", "unlink", "rmdir", "open", "symlink", "chmod")


def killed(work: Callable[[], object]) -> bool:
    """Do it in a process of its own; whether that was killed. Anything else than that or a good end fails."""
    pid = os.fork()
    if pid == 0:
        code = 3
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert status in (0, signal.SIGKILL), f"it ended with {status}"
    return status == signal.SIGKILL


def die_at_point(number: int) -> Callable[[Point, Entry], None]:
    """Kills the process at the n-th point."""
    left = iter(range(number, -1, -1))

    def hear(point: Point, entry: Entry) -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return hear


def die_at_call(number: int) -> None:
    """From now on this process does not live to make its n-th call that changes files."""
    left = iter(range(number, -1, -1))

    def deadly(real: Callable[..., object]) -> Callable[..., object]:
        def call(*words: object, **more: object) -> object:
            if next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*words, **more)

        return call

    for name in CALLS:
        setattr(os, name, deadly(getattr(os, name)))
