"""Loads to measure under: every core busy with compression, and a steady stream of short-lived processes; one core that
starts programs as fast as it can; many processes in many cgroups; one core that is kept in the kernel.

The work is bounded (memory, processes) and paced, so that what is measured meets the same load every time.
"""

import argparse
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from exhume.collect.cgroup.layout import find_v1, find_v2, hierarchies
from exhume.procfs.host import Host

FORKS_PER_SECOND = 900
BLOCK_BYTES = 256 << 10
SHORT_LIVED = ("/bin/sh", "-c", ":")
TRUE = "/bin/true"
# What a cgroup of the crowd may take: a quota that none of its sleeping processes reaches.
CROWD_QUOTA_US = 50_000
CROWD_PARENT = "exhume-bench-crowd"


def compress_and_fork(core: int, forks_per_second: float) -> None:
    """Compress on one core while the parent process lives; start and reap a short-lived process when one is due."""
    os.sched_setaffinity(0, {core})
    block = bytes(range(256)) * (BLOCK_BYTES // 512) + os.urandom(BLOCK_BYTES // 2)
    due = time.monotonic()
    parent = os.getppid()
    # The parent may be killed, and then cannot end the load.
    while os.getppid() == parent:
        zlib.compress(block, 6)
        if not forks_per_second:
            continue
        now = time.monotonic()
        # After a stall the missed ones are not made up for: a burst would be another load.
        due = max(due, now - 0.1)
        while due <= now:
            os.waitpid(os.posix_spawn(SHORT_LIVED[0], SHORT_LIVED, os.environ), 0)
            due += 1.0 / forks_per_second
            now = time.monotonic()


def fork_and_exec(core: int) -> None:
    """Start and reap /bin/true on one core, as fast as it goes, while the parent process lives."""
    os.sched_setaffinity(0, {core})
    parent = os.getppid()
    while os.getppid() == parent:
        os.waitpid(os.posix_spawn(TRUE, (TRUE,), {}), 0)


def compress(core: int) -> None:
    """Compress on one core while the parent process lives."""
    compress_and_fork(core, 0.0)


@contextlib.contextmanager
def load(forks_per_second: float = FORKS_PER_SECOND) -> Iterator[None]:
    """The load on every core that this process may use, for as long as the block lasts."""
    cores = sorted(os.sched_getaffinity(0))
    with _workers([(compress_and_fork, (core, forks_per_second / len(cores))) for core in cores]):
        yield


@contextlib.contextmanager
def exec_load() -> Iterator[None]:
    """The first core starts /bin/true at full speed, the others compress, for as long as the block lasts."""
    first, *others = sorted(os.sched_getaffinity(0))
    with _workers([(fork_and_exec, (first,)), *((compress, (core,)) for core in others)]):
        yield


@contextlib.contextmanager
def _workers(tasks: list[tuple[Callable[..., None], tuple[Any, ...]]]) -> Iterator[None]:
    """Processes, one for each function and its arguments, for as long as the block lasts."""
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=function, args=args, daemon=True) for function, args in tasks]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()


@contextlib.contextmanager
def crowd(processes: int = 3000, cgroups: int = 300) -> Iterator[None]:
    """Sleeping processes, spread over cgroups that have a quota (and memory cgroups where those are separate), for as
    long as the block lasts."""
    layout = hierarchies(Host())
    cpu, memory = find_v1(layout, "cpu") or find_v2(layout), find_v1(layout, "memory")
    if cpu is None:
        raise OSError("no hierarchy with the cpu controller is mounted")
    parents = [each.path / CROWD_PARENT for each in (cpu, memory) if each is not None]
    sleepers: list[int] = []
    try:
        for parent in parents:
            parent.mkdir()
        if cpu.version == 2:
            (parents[0] / "cgroup.subtree_control").write_text("+cpu +memory")
        for number in range(cgroups):
            for parent in parents:
                (parent / str(number)).mkdir()
            limit = ("cpu.cfs_quota_us", f"{CROWD_QUOTA_US}") if cpu.version == 1 else ("cpu.max", f"{CROWD_QUOTA_US}")
            (parents[0] / str(number) / limit[0]).write_text(limit[1])
            for _ in range(processes // cgroups):
                sleepers.append(os.posix_spawn("/bin/sleep", ("sleep", "infinity"), {}))
                for parent in parents:
                    (parent / str(number) / "cgroup.procs").write_text(str(sleepers[-1]))
        yield
    finally:
        for pid in sleepers:
            os.kill(pid, signal.SIGKILL)
        for pid in sleepers:
            os.waitpid(pid, 0)
        for parent in parents:
            _remove_cgroups(parent)


def _remove_cgroups(parent: Path) -> None:
    """Remove a cgroup and those in it; the last process of each may still be on its way out."""
    for path in (*(each for each in parent.glob("*/") if each.is_dir()), parent):
        for _ in range(100):
            try:
                path.rmdir()
                break
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.02)


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
