"""Signals that stop a command cleanly."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from exhume.model.stop import Stop

# A closed terminal (SIGHUP) stops the command as cleanly as Ctrl-C does.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _handled(handler: Callable[..., None]) -> Iterator[None]:
    """Install a handler for the stop signals. A command under nohup keeps ignoring SIGHUP and outlives its terminal."""
    heeded = [n for n in STOPPING if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def stopped_by_signals(message: str = "") -> Iterator[Stop]:
    """Signals request a stop, so that work in progress is finished cleanly. Further signals change nothing: an
    impatient Ctrl-C can't leave it half done. `message` is printed for the first one, if finishing may take a while."""
    stop = Stop()

    def heed(*_: object) -> None:
        if message and not stop.is_set():
            # Not print(), which the signal may have interrupted. stderr may be closed.
            with suppress(OSError):
                os.write(sys.stderr.fileno(), f"{message}\n".encode())
        stop.set()

    try:
        with _handled(heed):
            yield stop
    finally:
        stop.close()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """The first signal raises KeyboardInterrupt wherever the work is; further ones do not disturb the cleanup."""

    def end(*_: object) -> NoReturn:
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    with _handled(end):
        yield
