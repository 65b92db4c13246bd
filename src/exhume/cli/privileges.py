"""Privileges of the page's server: an ordinary user's, where necessary with CAP_DAC_READ_SEARCH."""

import ctypes
import os
from pathlib import Path

_CAP_DAC_READ_SEARCH = 2
_PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS = 8, 38
_VERSION_3 = 0x20080522


def become(user: int, group: int) -> None:
    """Become another user for good; requires root."""
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def become_reader(user: int, group: int) -> bool:
    """Become another user with CAP_DAC_READ_SEARCH alone. Returns False, with nothing changed, where this root lacks
    that capability itself, as in some containers."""
    if not permitted() >> _CAP_DAC_READ_SEARCH & 1 or _libc().prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0:
        return False
    become(user, group)
    kept = 1 << _CAP_DAC_READ_SEARCH
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    # Effective, permitted and inheritable: first the low halves of each, then the high ones.
    data = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
    if _libc().capset(header, data) != 0:
        # Without effective capabilities what follows can only fail: better than with more than intended.
        raise OSError(ctypes.get_errno(), "capabilities could not be dropped")
    return True


def permitted() -> int:
    """The permitted capabilities of this process, as bits."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapPrm:"):
            return int(line.split()[1], 16)
    return 0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
