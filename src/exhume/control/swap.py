"""Swap: the swaps that are on, making a swapfile, and turning swaps on and off.

Little is imported, as workers that have to start quickly use it.
"""

import ctypes
import mmap
import os
import re
import struct
from dataclasses import dataclass

from exhume.procfs.host import Host

# Before every other swap, so that what goes out goes there.
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
    """Read every swap that is on; none where the kernel has no swap."""
    try:
        lines = (host.proc / "swaps").read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return []
    found = []
    for line in lines:
        fields = line.split()
        if len(fields) >= 5:
            # Blanks are in octal; a file that was removed while it is on is marked so (mm/swapfile.c, swap_show).
            path = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[0]).removesuffix(" (deleted)")
            size, used, priority = (int(field) for field in fields[-3:])
            found.append(Swap(path, size * 1024, used * 1024, priority))
    return found


def is_on(host: Host, path: str) -> bool:
    """Whether the swap at a path is on."""
    return any(swap.path == path for swap in swaps(host))


def make_swapfile(path: str, size: int) -> None:
    """Make a file that can be turned on as swap. Raises OSError."""
    pages = size // mmap.PAGESIZE
    header = bytearray(mmap.PAGESIZE)
    # Version 1, last page, no bad pages, no identifier, a label; the signature ends the page.
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
    """Turn a swap on. Raises OSError."""
    # Negative priorities are the kernel's own, given in the order of turning on.
    flags = _SWAP_FLAG_PREFER | priority if priority >= 0 else 0
    _check(_libc.swapon(os.fsencode(path), flags), path)


def swap_off(path: str) -> None:
    """Turn a swap off; what is in it comes back to memory. Raises OSError."""
    _check(_libc.swapoff(os.fsencode(path)), path)


def _check(result: int, path: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
