"""Programs that use the CPU. Run as: cpu.py PROGRAM ARGUMENT..."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

ROWS = 500
FRAME = (544, 960)


def repeat(seconds: str, jobs: str, directory: str, command: str) -> None:
    """Runs a shell command again and again, in a separate directory for each job."""
    until = time.monotonic() + float(seconds)
    places = [Path(directory, f"job{number}") for number in range(int(jobs))]
    running: dict[Path, subprocess.Popen[bytes]] = {}
    while time.monotonic() < until:
        for place in places:
            if place in running and running[place].poll() is None:
                continue
            if place in running and running[place].returncode:
                raise SystemExit(f"{command} ended with code {running[place].returncode}")
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            running[place] = subprocess.Popen(
                ["/bin/sh", "-c", command], cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        time.sleep(0.02)
    for process in running.values():
        process.kill()
        process.wait()


def database(seconds: str, path: str) -> None:
    """Writes, indexes and queries a database, in transactions."""
    until, dice = time.monotonic() + float(seconds), random.Random(1)
    with sqlite3.connect(path) as base:
        base.execute("create table orders (id integer primary key, customer integer, amount real, note text)")
        base.execute("create index by_customer on orders (customer)")
        while time.monotonic() < until:
            rows = [(dice.randrange(1000), dice.random(), "x" * dice.randrange(10, 200)) for _ in range(ROWS)]
            with base:
                base.executemany("insert into orders (customer, amount, note) values (?, ?, ?)", rows)
            query = "select customer, sum(amount), max(note) from orders where customer < ? group by customer"
            base.execute(query, (dice.randrange(200),)).fetchall()


def encode(seconds: str, packages: str) -> None:
    """Transforms and quantises frames block by block, as a video encoder does, with vector instructions."""
    # Programs run without site-packages, but this one needs numpy.
    sys.path.append(packages)
    import numpy as np

    until, dice = time.monotonic() + float(seconds), np.random.default_rng(1)
    steps = np.arange(8)
    cosines = np.cos((2 * steps[None, :] + 1) * steps[:, None] * np.pi / 16).astype(np.float32)
    frame = dice.random(FRAME, np.float32)
    while time.monotonic() < until:
        blocks = frame.reshape(FRAME[0] // 8, 8, FRAME[1] // 8, 8).swapaxes(1, 2)
        changed = cosines @ blocks @ cosines.T
        frame = np.roll(np.round(changed * 16).swapaxes(1, 2).reshape(FRAME) % 255 / 255, 1, axis=1).astype(np.float32)


# A program works for a share of each period, and sleeps for the rest.
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
    """Compresses in many threads without a pause; zlib releases the interpreter lock meanwhile."""
    until = time.monotonic() + float(seconds)
    block = os.urandom(1 << 20)

    def work() -> None:
        while time.monotonic() < until:
            zlib.compress(block, 6)

    _in_threads(work, count)


def short_work(seconds: str, share: str) -> None:
    """Works for a share of the time by its own CPU time: time that it didn't get, it tries to make up for."""
    until, part = time.monotonic() + float(seconds), float(share)
    while (now := time.monotonic()) < until:
        worked = time.process_time() + part * PERIOD_S
        while time.process_time() < worked and time.monotonic() < until:
            churn(1_000)
        time.sleep(max(0.0, now + PERIOD_S - time.monotonic()))


def sleepers(seconds: str, count: str) -> None:
    """Many threads that wake up, find nothing to do, and sleep again."""
    end = time.monotonic() + float(seconds)

    def rest() -> None:
        while time.monotonic() < end:
            time.sleep(NAP_S)

    _in_threads(rest, count)


def _in_threads(work: Callable[[], None], count: str) -> None:
    threads = [threading.Thread(target=work) for _ in range(int(count))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
