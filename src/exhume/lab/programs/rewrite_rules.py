"""Replaces packet filter rules in a network namespace, over and over. Words: seconds, namespace file, rules file, pause
in seconds, restore command."""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

CLONE_NEWNET = 0x40000000


def main(seconds: float, path: str, rules: bytes, pause: float, command: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = os.open(path, os.O_RDONLY)
    if libc.setns(namespace, CLONE_NEWNET):
        sys.exit(os.strerror(ctypes.get_errno()))
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        subprocess.run([command], input=rules, check=False, capture_output=True, timeout=seconds + 5)
        time.sleep(pause)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).read_bytes(), float(sys.argv[4]), sys.argv[5])
