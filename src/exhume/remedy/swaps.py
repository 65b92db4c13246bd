"""The swaps that are on."""

import re
from dataclasses import dataclass

from exhume.procfs.host import Host

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Swap:
    """One swap, in bytes."""

    path: str
    size: int
    used: int
    priority: int


def swaps(host: Host) -> list[Swap]:
    """Every swap that is on; none where the kernel has no swap."""
    try:
        lines = (host.proc / "swaps").read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return []
    found = []
    for line in lines:
        fields = line.split()
        if len(fields) >= 5:
            # Blanks and the like are in octal; a file that was removed while it is on says so.
            path = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[0]).removesuffix(" (deleted)")
            size, used, priority = (int(field) for field in fields[-3:])
            found.append(Swap(path, size * 1024, used * 1024, priority))
    return found


def is_on(host: Host, path: str) -> bool:
    return any(swap.path == path for swap in swaps(host))
