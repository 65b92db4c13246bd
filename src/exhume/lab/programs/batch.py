"""Batch work that fills a machine and starves no one. Run as: batch.py PROGRAM ARGUMENT..."""

import random
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

ROWS = 500
FRAME = (544, 960)


def repeat(seconds: str, jobs: str, directory: str, command: str) -> None:
    """Runs a shell command in a directory of its own for each job, again and again."""
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
    # Programs run without site-packages; this one needs numpy.
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


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
