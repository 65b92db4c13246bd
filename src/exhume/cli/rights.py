"""Rights that the page's server keeps: those of an ordinary user, where need be with reading."""

import ctypes
import os
from pathlib import Path

_CAP_DAC_READ_SEARCH = 2
_PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS = 8, 38
_VERSION_3 = 0x20080522


def become(user: int, group: int) -> None:
    """Go on as another user for good; takes root."""
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    _libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def become_reader(user: int, group: int) -> bool:
    """Go on as another user who may read every file, and has no other right of root's (CAP_DAC_READ_SEARCH alone).
    Returns False, with everything as it was, where this root itself lacks that, as in some containers."""
    if not permitted() >> _CAP_DAC_READ_SEARCH & 1 or _libc().prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0:
        return False
    become(user, group)
    kept = 1 << _CAP_DAC_READ_SEARCH
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    # Effective, permitted and inheritable: first the low halves of each, then the high ones.
    data = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)
    if _libc().capset(header, data) != 0:
        # Without effective rights what follows can only fail: better than with more than were asked for.
        raise OSError(ctypes.get_errno(), "rights could not be given up")
    return True


def permitted() -> int:
    """The rights that this process may have, as bits."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapPrm:"):
            return int(line.split()[1], 16)
    return 0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
