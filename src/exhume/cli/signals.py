"""Signals that stop a command in an orderly way."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from exhume.model.stop import Stop

# A closed terminal (SIGHUP) ends the work as orderly as Ctrl-C does.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _handled(handler: Callable[..., None]) -> Iterator[None]:
    """Handle the signals in this way. What runs under nohup outlives its terminal."""
    heeded = [n for n in STOPPING if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def stopped_by_signals(message: str = "") -> Iterator[Stop]:
    """The signals request a stop, so that what was begun is ended well. A second one changes nothing: an impatient
    Ctrl-C can't leave it half done. `message` is printed for the first, where what was begun may take its time."""
    stop = Stop()

    def heed(*_: object) -> None:
        if message and not stop.is_set():
            # Not print: the signal may come in the middle of one. stderr may be closed.
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
    """The first signal ends the work by a KeyboardInterrupt, wherever it is; more of them don't disturb its clearing
    away."""

    def end(*_: object) -> NoReturn:
        for number in STOPPING:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    with _handled(end):
        yield
