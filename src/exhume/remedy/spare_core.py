"""Which core can best spare the time for a job."""

import os
import time

from exhume.procfs.host import Host, ProcFile

_LOOK_S = 0.2


def spare_core(host: Host, allowed: set[int] | None = None, look_s: float = _LOOK_S) -> int | None:
    """The core that idled most over a short look, among those that this process may use; None when none can be told."""
    usable = os.sched_getaffinity(0) if allowed is None else allowed
    stat = ProcFile(host.proc / "stat")
    before = _idle(stat.read_or_none())
    time.sleep(look_s)
    after = _idle(stat.read_or_none())
    idled = {core: after[core] - before[core] for core in before.keys() & after.keys() & usable}
    # The last of equals: the first cores are where interrupts go by default.
    return max(idled, key=lambda core: (idled[core], core), default=None)


def _idle(content: bytes | None) -> dict[int, int]:
    """Ticks that each core idled. Waiting for a disk is no work."""
    found = {}
    for line in (content or b"").splitlines():
        name, *values = line.split()
        if name.startswith(b"cpu") and name[3:].isdigit() and len(values) >= 5:
            found[int(name[3:])] = int(values[3]) + int(values[4])
    return found
