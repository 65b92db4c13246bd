"""Makes network namespaces and drops them, one after the other. Words: seconds, most, who (self, or
children: a new process for each).

With more than `most` of them in the kernel it waits until the cleanup has caught up."""

import ctypes
import os
import sys
import time
from pathlib import Path

CLONE_NEWNET = 0x40000000


def in_the_kernel() -> int:
    """Network namespaces that exist; 0 where the kernel doesn't tell."""
    content = Path("/proc/slabinfo").read_bytes()
    start = content.find(b"\nnet_namespace ")
    return int(content[start:].split(None, 2)[1]) if start >= 0 else 0


def in_a_child(libc: ctypes.CDLL) -> int:
    """Have a child make a namespace and end; 0 where it could."""
    child = os.fork()
    if child == 0:
        os._exit(1 if libc.unshare(CLONE_NEWNET) else 0)
    return os.waitpid(child, 0)[1]


def main(seconds: float, most: int, who: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    until = time.monotonic() + seconds
    made = 0
    while time.monotonic() < until:
        # A namespace goes with its last process, or when that gets a new one.
        if in_a_child(libc) if who == "children" else libc.unshare(CLONE_NEWNET):
            sys.exit("a network namespace can't be made here")
        made += 1
        while made % 32 == 0 and in_the_kernel() > most and time.monotonic() < until:
            time.sleep(0.02)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
