"""Zombies: memory cgroups whose directory was removed, but which the kernel keeps because pages are charged to them.
The census counts them; residuals (which parent, what kind of page) and pins (which files, which holders) explain
them."""

import mmap
from dataclasses import dataclass, field
from enum import StrEnum

# Zombies are counted and freed on the node itself, whose page size may be 16 or 64 KiB.
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
    """One controller of one hierarchy. Unknown values are None, and `note` says why (a mount that shows only a part of
    the hierarchy, a directory that is not listable). `memory_bytes` is the kernel memory that dying cgroups hold,
    `memory_measured` whether that was measured or is a lower bound for that many; growth is sampled over `sampled_s`
    seconds; `number` is the hierarchy's id in tracepoints. `controller` is "all" where v2 counts cgroups regardless of
    their controllers."""

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
    """All hierarchies, the memory controller's first, and what could not be counted. `slab_bytes` (unreclaimable) and
    `percpu_bytes` are the kernel's totals, of which dying cgroups hold a part."""

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
        """Dying memory cgroups of the node; None if unknown."""
        known = [each.dying for each in self.hierarchies if each.controller == "memory"]
        return None if not known or None in known else sum(count or 0 for count in known)


@dataclass(frozen=True, slots=True)
class ParentResidual:
    """Memory charged to removed children of a live cgroup. `path` is its directory, `name` its path in the hierarchy;
    `dying` is None if the kernel doesn't count them per cgroup (v1). `file_bytes` includes dirty and mapped pages, and
    filesystem metadata. `unclassified_bytes` are in the page counters but missing from memory.stat, so their kind is
    unknown. If `exact` is False (v2, or unclassified pages), pages of the cgroup itself may be included; otherwise
    those are separate, in `own_bytes`."""

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
        """The total, in memory and in swap."""
        return self.file_bytes + self.shmem_bytes + self.anon_bytes + self.swap_bytes + self.unclassified_bytes


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that keeps pages in memory: `how` is mlocked or mapped."""

    pid: int
    comm: str
    how: str


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file whose cached pages are charged to removed cgroups below `parent` (a directory), or to the parent itself if
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
    """The likely pins, most pages first, and what the search can't see. `expected_bytes` is the amount that, according
    to the cgroups, is held by file pages in memory, for comparison with what was found."""

    files: list[PinnedFile] = field(default_factory=list)
    blind_spots: list[str] = field(default_factory=list)
    expected_bytes: int = 0
    looked_at: int = 0
    seconds: float = 0.0
