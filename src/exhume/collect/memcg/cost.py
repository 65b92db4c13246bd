"""What a dead memory cgroup costs the kernel. The kernel doesn't tell, so this is an estimate and says so."""

from dataclasses import dataclass

from exhume.collect.cpulist import parse_cpu_list
from exhume.collect.host import Host, ProcFile
from exhume.collect.memcg.flat_keyed import parse_flat_keyed

# Measured on Linux 6.18 by making tens of thousands: unreclaimable slab for each, and a per-CPU part for every CPU that
# the machine may ever have.
SLAB_BYTES = 12_186
PERCPU_BYTES = 2_048


@dataclass(frozen=True, slots=True)
class KernelMemory:
    """What the whole kernel holds in unreclaimable slab and per-CPU areas, and how many CPUs those are made for."""

    slab: int | None
    percpu: int | None
    cpus: int

    @classmethod
    def read(cls, host: Host) -> "KernelMemory":
        kib = parse_flat_keyed(ProcFile(host.proc / "meminfo").read_or_none() or b"")
        slab, percpu = (kib[name] * 1024 if name in kib else None for name in (b"SUnreclaim", b"Percpu"))
        possible = ProcFile(host.sys / "devices/system/cpu/possible").read_or_none() or b""
        return cls(slab, percpu, len(parse_cpu_list(possible.decode())))

    def held_by(self, zombies: int) -> int | None:
        """An estimate of what so many dead memory cgroups hold, never more than there is; None where the number of
        CPUs is not known."""
        if not self.cpus:
            return None
        slab, percpu = zombies * SLAB_BYTES, zombies * PERCPU_BYTES * self.cpus
        return min(slab, self.slab if self.slab is not None else slab) + min(
            percpu, self.percpu if self.percpu is not None else percpu
        )
