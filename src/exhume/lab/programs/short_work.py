"""Works for a part of each tenth of a second, and sleeps the rest. Words: seconds, part."""

import sys
import time

SLICE_S = 0.1

if __name__ == "__main__":
    until = time.monotonic() + float(sys.argv[1])
    part = float(sys.argv[2])
    number = 1
    while (now := time.monotonic()) < until:
        # By its own CPU time: what it doesn't get, it tries to make up for.
        worked = time.process_time() + part * SLICE_S
        while time.process_time() < worked and time.monotonic() < until:
            for _ in range(1_000):
                number = (number * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        time.sleep(max(0.0, now + SLICE_S - time.monotonic()))
