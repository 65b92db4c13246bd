"""Computes without a pause, in user mode. Words: seconds."""

import sys
import time

if __name__ == "__main__":
    until = time.monotonic() + float(sys.argv[1])
    number = 1
    while time.monotonic() < until:
        for _ in range(10_000):
            number = (number * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
