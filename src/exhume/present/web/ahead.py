"""Reading ahead while the server is still starting: what the first view shows is read by processes that end with it."""

import os
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from exhume.store.read.index import Segment

# A node that is looked at may be busy: two processes.
_PROCESSES = 2
# Below so many segments it is not worth a process.
_WORTH_IT = 60


class Ahead:
    """Forked at once, without a thread, so that more processes can be forked later."""

    def __init__(self, segments: Sequence[Segment], make: Callable[[Sequence[Segment]], list[Any]]) -> None:
        chosen = list(segments) if len(segments) >= _WORTH_IT else []
        size = -(-len(chosen) // _PROCESSES)
        self.parts = [chosen[place : place + size] for place in range(0, len(chosen), size or 1)]
        self._children = [_forked(make, part) for part in self.parts]

    def found(self) -> list[list[Any] | None]:
        """What each part answered; None where its process was killed. Waits for them."""
        return [_taken(pid, descriptor) for pid, descriptor in self._children]


def _forked(make: Callable[[Sequence[Segment]], list[Any]], part: list[Segment]) -> tuple[int, int]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        os.close(reading)
        # All at the end: nobody takes anything out of the pipe before the server has started.
        told = pickle.dumps(make(part))
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(told)
    finally:
        os._exit(0)


def _taken(pid: int, descriptor: int) -> list[Any] | None:
    with os.fdopen(descriptor, "rb") as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    try:
        found: list[Any] = pickle.loads(told)
    except (EOFError, pickle.UnpicklingError):
        return None
    return found
