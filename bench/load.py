"""A load to measure under: every core busy with compression, and a steady stream of short-lived processes.

The work is bounded (memory, processes) and paced, so that what is measured meets the same load every time.
"""

import argparse
import contextlib
import multiprocessing
import os
import time
import zlib
from collections.abc import Iterator

FORKS_PER_SECOND = 900
BLOCK_BYTES = 256 << 10
SHORT_LIVED = ("/bin/sh", "-c", ":")


def compress_and_fork(core: int, forks_per_second: float) -> None:
    """Compress on one core while the parent process lives; start and reap a short-lived process when one is due."""
    os.sched_setaffinity(0, {core})
    block = bytes(range(256)) * (BLOCK_BYTES // 512) + os.urandom(BLOCK_BYTES // 2)
    due = time.monotonic()
    parent = os.getppid()
    # The parent may be killed, and then cannot end the load.
    while os.getppid() == parent:
        zlib.compress(block, 6)
        now = time.monotonic()
        # After a stall the missed ones are not made up for: a burst would be another load.
        due = max(due, now - 0.1)
        while due <= now:
            os.waitpid(os.posix_spawn(SHORT_LIVED[0], SHORT_LIVED, os.environ), 0)
            due += 1.0 / forks_per_second
            now = time.monotonic()


@contextlib.contextmanager
def load(forks_per_second: float = FORKS_PER_SECOND) -> Iterator[None]:
    """The load on every core that this process may use, for as long as the block lasts."""
    cores = sorted(os.sched_getaffinity(0))
    workers = [
        multiprocessing.get_context("spawn").Process(
            target=compress_and_fork, args=(core, forks_per_second / len(cores)), daemon=True
        )
        for core in cores
    ]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    with load():
        time.sleep(seconds)


if __name__ == "__main__":
    main()
