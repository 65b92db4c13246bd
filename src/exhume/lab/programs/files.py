"""Programs that use files, locks, mounts and cgroup files. Run as: files.py PROGRAM ARGUMENT..."""

import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import random
import resource
import select
import signal
import struct
import sys
import threading
import time
from pathlib import Path
from types import FrameType

FILES, CHUNK = 16, 64 << 10
FSYNC_EVERY_S = 1.0


def file_churn(seconds: str, where: str, kib_per_second: str) -> None:
    """Writes, reads and removes files at a steady pace, as a service with a log and a spool does."""
    until, directory, rate = time.monotonic() + float(seconds), Path(where), float(kib_per_second) * 1024
    directory.mkdir(exist_ok=True)
    chunk, number, synced = os.urandom(CHUNK), 0, time.monotonic()
    while (began := time.monotonic()) < until:
        path = directory / str(number % FILES)
        with path.open("wb") as file:
            file.write(chunk)
            if began - synced > FSYNC_EVERY_S:
                synced = began
                file.flush()
                os.fsync(file.fileno())
        path.read_bytes()
        if number >= FILES:
            path.unlink()
        number += 1
        time.sleep(max(0.0, began + CHUNK / rate - time.monotonic()))


_ROUND = 2_000


def probe_names(seconds: str, base: str, most: str) -> None:
    """Looks up names that don't exist, without a pause; the kernel caches at most `most` of them."""
    until = time.monotonic() + float(seconds)
    turn = 0
    while time.monotonic() < until:
        directory = Path(base, str(turn))
        directory.mkdir()
        probed = 0
        while probed < int(most) and time.monotonic() < until:
            stem = f"{directory}/{random.getrandbits(48):x}"
            for number in range(_ROUND):
                with contextlib.suppress(FileNotFoundError):
                    os.stat(f"{stem}{number}")  # noqa: PTH116 (a Path takes longer than the lookup)
            probed += _ROUND
        # The kernel drops the negative dentries of a directory when the directory is removed.
        directory.rmdir()
        turn += 1


class TimeIsUp(Exception):
    """Raised by the alarm, even inside a system call: the kernel's loops check for signals between two passes."""


def use_file(seconds: str, path: str, text: str) -> dict[str, int | float]:
    """Reads a file again and again, or writes the same text to it; returns the cost."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeIsUp

    data = text.encode()
    fd = os.open(path, (os.O_WRONLY if data else os.O_RDONLY) | os.O_CLOEXEC)
    passes, longest = 0, 0.0
    signal.signal(signal.SIGALRM, ring)
    began = last = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, float(seconds))
    with contextlib.suppress(TimeIsUp):
        while True:
            if data:
                # Less can be reclaimed than was requested.
                with contextlib.suppress(BlockingIOError):
                    os.write(fd, data)
            else:
                os.lseek(fd, 0, os.SEEK_SET)
                os.read(fd, 1 << 16)
            now = time.monotonic()
            passes, longest, last = passes + 1, max(longest, now - last), now
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "passes": passes,
        "longest_s": max(longest, time.monotonic() - last),
        "elapsed_s": time.monotonic() - began,
        "system_s": used.ru_stime,
        "user_s": used.ru_utime,
    }


def spin(core: str, seconds: str, path: str, text: str) -> None:
    """Keeps one core busy with a file on request, and prints the cost as JSON."""
    if sys.stdin.readline() != "spin\n":
        sys.exit("nothing to spin on")
    os.sched_setaffinity(0, {int(core)})
    try:
        sys.stdout.write(json.dumps(use_file(seconds, path, text)) + "\n")
    except OSError as error:
        sys.exit(error.strerror)


_FILE = 2 << 20


class Budget:
    """Bytes that all threads together may write, spread over the available time."""

    def __init__(self, total: int, seconds: float) -> None:
        # A second's worth may be written in advance.
        self._rate = total / (seconds + 1.0)
        self._began = time.monotonic()
        self._spent = 0
        self._lock = threading.Lock()

    def spend(self, count: int) -> None:
        """Account for bytes; wait while they are too far ahead of the time."""
        with self._lock:
            self._spent += count
            ahead = self._spent / self._rate - (time.monotonic() - self._began) - 1.0
        if ahead > 0:
            time.sleep(ahead)


def sync_writes(seconds: str, directory: str, threads: str, piece_kib: str, total_mib: str) -> None:
    """Threads that each write a file in pieces and sync every piece to disk. The files are overwritten from the
    beginning, so they don't grow."""
    until = time.monotonic() + float(seconds)
    budget = Budget(int(total_mib) << 20, float(seconds))
    piece = os.urandom(int(piece_kib) << 10)

    def scribble(path: Path) -> None:
        with path.open("wb", buffering=0) as file:
            while time.monotonic() < until:
                file.write(piece)
                # Once the file has its full size, the journal has nothing to do: the wait is for the disk itself.
                os.fdatasync(file.fileno())
                if file.tell() + len(piece) > _FILE:
                    file.seek(0)
                budget.spend(len(piece))

    writers = [threading.Thread(target=scribble, args=(Path(directory, str(i)),)) for i in range(int(threads))]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


def hold_locks(seconds: str, path: str, count: str) -> None:
    """Holds many record locks on one file: for every other request, the kernel checks each of them."""
    with Path(path).open("r+b") as file:
        for place in range(int(count)):
            # Leave a byte between them, otherwise the kernel merges two locks.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * place)
        time.sleep(float(seconds))


# struct flock: type, whence, start, length, pid.
QUESTION = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 1, 1, 0)


def query_locks(seconds: str, path: str) -> None:
    """Queries again and again whether a record of a file is locked. For that, the kernel checks all locks of the file
    while holding one spinlock."""
    until = time.monotonic() + float(seconds)
    with Path(path).open("r+b") as file:
        while time.monotonic() < until:
            for _ in range(100):
                fcntl.fcntl(file, fcntl.F_GETLK, QUESTION)


_MS_BIND, _MNT_DETACH = 4096, 2
_libc = ctypes.CDLL(None, use_errno=True)


def _call(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def bind(base: Path, name: str) -> None:
    """Bind-mount the directory `source` of the base."""
    place = bytes(base / name)
    _call(_libc.mount(bytes(base / "source"), place, None, ctypes.c_ulong(_MS_BIND), None))


def fill_mounts(where: str, count: str) -> None:
    """Creates mounts."""
    base = Path(where)
    (base / "source").mkdir(exist_ok=True)
    for number in range(int(count)):
        (base / str(number)).mkdir()
        bind(base, str(number))


def change_mounts(seconds: str, where: str, pause: str) -> None:
    """Mounts and unmounts, again and again."""
    until, base = time.monotonic() + float(seconds), Path(where)
    (base / "changing").mkdir()
    while time.monotonic() < until:
        bind(base, "changing")
        _call(_libc.umount2(bytes(base / "changing"), _MNT_DETACH))
        time.sleep(float(pause))


def read_mounts(seconds: str) -> None:
    """Reads the whole mount table after every change, as a service manager does."""
    until = time.monotonic() + float(seconds)
    with Path("/proc/self/mountinfo").open("rb", buffering=1 << 16) as table:
        changed = select.poll()
        changed.register(table, select.POLLPRI | select.POLLERR)
        while time.monotonic() < until:
            table.seek(0)
            while table.read(1 << 16):
                pass
            changed.poll(200)


CGROUP_FILES = ("memory.stat", "memory.usage_in_bytes", "memory.current", "cgroup.procs", "pids.current", "cpu.stat")


def walk_cgroups(seconds: str, path: str) -> None:
    """Walks a cgroup and all cgroups below it again and again, and reads files of each."""
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        for directory, _, names in os.walk(path):
            for name in CGROUP_FILES:
                if name in names:
                    with contextlib.suppress(OSError), open(f"{directory}/{name}", "rb") as file:  # noqa: PTH123
                        file.read()
            if time.monotonic() >= until:
                return


# Files that an agent's housekeeping thread looks at for one cgroup before it sleeps again.
STATTED = ("cpu.stat", "cpu.max", "memory.limit_in_bytes", "memory.max", "memory.memsw.limit_in_bytes", "pids.max")


def watch_cgroups(seconds: str, path: str, threads: str, share: str) -> None:
    """An agent with many threads, each responsible for a part of the cgroups below one: it checks which files exist,
    opens one and waits for its events, and computes with what it read; together the threads take a share of one
    core."""
    until = time.monotonic() + float(seconds)
    found = [directory for directory, _, _ in os.walk(path)]
    count = int(threads)

    def keep_house(mine: list[str]) -> None:
        events = select.epoll()
        for directory in itertools.cycle(mine):
            for name in STATTED:
                with contextlib.suppress(OSError):
                    os.stat(f"{directory}/{name}")  # noqa: PTH116
            with contextlib.suppress(OSError), open(f"{directory}/cgroup.procs", "rb") as file:  # noqa: PTH123
                events.register(file, select.EPOLLPRI)
                sum(range(2_000 + len(file.read())))
                events.unregister(file)
            if time.monotonic() >= until:
                return
            # In proportion to what all threads used so far, so that the share is the same on any machine.
            ahead = time.process_time() / float(share) - (time.monotonic() - began)
            time.sleep(max(0.0, ahead) + 0.001)

    began = time.monotonic() - time.process_time() / float(share)
    workers = [threading.Thread(target=keep_house, args=(found[part::count],)) for part in range(count)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
