"""Takes memory, writes to it, and gives it back, a few times a second. Words: seconds, megabytes."""

import mmap
import sys
import time

PAUSE_S = 0.2

if __name__ == "__main__":
    until = time.monotonic() + float(sys.argv[1])
    size = int(sys.argv[2]) << 20
    while time.monotonic() < until:
        held = bytearray(size)
        held[:: mmap.PAGESIZE] = b"x" * len(held[:: mmap.PAGESIZE])
        time.sleep(PAUSE_S)
        del held
