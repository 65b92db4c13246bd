"""What a dead memory cgroup costs the kernel. The kernel doesn't tell, so this is an estimate and says so."""

import time
from dataclasses import dataclass, replace

from exhume.collect.cgroup.layout import Hierarchy, hierarchies
from exhume.collect.cgroup.tree import CgroupTree
from exhume.model.clock import NANOS
from exhume.model.zombies import Census, HierarchyCensus
from exhume.procfs.cgroup import parse_controllers
from exhume.procfs.cpulist import possible_cpus
from exhume.procfs.flat_keyed import parse_flat_keyed, parse_meminfo
from exhume.procfs.host import Host, ProcFile

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
        memory = parse_meminfo(ProcFile(host.proc / "meminfo").read_or_none() or b"")
        return cls(memory.get("SUnreclaim"), memory.get("Percpu"), len(possible_cpus(host) or ()))

    def held_by(self, zombies: int) -> int | None:
        """An estimate of what so many dead memory cgroups hold, never more than there is; None where the number of
        CPUs is not known."""
        if not self.cpus:
            return None
        slab, percpu = zombies * SLAB_BYTES, zombies * PERCPU_BYTES * self.cpus
        return min(slab, self.slab if self.slab is not None else slab) + min(
            percpu, self.percpu if self.percpu is not None else percpu
        )


MEMORY = "memory"
# As recordings name it.
UNIFIED = "unified"
ALL = "all"
CONFIRM_S = 0.06
SHORTEST_SAMPLING_S = 0.2
_TRIES = 6
_NO_LIMIT = 1 << 62


def take_census(host: Host, sample_s: float = 0.0) -> Census:
    """Count, confirm, and with `sample_s` look again after so many seconds to see growth."""
    counters = _counters(host)
    looks = {counter: [counter.look()] for counter in counters}
    began = time.monotonic()
    for moment in _moments(sample_s):
        waiting = [counter for counter in counters if counter.counts_memory or looks[counter][0].any_dying]
        if not waiting:
            break
        time.sleep(max(0.0, began + moment - time.monotonic()))
        for counter in waiting:
            looks[counter].append(counter.look())
    held = KernelMemory.read(host)
    counts = [count for counter in counters for count in _settled(counter, looks[counter])]
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
    """Counts zombies of the memory controller again and again, and nothing else; what it reads stays open."""

    def __init__(self, host: Host) -> None:
        self._counters = [counter for counter in _counters(host) if counter.counts_memory]
        self.note = "" if self._counters else "no hierarchy with the memory controller is mounted here"

    def count(self) -> int | None:
        """How many there are now, confirmed by another look; None, with the reason in `note`, where nobody can tell."""
        found: int | None = None
        for counter in self._counters:
            looks = [counter.look()]
            if looks[0].any_dying:
                time.sleep(CONFIRM_S)
                looks.append(counter.look())
            figures = _lower([(look.at, look.seen[MEMORY]) for look in looks if MEMORY in look.seen])[1]
            self.note = figures.note
            if figures.dying is not None:
                found = (found or 0) + figures.dying
        return found


@dataclass(frozen=True, slots=True)
class _Figures:
    kernel: int | None
    visible: int | None
    dying: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look saw, by controller."""

    at: int
    seen: dict[str, _Figures]

    @property
    def any_dying(self) -> bool:
        return any(figures.dying for figures in self.seen.values())


class _Legacy:
    """A hierarchy of v1."""

    def __init__(self, host: Host, hierarchy: Hierarchy, controllers: list[str]) -> None:
        self.hierarchy = hierarchy
        self.name = MEMORY if MEMORY in controllers else ",".join(controllers)
        self._controller = next(iter(controllers))
        self.counts_memory = self.name == MEMORY
        self._counts = ProcFile(host.proc / "cgroups")
        self._tree = CgroupTree(hierarchy.path)

    @property
    def number(self) -> int | None:
        row = parse_controllers(self._counts.read_or_none() or b"").get(self._controller)
        return row.hierarchy if row else None

    def look(self) -> _Look:
        return _Look(time.monotonic_ns(), {self.name: self._figures()})

    def _figures(self) -> _Figures:
        path = self.hierarchy.path
        if not self.hierarchy.whole:
            note = (
                f"{path} shows only a part of the hierarchy (a cgroup namespace, or a mount of a subtree): run in the "
                "node's cgroup namespace to count zombies"
            )
            return _Figures(self._kernel(), None, None, note)
        seen: list[int] = []
        for _ in range(_TRIES):
            before = self._kernel()
            self._tree.begin()
            self._tree.advance(_NO_LIMIT)
            after, visible = self._kernel(), self._tree.visible
            if self._tree.unreadable:
                return _Figures(after, None, None, _may_not_list(self._tree.unreadable))
            if before is None or after is None:
                return _Figures(None, visible, None, f"/proc/cgroups can't be read, or has no row for {self.name}")
            if before == after >= visible:
                return _Figures(after, visible, after - visible)
            seen += [max(0, before - visible), max(0, after - visible)]
        note = (
            f"cgroups come and go faster than they can be counted: there are between {min(seen):,} and {max(seen):,} "
            "zombies; try again in a quieter moment"
        )
        return _Figures(after, None, None, note)

    def _kernel(self) -> int | None:
        row = parse_controllers(self._counts.read_or_none() or b"").get(self._controller)
        return row.cgroups if row else None


class _Unified:
    """The hierarchy of v2: the kernel counts, and since 6.12 for each controller."""

    name = UNIFIED
    number = 0

    def __init__(self, hierarchy: Hierarchy, counts_memory: bool) -> None:
        self.hierarchy = hierarchy
        self.counts_memory = counts_memory
        self._stat = ProcFile(hierarchy.path / "cgroup.stat")

    def look(self) -> _Look:
        at = time.monotonic_ns()
        whatever = MEMORY if self.counts_memory else ALL
        try:
            stat = parse_flat_keyed(self._stat.read())
        except OSError as error:
            return _Look(at, {whatever: _Figures(None, None, None, f"{self._stat.path}: {error.strerror}")})
        seen: dict[str, _Figures] = {}
        for name, dying in stat.items():
            controller = name.removeprefix(b"nr_dying_subsys_")
            visible = stat.get(b"nr_subsys_" + controller)
            if controller != name and visible is not None:
                seen[controller.decode()] = _Figures(visible + dying, visible, dying)
        if not self.counts_memory:
            # The controller is elsewhere; what is left of it here is the root alone.
            seen.pop(MEMORY, None)
        live, dying_cgroups = stat.get(b"nr_descendants"), stat.get(b"nr_dying_descendants")
        if live is None or dying_cgroups is None:
            unknown = _Figures(None, None, None, f"{self._stat.path} has no count of dying cgroups (Linux before 4.14)")
            seen.setdefault(whatever, unknown)
        elif whatever not in seen:
            together = "" if whatever == ALL else "this kernel counts dying cgroups of all controllers together"
            seen[whatever] = _Figures(live + 1 + dying_cgroups, live + 1, dying_cgroups, together)
        if not self.hierarchy.whole:
            part = f"only what is below {self.hierarchy.path} (a cgroup namespace, or a mount of a subtree)"
            seen = {name: replace(figures, note=figures.note or part) for name, figures in seen.items()}
        return _Look(at, seen)


_Counter = _Legacy | _Unified


def _counters(host: Host) -> list[_Counter]:
    layout = hierarchies(host)
    rows = parse_controllers(ProcFile(host.proc / "cgroups").read_or_none() or b"")
    found: list[_Counter] = []
    legacy_memory = any(each.version == 1 and MEMORY in each.controllers for each in layout)
    for each in layout:
        if each.version == 2:
            found.append(_Unified(each, not legacy_memory))
        elif controllers := sorted(each.controllers & (rows.keys() | {MEMORY})):
            # Hierarchies without a controller (name=systemd) are not in /proc/cgroups: nothing counts them.
            found.append(_Legacy(host, each, controllers))
    return found


def _moments(sample_s: float) -> list[float]:
    """When to look again, in seconds after the first look."""
    if sample_s < SHORTEST_SAMPLING_S:
        return [CONFIRM_S]
    return [CONFIRM_S, sample_s - CONFIRM_S, sample_s]


def _settled(counter: _Counter, looks: list[_Look]) -> list[HierarchyCensus]:
    """The counts that the looks agree on: each pair by its lower one."""
    found = []
    for controller in dict.fromkeys(name for look in looks for name in look.seen):
        seen = [(look.at, look.seen[controller]) for look in looks if controller in look.seen]
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


def _lower(seen: list[tuple[int, _Figures]]) -> tuple[int, _Figures]:
    known = [each for each in seen if each[1].dying is not None]
    return min(known, key=lambda each: each[1].dying or 0) if known else seen[-1]


def _may_not_list(paths: set[str]) -> str:
    example = min(paths)
    others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{example}{others} may not be listed, so visible cgroups can't be counted: run as root"
