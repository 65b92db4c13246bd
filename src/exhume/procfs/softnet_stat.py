"""/proc/net/softnet_stat (net/core/net-procfs.c, softnet_seq_show): a line of hexadecimal counters per CPU."""

from typing import NamedTuple

_CPU = 12


class Softnet(NamedTuple):
    """One CPU's receive backlog: packets processed and dropped, and polls that ran out of budget or time. `cpu` is None
    on kernels that print only online CPUs and do not number them."""

    cpu: int | None
    processed: int
    dropped: int
    squeezed: int


def parse_softnet_stat(content: bytes) -> list[Softnet]:
    """The lines in order; a truncated one is left out."""
    found = []
    for line in content.splitlines():
        fields = line.split()
        if len(fields) >= 3:
            cpu = int(fields[_CPU], 16) if len(fields) > _CPU else None
            found.append(Softnet(cpu, int(fields[0], 16), int(fields[1], 16), int(fields[2], 16)))
    return found
