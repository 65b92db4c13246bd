"""What compares moments can't have others hold it up: a real-time priority for as long as that matters."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def on_time() -> Iterator[None]:
    """This thread, and whatever it starts meanwhile, runs the moment that it wants to: others on the machine neither
    hold it up nor move what it does to another time."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)
