"""Signals that ask a command to stop, in order."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from exhume.model.stop import Stop

# A closed terminal (SIGHUP) ends the work as orderly as Ctrl-C does.
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """The signals ask for a stop, so that what was begun is ended well. A second one changes nothing: an impatient
    Ctrl-C can't leave it half done. What runs under nohup outlives its terminal."""
    stop = Stop()
    heeded = [n for n in STOPPING if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in heeded}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.close()


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """The first signal ends the work by a KeyboardInterrupt, wherever it is; more of them don't disturb its clearing
    away."""

    def end(*_: object) -> NoReturn:
        for number in heeded:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    heeded = [n for n in STOPPING if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
