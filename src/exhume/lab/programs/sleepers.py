"""Many threads that wake up, find nothing to do, and sleep on. Words: seconds, threads."""

import sys
import threading
import time

NAP_S = 0.05


def rest(until: float) -> None:
    while time.monotonic() < until:
        time.sleep(NAP_S)


if __name__ == "__main__":
    end = time.monotonic() + float(sys.argv[1])
    threads = [threading.Thread(target=rest, args=(end,)) for _ in range(int(sys.argv[2]))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
