"""Holds many record locks on one file: whoever asks for one looks at each of them. Words: seconds, file, count."""

import fcntl
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    until = time.monotonic() + float(sys.argv[1])
    with Path(sys.argv[2]).open("r+b") as file:
        for place in range(int(sys.argv[3])):
            # With a byte between them, or the kernel makes one of two.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * place)
        while time.monotonic() < until:
            time.sleep(0.1)
