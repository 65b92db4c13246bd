"""Programs that use files, locks, mounts and cgroup files. Run as: files.py PROGRAM ARGUMENT..."""

import contextlib
import ctypes
import fcntl
import os
import random
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


def run_file_churn(argv: list[str]) -> None:
    """Writes, reads and removes files at a steady pace, as a service with a log and a spool does.

    Arguments: seconds, directory, KiB a second.
    """
    until, directory, rate = time.monotonic() + float(argv[1]), Path(argv[2]), float(argv[3]) * 1024
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


def run_probe_names(argv: list[str]) -> None:
    """Looks up names that don't exist, without a pause.

    Arguments: directory, seconds, names to be remembered at most.
    """
    base, until, most = Path(argv[1]), time.monotonic() + float(argv[2]), int(argv[3])
    turn = 0
    while time.monotonic() < until:
        directory = base / str(turn)
        directory.mkdir()
        probed = 0
        while probed < most and time.monotonic() < until:
            stem = f"{directory}/{random.getrandbits(48):x}"
            for number in range(_ROUND):
                with contextlib.suppress(FileNotFoundError):
                    os.stat(f"{stem}{number}")  # noqa: PTH116 (a Path takes longer than the lookup)
            probed += _ROUND
        # The kernel forgets the names that a directory lacks when the directory goes.
        directory.rmdir()
        turn += 1


class TimeIsUp(Exception):
    """Raised by the alarm, also out of a system call: the kernel's loops look for signals between two passes."""


def ring(number: int, frame: FrameType | None) -> None:
    raise TimeIsUp


def use(path: str, data: bytes) -> None:
    fd = os.open(path, (os.O_WRONLY if data else os.O_RDONLY) | os.O_CLOEXEC)
    while True:
        if data:
            # Less can be reclaimed than is asked for.
            with contextlib.suppress(BlockingIOError):
                os.write(fd, data)
        else:
            os.lseek(fd, 0, os.SEEK_SET)
            os.read(fd, 1 << 16)


def run_use_file(argv: list[str]) -> None:
    """Reads a file again and again, or writes the same data to it.

    Arguments: seconds, file, what to write (nothing: read).
    """
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, float(argv[1]))
    with contextlib.suppress(TimeIsUp):
        use(argv[2], argv[3].encode())


_FILE = 2 << 20


class Budget:
    """Bytes that may be written by all threads together, spread over the time that there is."""

    def __init__(self, total: int, seconds: float) -> None:
        # A second's worth may be written ahead of the time.
        self._rate = total / (seconds + 1.0)
        self._began = time.monotonic()
        self._spent = 0
        self._lock = threading.Lock()

    def spend(self, count: int) -> None:
        """Account for bytes; waits while they are too far ahead of the time."""
        with self._lock:
            self._spent += count
            ahead = self._spent / self._rate - (time.monotonic() - self._began) - 1.0
        if ahead > 0:
            time.sleep(ahead)


def scribble(path: Path, until: float, piece: bytes, between: int, budget: Budget) -> None:
    with path.open("wb", buffering=0) as file:
        number = 0
        while time.monotonic() < until:
            file.write(piece)
            number += 1
            if number % between == 0:
                # Once the file has its size there is nothing for the journal: the wait is for the disk itself.
                os.fdatasync(file.fileno())
            if file.tell() + len(piece) > _FILE:
                file.seek(0)
            budget.spend(len(piece))


def run_sync_writes(argv: list[str]) -> None:
    """Threads that each write a file piece by piece and want every few pieces on disk at once. The files are written
    over from their beginning, so they don't grow.

    Arguments: seconds, directory, threads, KiB of a piece, pieces between syncs, MiB in all.
    """
    seconds, directory, threads, size, between, total = argv[1:]
    until = time.monotonic() + float(seconds)
    budget = Budget(int(total) << 20, float(seconds))
    piece = os.urandom(int(size) << 10)
    writers = [
        threading.Thread(target=scribble, args=(Path(directory) / str(i), until, piece, int(between), budget))
        for i in range(int(threads))
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


def run_hold_locks(argv: list[str]) -> None:
    """Holds many record locks on one file: the kernel looks at each of them for every other request.

    Arguments: seconds, file, count.
    """
    until = time.monotonic() + float(argv[1])
    with Path(argv[2]).open("r+b") as file:
        for place in range(int(argv[3])):
            # With a byte between them, or the kernel makes one of two.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * place)
        while time.monotonic() < until:
            time.sleep(0.1)


# struct flock: type, whence, start, length, pid.
QUESTION = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 1, 1, 0)


def run_query_locks(argv: list[str]) -> None:
    """Asks again and again whether a record of a file is locked. The kernel looks at all locks of the file for that,
    with one spinlock held.

    Arguments: seconds, file.
    """
    until = time.monotonic() + float(argv[1])
    with Path(argv[2]).open("r+b") as file:
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
    """Show the directory `source` of the base a second time."""
    place = bytes(base / name)
    _call(_libc.mount(bytes(base / "source"), place, None, ctypes.c_ulong(_MS_BIND), None))


def fill(base: Path, count: int) -> None:
    (base / "source").mkdir(exist_ok=True)
    for number in range(count):
        (base / str(number)).mkdir()
        bind(base, str(number))


def change(base: Path, seconds: float, pause: float) -> None:
    """Mount and unmount, again and again."""
    (base / "source").mkdir(exist_ok=True)
    (base / "changing").mkdir()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        bind(base, "changing")
        _call(_libc.umount2(bytes(base / "changing"), _MNT_DETACH))
        time.sleep(pause)


def read(seconds: float) -> None:
    """Read the whole table after every change, as a service manager does."""
    until = time.monotonic() + seconds
    with Path("/proc/self/mountinfo").open("rb", buffering=1 << 16) as table:
        changed = select.poll()
        changed.register(table, select.POLLPRI | select.POLLERR)
        while time.monotonic() < until:
            table.seek(0)
            while table.read(1 << 16):
                pass
            changed.poll(200)


def run_mount_table(argv: list[str]) -> None:
    """Makes, changes and reads mounts. Arguments: fill BASE COUNT | change BASE SECONDS PAUSE | read SECONDS."""
    if argv[1] == "fill":
        fill(Path(argv[2]), int(argv[3]))
    elif argv[1] == "change":
        change(Path(argv[2]), float(argv[3]), float(argv[4]))
    else:
        read(float(argv[2]))


CGROUP_FILES = ("memory.stat", "memory.usage_in_bytes", "memory.current", "cgroup.procs", "pids.current", "cpu.stat")


def walk(path: str, until: float) -> None:
    for directory, _, names in os.walk(path):
        for name in CGROUP_FILES:
            if name in names:
                with contextlib.suppress(OSError), open(f"{directory}/{name}", "rb") as file:  # noqa: PTH123
                    file.read()
        if time.monotonic() >= until:
            return


def run_walk_cgroups(argv: list[str]) -> None:
    """Walks a cgroup and all below it, and reads what each says of itself. Arguments: seconds, cgroup."""
    until = time.monotonic() + float(argv[1])
    while time.monotonic() < until:
        walk(argv[2], until)


PROGRAMS = {
    "file_churn": run_file_churn,
    "probe_names": run_probe_names,
    "use_file": run_use_file,
    "sync_writes": run_sync_writes,
    "hold_locks": run_hold_locks,
    "query_locks": run_query_locks,
    "mount_table": run_mount_table,
    "walk_cgroups": run_walk_cgroups,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](sys.argv[1:])
