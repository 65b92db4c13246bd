"""Signals that ask a command to stop, in order."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

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
