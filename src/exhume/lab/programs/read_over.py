"""Reads a file from its beginning to its end, over and over, in a network namespace. Words: seconds, namespace file,
file."""

import ctypes
import os
import sys
import time

CLONE_NEWNET = 0x40000000


def main(seconds: float, path: str, file: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = os.open(path, os.O_RDONLY)
    if libc.setns(namespace, CLONE_NEWNET):
        sys.exit(os.strerror(ctypes.get_errno()))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        opened = os.open(file, os.O_RDONLY)
        while os.read(opened, 1 << 20) and time.monotonic() < until:
            pass
        os.close(opened)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], sys.argv[3])
