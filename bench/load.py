"""Loads to measure under: every core busy with compression, and a steady stream of short-lived processes; or one core
that is kept in the kernel.

The work is bounded (memory, processes) and paced, so that what is measured meets the same load every time.
"""

import argparse
import contextlib
import multiprocessing
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

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


# Reads a file that the kernel writes as it is read: its table of symbols.
_READER = """
import os
source = os.open("/proc/kallsyms", os.O_RDONLY)
while True:
    os.read(source, 1 << 20) or os.lseek(source, 0, os.SEEK_SET)
"""


@contextlib.contextmanager
def hold_core() -> Iterator[subprocess.Popen[bytes]]:
    """A program that keeps the last core in the kernel, for as long as the block lasts."""
    program = subprocess.Popen([sys.executable, "-c", _READER], start_new_session=True)
    try:
        os.sched_setaffinity(program.pid, {max(os.sched_getaffinity(0))})
        # Before all others, which may want that core too. By session, where the kernel groups tasks so
        # (kernel/sched/autogroup.c): a priority counts within its group alone.
        os.setpriority(os.PRIO_PROCESS, program.pid, -20)
        with contextlib.suppress(OSError):
            Path(f"/proc/{program.pid}/autogroup").write_text("-20")
        yield program
    finally:
        program.kill()
        program.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    with load():
        time.sleep(seconds)


if __name__ == "__main__":
    main()
