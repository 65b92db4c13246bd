"""A set of CPUs in the kernel's list format (lib/vsprintf.c, bitmap_list_string): `0-3,8,10-11`."""

from exhume.procfs.host import Host

# More than any kernel is built for (NR_CPUS is at most 8,192): a higher number is not in a list of CPUs.
_MAX_CPU = 1 << 16


def parse_cpulist(text: str) -> list[int]:
    """The CPUs in a list; empty for an empty one. Raises ValueError, naming the part, for anything else."""
    cpus: list[int] = []
    for part in text.strip().split(",") if text.strip() else ():
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not all(number.isascii() and number.isdigit() and int(number) < _MAX_CPU for number in (first, last)):
            raise ValueError(f"{part.strip()!r} is not a CPU: write a number, a range (0-3) or a list (0,2,4-7)")
        if int(last) < int(first):
            raise ValueError(f"{part.strip()!r} is an empty range: write the smaller number first, {last}-{first}")
        cpus.extend(range(int(first), int(last) + 1))
    return cpus


def online_cpus(host: Host) -> list[int] | None:
    """The CPUs that are online now; None when that cannot be read."""
    return _read(host, "online")


def possible_cpus(host: Host) -> list[int] | None:
    """The CPUs that the machine may ever have: per-CPU memory is allocated for each."""
    return _read(host, "possible")


def _read(host: Host, name: str) -> list[int] | None:
    try:
        return parse_cpulist((host.sys / "devices/system/cpu" / name).read_text()) or None
    except (OSError, ValueError):
        return None
