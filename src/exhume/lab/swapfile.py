"""A swapfile of the lab's own, and what to do when there can't be one."""

import errno
import os
from pathlib import Path

from exhume.control.swap import FIRST, is_on, make_swapfile, swap_off, swap_on
from exhume.model.errors import LabError
from exhume.procfs.host import Host


def begin_swapping(path: Path, size: int) -> None:
    """Make a swapfile and turn it on before every other, so that the lab's pages end up in the lab's file."""
    try:
        make_swapfile(os.fspath(path), size)
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}") from None
    try:
        swap_on(os.fspath(path), FIRST)
    except OSError as error:
        remedy = "; choose a directory on a disk with --work" if error.errno == errno.EINVAL else ""
        raise LabError(f"{path} can't be used as swap: {error.strerror}{remedy}") from None


def end_swapping(path: Path) -> None:
    """Turn a swapfile off, if it is on; what others have in it comes back to memory."""
    if not is_on(Host(), os.fspath(path.absolute())):
        return
    try:
        swap_off(os.fspath(path))
    except OSError as error:
        raise LabError(f"{path} can't be turned off as swap: {error.strerror}; free some memory") from None
