"""Swap: list active swap areas, create a swapfile, and turn swap areas on and off.

Few imports, since it is used by workers that have to start quickly.
"""

import ctypes
import mmap
import os
import re
import struct
from dataclasses import dataclass

from exhume.procfs.host import Host

# The highest priority, so that pages are swapped out to this area before all others.
FIRST = 0x7FFF
_SWAP_FLAG_PREFER = 0x8000
_SIGNATURE = b"SWAPSPACE2"
_LABEL = b"exhume"

_OCTAL = re.compile(r"\\([0-7]{3})")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Swap:
    """A row of /proc/swaps, in bytes."""

    path: str
    size: int
    used: int
    priority: int


def swaps(host: Host) -> list[Swap]:
    """Read all active swap areas; empty if the kernel has no swap support."""
    try:
        lines = (host.proc / "swaps").read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return []
    found = []
    for line in lines:
        fields = line.split()
        if len(fields) >= 5:
            # Spaces are octal escapes; an active file that was deleted is marked as such (mm/swapfile.c, swap_show).
            path = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[0]).removesuffix(" (deleted)")
            size, used, priority = (int(field) for field in fields[-3:])
            found.append(Swap(path, size * 1024, used * 1024, priority))
    return found


def is_on(host: Host, path: str) -> bool:
    """Whether the swap area at a path is active."""
    return any(swap.path == path for swap in swaps(host))


def make_swapfile(path: str, size: int) -> None:
    """Create a file that can be turned on as swap. Raises OSError."""
    pages = size // mmap.PAGESIZE
    header = bytearray(mmap.PAGESIZE)
    # Version 1, last page, no bad pages, no UUID, a label; the signature is at the end of the page.
    struct.pack_into("=III16x16s", header, 1024, 1, pages - 1, 0, _LABEL)
    header[-len(_SIGNATURE) :] = _SIGNATURE
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        # A swapfile must not have holes.
        os.posix_fallocate(fd, 0, pages * mmap.PAGESIZE)
        os.pwrite(fd, header, 0)
        os.fsync(fd)
    finally:
        os.close(fd)


def swap_on(path: str, priority: int) -> None:
    """Turn a swap area on. Raises OSError."""
    # Negative priorities are assigned by the kernel, in the order in which areas are turned on.
    flags = _SWAP_FLAG_PREFER | priority if priority >= 0 else 0
    _check(_libc.swapon(os.fsencode(path), flags), path)


def swap_off(path: str) -> None:
    """Turn a swap area off; its pages are read back into memory. Raises OSError."""
    _check(_libc.swapoff(os.fsencode(path)), path)


def _check(result: int, path: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
