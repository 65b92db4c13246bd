"""Makes, changes and reads mounts. Words: fill BASE COUNT | change BASE SECONDS PAUSE | read SECONDS."""

import ctypes
import os
import select
import sys
import time
from pathlib import Path

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


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1] == "change":
        change(Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
    else:
        read(float(sys.argv[2]))
