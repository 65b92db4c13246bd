"""Asks again and again whether a record of a file is locked. The kernel looks at all locks of the file for that, with
one spinlock held. Words: seconds, file."""

import fcntl
import struct
import sys
import time
from pathlib import Path

# struct flock: type, whence, start, length, pid.
QUESTION = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 1, 1, 0)

if __name__ == "__main__":
    until = time.monotonic() + float(sys.argv[1])
    with Path(sys.argv[2]).open("r+b") as file:
        while time.monotonic() < until:
            for _ in range(100):
                fcntl.fcntl(file, fcntl.F_GETLK, QUESTION)
