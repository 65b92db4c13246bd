"""A load whose mixture changes slowly: each core does one kind of work for a second or more, then another.

Run as a program: it works on every core for so many seconds. Counters read a few milliseconds apart then differ by no
more than those milliseconds.
"""

import os
import random
import sys
import time
import zlib
from collections.abc import Callable

SLICE_S = 0.005
# The last of it with a low priority: the kernel counts that apart.
NICE_S = 8.0


def user_work(until: float) -> None:
    while time.monotonic() < until:
        zlib.crc32(_BLOCK)


def system_work(until: float) -> None:
    zero = os.open("/dev/zero", os.O_RDONLY)
    while time.monotonic() < until:
        os.read(zero, len(_BLOCK))
    os.close(zero)


def mixed_work(until: float) -> None:
    """Half and half, in slices as short as a clock tick."""
    while time.monotonic() < until:
        user_work(time.monotonic() + SLICE_S)
        system_work(time.monotonic() + SLICE_S)


def light_work(until: float) -> None:
    """A third of the core, in short slices."""
    while time.monotonic() < until:
        user_work(time.monotonic() + SLICE_S)
        time.sleep(2 * SLICE_S)


def no_work(until: float) -> None:
    time.sleep(max(0.0, until - time.monotonic()))


KINDS: tuple[Callable[[float], None], ...] = (user_work, system_work, mixed_work, light_work, no_work)
_BLOCK = bytes(64 << 10)


def work_on(core: int, end: float) -> None:
    os.sched_setaffinity(0, {core})
    chance = random.Random(core)
    while (now := time.monotonic()) < end:
        if end - now < NICE_S and not os.getpriority(os.PRIO_PROCESS, 0):
            os.nice(10)
        chance.choice(KINDS)(min(end, now + chance.uniform(1.0, 3.0)))


def main() -> None:
    end = time.monotonic() + float(sys.argv[1])
    children = []
    for core in sorted(os.sched_getaffinity(0)):
        pid = os.fork()
        if not pid:
            work_on(core, end)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
