"""A program that makes zombies: one process moves through the cgroups and leaves a page in each. Standard library only.

It is run by its path, in a process of its own: whatever the interpreter itself allocates while it is in a cgroup is
charged there too, and must be freed before the count is right. Moving one process from cgroup to cgroup is four times
as fast as a new process for each (no fork, and writing 0 for oneself avoids the kernel's heaviest lock).

Standard input has one JSON object (see `Order`); standard output gets the number made so far, one per line.
"""

import errno
import json
import os
import sys
import time
from typing import TypedDict

CONTENT = b"exhume lab: this page keeps a removed memory cgroup alive.\n".ljust(100, b".")
PAGE = os.sysconf("SC_PAGE_SIZE")
SECONDS_BETWEEN_REPORTS = 0.1
FILES_IN_A_DIRECTORY = 1000
SWAPPED_TOGETHER = 32
SECONDS_TO_SWAP = 30.0
SECONDS_TO_WRITE = 0.1


class Order(TypedDict):
    """What to make: `count` cgroups below `parent`, each charged for files below `files` (or swapped-out pages of
    them).

    `home` is the cgroup between two of them, `join` the file to join a cgroup, `reclaim` the file that triggers
    reclaim, and `reclaim_input` what to write to it."""

    parent: str
    home: str
    join: str
    reclaim: str
    reclaim_input: str
    layout: str
    swapped: bool
    files: str
    count: int


def numbered(directory: str, number: int) -> str:
    """The path of the file or directory with a number."""
    return f"{directory}/{number // FILES_IN_A_DIRECTORY:04d}/{number:07d}"


class OwnFile:
    """How a cgroup is charged: `before` and `after` run outside of it, `charge` inside. Here each cgroup writes to a
    file of its own. The file is created outside, so that only its content is charged."""

    def __init__(self, files: str) -> None:
        self._files = files
        self._fd = -1

    def before(self, number: int) -> None:
        path = numbered(self._files, number)
        if number % FILES_IN_A_DIRECTORY == 0:
            os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 (pathlib takes longer to load)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def charge(self, number: int) -> None:
        os.write(self._fd, CONTENT)

    def after(self) -> None:
        os.close(self._fd)


class SharedFile(OwnFile):
    """Each cgroup reads one page of a file that they all share."""

    def __init__(self, files: str) -> None:
        self._fd = os.open(f"{files}/shared", os.O_RDONLY | os.O_CLOEXEC)
        # No read-ahead, which would charge the pages of other cgroups.
        os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_RANDOM)

    def before(self, number: int) -> None:
        pass

    def charge(self, number: int) -> None:
        os.pread(self._fd, 1, number * PAGE)

    def after(self) -> None:
        pass


class DirectoryBlock(OwnFile):
    """Each cgroup is the first to look into a directory, so its block is read and charged as metadata."""

    def before(self, number: int) -> None:
        # The inode shares a block with others, and is charged outside.
        os.stat(numbered(self._files, number))  # noqa: PTH116

    def charge(self, number: int) -> None:
        os.access(f"{numbered(self._files, number)}/nothing", os.F_OK)

    def after(self) -> None:
        pass


LAYOUTS: dict[str, type[OwnFile]] = {"own": OwnFile, "shared": SharedFile, "directories": DirectoryBlock}


def make(order: Order) -> None:
    """Make all cgroups. An error leaves the cgroup in which it happened, without processes."""
    pin = LAYOUTS[order["layout"]](order["files"])
    home = os.open(f"{order['home']}/{order['join']}", os.O_WRONLY | os.O_CLOEXEC)
    os.write(home, b"0")
    reported = time.monotonic()
    waiting: list[str] = []
    for number in range(order["count"]):
        cgroup = f"{order['parent']}/z{number:07d}"
        os.mkdir(cgroup)  # noqa: PTH102
        pin.before(number)
        inside = os.open(f"{cgroup}/{order['join']}", os.O_WRONLY | os.O_CLOEXEC)
        os.write(inside, b"0")
        os.close(inside)
        pin.charge(number)
        os.write(home, b"0")
        pin.after()
        waiting.append(cgroup)
        if order["swapped"]:
            if len(waiting) < SWAPPED_TOGETHER and number + 1 < order["count"]:
                continue
            swap_out(waiting, order["reclaim"], order["reclaim_input"].encode())
        for each in waiting:
            os.rmdir(each)  # noqa: PTH106
        waiting.clear()
        if time.monotonic() - reported > SECONDS_BETWEEN_REPORTS or number + 1 == order["count"]:
            reported = time.monotonic()
            sys.stdout.write(f"{number + 1}\n")
            sys.stdout.flush()


def swap_out(cgroups: list[str], reclaim: str, data: bytes) -> None:
    """Have their pages written to swap while they are online: only then a swap entry belongs to the cgroup.

    Reclaim starts the writeback and frees the page when it is written, so several cgroups wait for the disk together.
    """
    deadline = time.monotonic() + SECONDS_TO_SWAP
    waiting = cgroups
    while waiting:
        for cgroup in waiting:
            reclaim_all(f"{cgroup}/{reclaim}", data)
        left = [cgroup for cgroup in waiting if swapped(cgroup) < PAGE]
        if len(left) < len(waiting):
            # A busy disk is slow, but makes progress.
            deadline = time.monotonic() + SECONDS_TO_SWAP
        waiting = left
        if waiting and time.monotonic() > deadline:
            raise OSError(
                errno.ENOSPC, "pages are not swapped out: the swapfile is full, the disk too slow or swap off"
            )
        if waiting:
            time.sleep(0.002)
    if reclaim == "memory.reclaim":
        # v2 counts an entry as soon as it exists, while its page is still being written: that must be finished as well.
        time.sleep(SECONDS_TO_WRITE)
        for cgroup in cgroups:
            reclaim_all(f"{cgroup}/{reclaim}", data)


def reclaim_all(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    except OSError as error:
        # v2 fails with EAGAIN if it reclaimed less than requested, as it does here: there is only one page.
        if error.errno not in (errno.EAGAIN, errno.EBUSY):
            raise
    finally:
        os.close(fd)


def swapped(cgroup: str) -> int:
    """Bytes of a cgroup that are in swap, by the counters that are never late (memory.stat may be late by seconds)."""
    if os.access(f"{cgroup}/memory.swap.current", os.F_OK):
        return number_in(f"{cgroup}/memory.swap.current")
    # Both counters are charged in advance, and unused charges may be returned at any moment. If that happened between
    # the two reads, the difference would be too large with memory and swap read first; in this order it is too small.
    memory = number_in(f"{cgroup}/memory.usage_in_bytes")
    return number_in(f"{cgroup}/memory.memsw.usage_in_bytes") - memory


def number_in(path: str) -> int:
    with open(path, "rb") as file:  # noqa: PTH123
        return int(file.read())


if __name__ == "__main__":
    order = sys.stdin.read()
    if not order:
        sys.exit("nothing to make")
    try:
        make(json.loads(order))
    except OSError as error:
        sys.exit(f"{error.strerror}{f' ({error.filename})' if error.filename else ''}")
