"""Whether a machine has room for what the lab makes: zombies cost kernel memory, which only freeing them gives back."""

import os
import shutil
from pathlib import Path

from exhume.model.errors import LabError
from exhume.procfs.cpulist import possible_cpus
from exhume.procfs.flat_keyed import parse_meminfo
from exhume.procfs.host import Host

_KIB = 1024
# Measured: slab and page of each, and what each CPU's counters take.
_BYTES_EACH = 18 * _KIB
_BYTES_EACH_PER_CPU = 2 * _KIB
_LEAST_LEFT = 256 << 20
_SHARE_LEFT = 0.1


def refuse_without_room(count: int, disk_bytes: int, work: Path, host: Host | None = None) -> None:
    """Raise LabError unless that many zombies leave a tenth of the memory, and of the disk, to others."""
    host = host or Host()
    needed = memory_of(count, _possible_cpus(host))
    spare = _spare(host)
    if needed > spare:
        raise LabError(
            f"{count:,} zombies take {needed >> 20:,} MiB of memory, and {max(spare, 0) >> 20:,} MiB can be spared; "
            "ask for fewer"
        )
    place = next(path for path in (work, *work.parents) if path.exists())
    disk = shutil.disk_usage(place)
    if disk_bytes > disk.free - disk.total * _SHARE_LEFT:
        raise LabError(f"{place} has no room for {disk_bytes >> 20:,} MiB; choose another directory with --work")


def refuse_without_memory(needed: int, what: str, host: Host | None = None) -> None:
    """Raise LabError unless so many bytes leave a tenth of the memory to others."""
    spare = _spare(host or Host())
    if needed > spare:
        raise LabError(
            f"{what} takes up to {needed >> 20:,} MiB of memory, and {max(spare, 0) >> 20:,} MiB can be spared; "
            "try again when there is more"
        )


def memory_of(count: int, cpus: int) -> int:
    """Bytes that so many zombies take."""
    return count * (_BYTES_EACH + _BYTES_EACH_PER_CPU * cpus)


def _spare(host: Host) -> int:
    memory = _memory(host)
    return memory["MemAvailable"] - max(_LEAST_LEFT, int(memory["MemTotal"] * _SHARE_LEFT))


def _memory(host: Host) -> dict[str, int]:
    return parse_meminfo((host.proc / "meminfo").read_bytes())


def _possible_cpus(host: Host) -> int:
    """The kernel keeps counters for every CPU that there could be."""
    return len(possible_cpus(host) or ()) or os.cpu_count() or 1
