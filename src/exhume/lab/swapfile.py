"""A swapfile of the lab's own."""

import ctypes
import errno
import mmap
import os
import struct
from pathlib import Path

from exhume.collect.host import Host
from exhume.model.errors import LabError

_SWAP_FLAG_PREFER = 0x8000
# Before every other swap, so that the lab's pages end up in the lab's file.
_PRIORITY = 0x7FFF
_SIGNATURE = b"SWAPSPACE2"
_CHUNK = 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)


def swap_on(path: Path, size: int) -> None:
    """Make a swapfile and turn it on."""
    pages = size // mmap.PAGESIZE
    # Version 1, last page, no bad pages; the signature ends the first page. A swapfile must not have holes.
    header = bytearray(mmap.PAGESIZE)
    struct.pack_into("=III", header, 1024, 1, pages - 1, 0)
    header[-len(_SIGNATURE) :] = _SIGNATURE
    try:
        with path.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(header)
            for start in range(mmap.PAGESIZE, pages * mmap.PAGESIZE, _CHUNK):
                file.write(bytes(min(_CHUNK, pages * mmap.PAGESIZE - start)))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from None
    if _libc.swapon(os.fsencode(path), _SWAP_FLAG_PREFER | _PRIORITY) != 0:
        number = ctypes.get_errno()
        remedy = "; choose a directory on a disk with --work" if number == errno.EINVAL else ""
        raise LabError(f"{path} can't be used as swap: {os.strerror(number)}{remedy}")


def swap_off(path: Path) -> None:
    """Turn a swapfile off, if it is on; what others have in it comes back to memory."""
    if is_swap(path) and _libc.swapoff(os.fsencode(path)) != 0:
        raise LabError(f"{path} can't be turned off as swap: {os.strerror(ctypes.get_errno())}; free some memory")


def is_swap(path: Path) -> bool:
    name = os.fspath(path.absolute()).replace("\\", "\\134").replace(" ", "\\040")
    return any(line.split()[0] == name for line in swaps())


def swaps() -> list[str]:
    """The lines of the swaps that are on."""
    return (Host().proc / "swaps").read_text(errors="surrogateescape").splitlines()[1:]
