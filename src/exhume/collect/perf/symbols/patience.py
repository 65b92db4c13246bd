"""Reading files that may never answer: a dead NFS server or FUSE daemon blocks whoever touches its files.

The recorder must not hang with the programs that it watches, so files on such filesystems are read by a thread
that is left behind when it takes too long, and the filesystem is left alone until that thread comes back.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_PATIENCE_S = 1.0


class Patience:
    """Runs jobs that touch a device's files, and gives up on devices that don't answer."""

    def __init__(self, seconds: float = _PATIENCE_S) -> None:
        self._seconds = seconds
        self._stuck: dict[int, threading.Thread] = {}

    def run(self, major: int, minor: int, job: Callable[[], T], otherwise: T) -> T:
        """What the job returns, or `otherwise` when the device doesn't answer in time.

        Only devices without a number of their own (major 0: network, FUSE, overlay and the like) get a thread;
        disks answer.
        """
        if major:
            return job()
        stuck = self._stuck.get(minor)
        if stuck is not None:
            if stuck.is_alive():
                return otherwise
            del self._stuck[minor]
        answer: list[T] = []
        # A daemon, so that a thread that never returns doesn't keep the recorder from ending.
        thread = threading.Thread(target=lambda: answer.append(job()), daemon=True)
        thread.start()
        thread.join(self._seconds)
        if thread.is_alive():
            self._stuck[minor] = thread
            return otherwise
        return answer[0] if answer else otherwise
