"""Programs that use the CPU. Run as: cpu.py PROGRAM ARGUMENT..."""

import os
import sys
import threading
import time
import zlib

# A program works for a share of each period, and sleeps the rest.
PERIOD_S = 0.1
NAP_S = 0.05


def churn(rounds: int) -> None:
    number = 1
    for _ in range(rounds):
        number = (number * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF


def compute(seconds: str) -> None:
    """Computes without a pause, in user mode."""
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        churn(10_000)


def compress(seconds: str, share: str) -> None:
    """Compresses for a share of the time, as healthy batch work does."""
    until, part = time.monotonic() + float(seconds), float(share)
    block = bytes(range(256)) * 64 + os.urandom(16 << 10)
    while (began := time.monotonic()) < until:
        while time.monotonic() - began < part * PERIOD_S:
            zlib.compress(block, 6)
        time.sleep(max(0.0, began + PERIOD_S - time.monotonic()))


def compress_threads(seconds: str, count: str) -> None:
    """Compresses in many threads without a pause; the interpreter lets other threads run meanwhile."""
    until = time.monotonic() + float(seconds)
    block = os.urandom(1 << 20)

    def work() -> None:
        while time.monotonic() < until:
            zlib.compress(block, 6)

    threads = [threading.Thread(target=work) for _ in range(int(count))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


def short_work(seconds: str, share: str) -> None:
    """Works for a share of the time by its own CPU time: what it doesn't get, it tries to make up for."""
    until, part = time.monotonic() + float(seconds), float(share)
    while (now := time.monotonic()) < until:
        worked = time.process_time() + part * PERIOD_S
        while time.process_time() < worked and time.monotonic() < until:
            churn(1_000)
        time.sleep(max(0.0, now + PERIOD_S - time.monotonic()))


def sleepers(seconds: str, count: str) -> None:
    """Many threads that wake up, find nothing to do, and sleep on."""
    end = time.monotonic() + float(seconds)

    def rest() -> None:
        while time.monotonic() < end:
            time.sleep(NAP_S)

    threads = [threading.Thread(target=rest) for _ in range(int(count))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
