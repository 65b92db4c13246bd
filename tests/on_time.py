"""Real-time priority for tests that compare moments."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def on_time() -> Iterator[None]:
    """SCHED_FIFO for this thread and the processes it starts, so that other work on the host doesn't delay them."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)
