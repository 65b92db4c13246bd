"""Threads that each write a file piece by piece and want every few pieces on disk at once. The files are written over
from their beginning, so they don't grow. Words: seconds, directory, threads, KiB of a piece, pieces between syncs, MiB
in all."""

import os
import sys
import threading
import time
from pathlib import Path

_FILE = 2 << 20


class Budget:
    """Bytes that may be written by all threads together, spread over the time that there is."""

    def __init__(self, total: int, seconds: float) -> None:
        # A second's worth may be written ahead of the time.
        self._rate = total / (seconds + 1.0)
        self._began = time.monotonic()
        self._spent = 0
        self._lock = threading.Lock()

    def spend(self, count: int) -> None:
        """Account for bytes; waits while they are too far ahead of the time."""
        with self._lock:
            self._spent += count
            ahead = self._spent / self._rate - (time.monotonic() - self._began) - 1.0
        if ahead > 0:
            time.sleep(ahead)


def scribble(path: Path, until: float, piece: bytes, between: int, budget: Budget) -> None:
    with path.open("wb", buffering=0) as file:
        number = 0
        while time.monotonic() < until:
            file.write(piece)
            number += 1
            if number % between == 0:
                # Once the file has its size there is nothing for the journal: the wait is for the disk itself.
                os.fdatasync(file.fileno())
            if file.tell() + len(piece) > _FILE:
                file.seek(0)
            budget.spend(len(piece))


if __name__ == "__main__":
    seconds, directory, threads, size, between, total = sys.argv[1:]
    until = time.monotonic() + float(seconds)
    budget = Budget(int(total) << 20, float(seconds))
    piece = os.urandom(int(size) << 10)
    writers = [
        threading.Thread(target=scribble, args=(Path(directory) / str(i), until, piece, int(between), budget))
        for i in range(int(threads))
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
