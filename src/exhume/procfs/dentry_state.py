"""/proc/sys/fs/dentry-state (fs/dcache.c, proc_nr_dentry)."""

from typing import NamedTuple


class DentryState(NamedTuple):
    """All dentries, unused ones, and negative ones; the last is None if the kernel does not count those
    (before 5.0)."""

    total: int
    unused: int
    negative: int | None


def parse_dentry_state(content: bytes) -> DentryState | None:
    """The counts; None for anything else."""
    fields = content.split()
    if len(fields) < 2 or not all(field.isdigit() for field in fields):
        return None
    # Older kernels print 0 in that place; a kernel that counts them never has none.
    negative = int(fields[4]) if len(fields) > 4 and fields[4] != b"0" else None
    return DentryState(int(fields[0]), int(fields[1]), negative)
