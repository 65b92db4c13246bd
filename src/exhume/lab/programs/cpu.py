"""Programs that use the CPU. Run as: cpu.py PROGRAM ARGUMENT..."""

import os
import sys
import threading
import time
import zlib


def run_compute(argv: list[str]) -> None:
    """Computes without a pause, in user mode. Arguments: seconds."""
    until = time.monotonic() + float(argv[1])
    number = 1
    while time.monotonic() < until:
        for _ in range(10_000):
            number = (number * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF


PERIOD_S = 0.1


def run_compress(argv: list[str]) -> None:
    """Compresses for a share of the time, as healthy batch work does. Arguments: seconds, share of a core."""
    until, share = time.monotonic() + float(argv[1]), float(argv[2])
    block = bytes(range(256)) * 64 + os.urandom(16 << 10)
    while (began := time.monotonic()) < until:
        while time.monotonic() - began < share * PERIOD_S:
            zlib.compress(block, 6)
        time.sleep(max(0.0, began + PERIOD_S - time.monotonic()))


SLICE_S = 0.1


def run_short_work(argv: list[str]) -> None:
    """Works for a part of each tenth of a second, and sleeps the rest. Arguments: seconds, part."""
    until = time.monotonic() + float(argv[1])
    part = float(argv[2])
    number = 1
    while (now := time.monotonic()) < until:
        # By its own CPU time: what it doesn't get, it tries to make up for.
        worked = time.process_time() + part * SLICE_S
        while time.process_time() < worked and time.monotonic() < until:
            for _ in range(1_000):
                number = (number * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        time.sleep(max(0.0, now + SLICE_S - time.monotonic()))


NAP_S = 0.05


def rest(until: float) -> None:
    while time.monotonic() < until:
        time.sleep(NAP_S)


def run_sleepers(argv: list[str]) -> None:
    """Many threads that wake up, find nothing to do, and sleep on. Arguments: seconds, threads."""
    end = time.monotonic() + float(argv[1])
    threads = [threading.Thread(target=rest, args=(end,)) for _ in range(int(argv[2]))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


PROGRAMS = {
    "compute": run_compute,
    "compress": run_compress,
    "short_work": run_short_work,
    "sleepers": run_sleepers,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](sys.argv[1:])
