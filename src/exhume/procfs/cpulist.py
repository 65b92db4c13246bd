"""The kernel's way to write a set of cores: `0-3,8,10-11`."""

from exhume.procfs.host import Host


def parse_cpu_list(text: str) -> list[int]:
    """The cores of a list; empty for an empty one."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        if first:
            cpus.extend(range(int(first), int(last if dash else first) + 1))
    return cpus


def online_cpus(host: Host) -> list[int] | None:
    """The cores that are online now; None where the kernel doesn't tell."""
    try:
        return parse_cpu_list((host.sys / "devices/system/cpu/online").read_text())
    except (OSError, ValueError):
        return None
