"""The census of zombies: dying cgroups of every hierarchy, confirmed by a second count, their growth, and a lower bound
of the kernel memory that dying memory cgroups hold (the kernel does not report it)."""

import time
from dataclasses import dataclass, replace

from exhume.collect.cgroup.dying import MEMORY, DyingCount, DyingCounter, dying_counters
from exhume.model.clock import NANOS
from exhume.model.zombies import Census, HierarchyCensus
from exhume.procfs.cpulist import possible_cpus
from exhume.procfs.flat_keyed import parse_meminfo
from exhume.procfs.host import Host, ProcFile

# A cgroup that nothing holds is released within some 40 ms: one that is still dying after this is a zombie.
CONFIRM_S = 0.06
SHORTEST_SAMPLING_S = 0.2
# Measured on Linux 6.18 by making tens of thousands: unreclaimable slab for each, and a per-CPU part for every CPU that
# the machine may ever have.
SLAB_BYTES = 12_186
PERCPU_BYTES = 2_048


@dataclass(frozen=True, slots=True)
class KernelMemory:
    """The kernel's total unreclaimable slab and per-CPU memory, and the number of CPUs that the latter is allocated
    for."""

    slab: int | None
    percpu: int | None
    cpus: int

    @classmethod
    def read(cls, host: Host) -> "KernelMemory":
        memory = parse_meminfo(ProcFile(host.proc / "meminfo").read_or_none() or b"")
        return cls(memory.get("SUnreclaim"), memory.get("Percpu"), len(possible_cpus(host) or ()))

    def fell_to(self, later: "KernelMemory") -> int | None:
        """How much less memory `later` has; None when unknown."""
        if self.slab is None or later.slab is None:
            return None
        return max(0, self.slab + (self.percpu or 0) - later.slab - (later.percpu or 0))

    def held_by(self, zombies: int) -> int | None:
        """A lower bound for the memory of this many dead memory cgroups, never more than the total; None when the
        number of CPUs is unknown. Each may hold many times as much: an array in every memory cgroup grows with each
        superblock that ever existed (mm/shrinker.c, alloc_shrinker_info; mm/vmscan.c before 6.7)."""
        if not self.cpus:
            return None
        slab, percpu = zombies * SLAB_BYTES, zombies * PERCPU_BYTES * self.cpus
        return min(slab, self.slab if self.slab is not None else slab) + min(
            percpu, self.percpu if self.percpu is not None else percpu
        )


def take_census(host: Host, sample_s: float = 0.0) -> Census:
    """Count, confirm, and with `sample_s` count again after that many seconds to see growth."""
    counters = dying_counters(host)
    readings = {counter: [_Reading.take(counter)] for counter in counters}
    began = time.monotonic()
    for moment in _moments(sample_s):
        waiting = [counter for counter in counters if counter.counts_memory or readings[counter][0].any_dying]
        if not waiting:
            break
        time.sleep(max(0.0, began + moment - time.monotonic()))
        for counter in waiting:
            readings[counter].append(_Reading.take(counter))
    held = KernelMemory.read(host)
    counts = [count for counter in counters for count in _settled(counter, readings[counter])]
    counts = [
        replace(count, memory_bytes=held.held_by(count.dying))
        if count.controller == MEMORY and count.dying is not None
        else count
        for count in counts
    ]
    counts.sort(key=lambda count: (count.controller != MEMORY, -(count.dying or 0)))
    blind_spots = [f"{count.controller}: {count.note}" for count in counts if count.note]
    if not any(count.controller == MEMORY for count in counts):
        blind_spots.append("no hierarchy with the memory controller is mounted here: mount the node's /sys/fs/cgroup")
    return Census(counts, blind_spots, held.slab, held.percpu)


class ZombieCounter:
    """Counts zombies of the memory controller repeatedly, and nothing else; its files stay open."""

    def __init__(self, host: Host) -> None:
        self._counters = [counter for counter in dying_counters(host) if counter.counts_memory]
        self.note = "" if self._counters else "no hierarchy with the memory controller is mounted here"

    def count(self) -> int | None:
        """How many there are now, confirmed by a second count; None, with the reason in `note`, when unknown."""
        found: int | None = None
        for counter in self._counters:
            readings = [_Reading.take(counter)]
            if readings[0].any_dying:
                time.sleep(CONFIRM_S)
                readings.append(_Reading.take(counter))
            count = _lower([(each.at, each.counts[MEMORY]) for each in readings if MEMORY in each.counts])[1]
            self.note = count.note
            if count.dying is not None:
                found = (found or 0) + count.dying
        return found


@dataclass(frozen=True, slots=True)
class _Reading:
    """The counts of one hierarchy at a time (monotonic nanoseconds), by controller."""

    at: int
    counts: dict[str, DyingCount]

    @classmethod
    def take(cls, counter: DyingCounter) -> "_Reading":
        return cls(time.monotonic_ns(), counter.count())

    @property
    def any_dying(self) -> bool:
        return any(count.dying for count in self.counts.values())


def _moments(sample_s: float) -> list[float]:
    """When to count again, in seconds after the first count."""
    if sample_s < SHORTEST_SAMPLING_S:
        return [CONFIRM_S]
    return [CONFIRM_S, sample_s - CONFIRM_S, sample_s]


def _settled(counter: DyingCounter, readings: list[_Reading]) -> list[HierarchyCensus]:
    """The counts that the readings agree on: the lower of each pair."""
    found = []
    for controller in dict.fromkeys(name for reading in readings for name in reading.counts):
        seen = [(reading.at, reading.counts[controller]) for reading in readings if controller in reading.counts]
        (first_at, first), (last_at, last) = _lower(seen[:2]), _lower(seen[-2:])
        growth = sampled = None
        if len(seen) >= 4 and first.dying is not None and last.dying is not None:
            sampled = (last_at - first_at) / NANOS
            growth = (last.dying - first.dying) / sampled * 3600
        found.append(
            HierarchyCensus(
                counter.name,
                counter.hierarchy.version,
                str(counter.hierarchy.path),
                controller,
                last.kernel,
                last.visible,
                last.dying,
                growth_per_hour=growth,
                sampled_s=sampled,
                number=counter.number,
                note=last.note,
            )
        )
    return found


def _lower(seen: list[tuple[int, DyingCount]]) -> tuple[int, DyingCount]:
    known = [each for each in seen if each[1].dying is not None]
    return min(known, key=lambda each: each[1].dying or 0) if known else seen[-1]
