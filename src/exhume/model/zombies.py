"""Zombies: memory cgroups whose directory is gone, but which the kernel keeps because pages are charged
to them. Counted by the census, explained by residuals (which parent, what kind of page) and pins (which files, who
holds them)."""

import mmap
from dataclasses import dataclass, field
from enum import StrEnum

# Zombies are counted and freed on the node itself: its pages may be 16 or 64 KiB.
PAGE = mmap.PAGESIZE


class PinKind(StrEnum):
    """What keeps a removed cgroup alive."""

    FILE = "file"  # cached file data
    MAPPED = "mapped"  # cached file data that a live process has mapped
    MLOCKED = "mlocked"  # pages that a live process locked in memory
    SHMEM = "shmem"  # tmpfs, shared memory, memfd
    ANON = "anon"
    SWAP = "swap"
    METADATA = "metadata"  # blocks of a filesystem: directories, inode tables


@dataclass(frozen=True, slots=True)
class HierarchyCensus:
    """One controller of one hierarchy. What can't be known is None, and `note` says why (a mount that shows only a part
    of the hierarchy, a directory that may not be listed). `memory_bytes` is the kernel memory that the dying hold,
    `memory_measured` whether that was measured or is the least that so many hold; growth is from a sampling of
    `sampled_s` seconds; `number` is what tracepoints name the hierarchy by. `controller` is "all" where v2 counts
    cgroups whatever controllers they have."""

    name: str
    version: int
    path: str
    controller: str
    kernel: int | None
    visible: int | None
    dying: int | None
    memory_bytes: int | None = None
    memory_measured: bool = False
    growth_per_hour: float | None = None
    sampled_s: float | None = None
    number: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Census:
    """All hierarchies, that of memory cgroups first, and what could not be counted. The kernel's memory as a whole
    (unreclaimable slab, per-CPU areas) is what the dying hold their part of."""

    hierarchies: list[HierarchyCensus]
    blind_spots: list[str] = field(default_factory=list)
    slab_bytes: int | None = None
    percpu_bytes: int | None = None

    @property
    def memory(self) -> HierarchyCensus | None:
        """The memory controller's hierarchy."""
        return next((each for each in self.hierarchies if each.controller == "memory"), None)

    @property
    def dying(self) -> int | None:
        """Dying memory cgroups of the node; None when not known."""
        known = [each.dying for each in self.hierarchies if each.controller == "memory"]
        return None if not known or None in known else sum(count or 0 for count in known)


@dataclass(frozen=True, slots=True)
class ParentResidual:
    """What is charged to removed children of a live cgroup. `path` is its directory, `name` its path in the hierarchy;
    `dying` is None where the kernel doesn't count them for each cgroup (v1). `file_bytes` includes what is dirty and
    mapped, and filesystem metadata. `unclassified_bytes` are in the page counters, but missing from memory.stat, so
    their kind is not known. Where `exact` is False (v2, or unclassified pages), pages of the cgroup itself may be
    among them; else those are `own_bytes`, apart from the others."""

    path: str
    version: int
    dying: int | None
    file_bytes: int = 0
    shmem_bytes: int = 0
    anon_bytes: int = 0
    swap_bytes: int = 0
    metadata_bytes: int = 0
    dirty_bytes: int = 0
    mapped_bytes: int = 0
    unevictable_bytes: int = 0
    name: str = ""
    exact: bool = True
    populated: bool = False
    own_bytes: int = 0
    unclassified_bytes: int = 0

    @property
    def bytes(self) -> int:
        """All of it, in memory and in swap."""
        return self.file_bytes + self.shmem_bytes + self.anon_bytes + self.swap_bytes + self.unclassified_bytes


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that keeps pages in memory: `how` is mlocked or mapped."""

    pid: int
    comm: str
    how: str


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file whose cached pages are charged to removed cgroups below `parent` (a directory), or to that itself where
    `certain` is False."""

    path: str
    kind: PinKind
    pages: int
    bytes: int
    holders: list[Holder] = field(default_factory=list)
    parent: str = ""
    certain: bool = True
    dirty_pages: int = 0


@dataclass(frozen=True, slots=True)
class PinReport:
    """The likely pins, most pages first, and what the search can't see. `expected_bytes` is what the cgroups say is
    held by pages of files in memory, to compare with what was found."""

    files: list[PinnedFile] = field(default_factory=list)
    blind_spots: list[str] = field(default_factory=list)
    expected_bytes: int = 0
    looked_at: int = 0
    seconds: float = 0.0
