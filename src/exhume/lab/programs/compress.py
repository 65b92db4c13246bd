"""Compresses for a share of the time, as healthy batch work does. Words: seconds, share of a core."""

import os
import sys
import time
import zlib

PERIOD_S = 0.1

if __name__ == "__main__":
    until, share = time.monotonic() + float(sys.argv[1]), float(sys.argv[2])
    block = bytes(range(256)) * 64 + os.urandom(16 << 10)
    while (began := time.monotonic()) < until:
        while time.monotonic() - began < share * PERIOD_S:
            zlib.compress(block, 6)
        time.sleep(max(0.0, began + PERIOD_S - time.monotonic()))
