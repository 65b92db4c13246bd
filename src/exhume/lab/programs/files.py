"""Writes, reads and removes files at a steady pace, as a service with a log and a spool does.
Words: seconds, directory, KiB a second."""

import os
import sys
import time
from pathlib import Path

FILES, CHUNK = 16, 64 << 10
FSYNC_EVERY_S = 1.0

if __name__ == "__main__":
    until, directory, rate = time.monotonic() + float(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]) * 1024
    directory.mkdir(exist_ok=True)
    chunk, number, synced = os.urandom(CHUNK), 0, time.monotonic()
    while (began := time.monotonic()) < until:
        path = directory / str(number % FILES)
        with path.open("wb") as file:
            file.write(chunk)
            if began - synced > FSYNC_EVERY_S:
                synced = began
                file.flush()
                os.fsync(file.fileno())
        path.read_bytes()
        if number >= FILES:
            path.unlink()
        number += 1
        time.sleep(max(0.0, began + CHUNK / rate - time.monotonic()))
