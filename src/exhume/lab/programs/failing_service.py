"""A service that finds out while it starts that it can't work. Words: seconds of work, seconds of waiting."""

import sys
import time

if __name__ == "__main__":
    until = time.monotonic() + float(sys.argv[1])
    settings: dict[int, str] = {}
    while time.monotonic() < until:
        settings[len(settings) % 5000] = str(len(settings)) * 8
    time.sleep(float(sys.argv[2]))
    sys.exit(1)
