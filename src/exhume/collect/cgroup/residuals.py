"""Find the live cgroups with zombies below them, and the kind of page that holds those: the part of a cgroup's totals
that neither it nor its visible children account for.

v1 has a cgroup's own pages and its totals, so the residual is exact to the page. v2 has only totals, so the residual
includes pages of the cgroup itself; there the kernel's count of dying cgroups shows where to look. Cgroups change while
they are read, so a residual counts only as far as three readings agree on it.

Before 5.13 the totals of v1 lack up to 32 pages per CPU and zombie (mm/memcontrol.c, __mod_memcg_state: a CPU's changes
reach the parents in batches of MEMCG_CHARGE_BATCH, and the remainder only when the cgroup is freed; since commit
2d146aa3aa84 they are flushed with rstat). Every v1 zombie is held by at least one page, so totals that account for
fewer pages than there are zombies are incomplete; then the page counters are read as well (memory.usage_in_bytes, which
is always up to date), and what they have beyond the totals is of unknown kind.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from exhume.collect.cgroup.dying import MEMORY, LegacyCounter, count_below
from exhume.collect.cgroup.layout import Hierarchy, find_v1, find_v2, hierarchies
from exhume.collect.cgroup.tree import CgroupTree
from exhume.model.zombies import PAGE, ParentResidual
from exhume.procfs.cpulist import possible_cpus
from exhume.procfs.flat_keyed import parse_flat_keyed
from exhume.procfs.host import Host, ProcFile, subdirectories

Progress = Callable[[float], None]
SECONDS = 5.0
_LOOKS = 3
# A CPU keeps this many charged pages of a cgroup in stock (mm/memcontrol.c, MEMCG_CHARGE_BATCH; 32 before 5.19).
_STOCK_PAGES = 64

# Our name -> the name in memory.stat (mm/memcontrol.c, memcg_stat_show and memory_stat_format as of 5.10). Cached pages
# include those of tmpfs in both versions.
_V1 = {
    "cached": b"cache",
    "shmem": b"shmem",
    "anon": b"rss",
    "swap": b"swap",
    "dirty": b"dirty",
    "mapped": b"mapped_file",
    "unevictable": b"unevictable",
}
_V2 = {
    "cached": b"file",
    "shmem": b"shmem",
    "anon": b"anon",
    "dirty": b"file_dirty",
    "mapped": b"file_mapped",
    "unevictable": b"unevictable",
}

Amounts = dict[str, int]


@dataclass(frozen=True, slots=True)
class ResidualReport:
    """The parents, largest first, and what could not be seen."""

    parents: list[ParentResidual] = field(default_factory=list)
    blind_spots: list[str] = field(default_factory=list)


def residuals(host: Host, progress: Progress | None = None) -> list[ParentResidual]:
    """The live cgroups that have something charged to removed children, largest first."""
    return find_residuals(host, progress).parents


def find_residuals(host: Host, progress: Progress | None = None, seconds: float = SECONDS) -> ResidualReport:
    """The same with its blind spots. Reads memory.stat of every cgroup, which takes long on older kernels: it stops
    after the time limit, and reports what it did not read."""
    layout = hierarchies(host)
    legacy, unified = find_v1(layout, "memory"), find_v2(layout)
    hierarchy = legacy or unified
    if hierarchy is None:
        return ResidualReport(blind_spots=["no hierarchy with the memory controller is mounted here"])
    tree = CgroupTree(hierarchy.path)
    tree.walk()
    cgroups, deadline = list(tree.cgroups()), time.monotonic() + seconds
    survey = _Survey(_Reader(hierarchy), cgroups, deadline)
    found = survey.parents(progress or (lambda _: None))
    blind_spots = survey.blind_spots()
    if legacy and (dying := LegacyCounter(host, hierarchy, [MEMORY]).count()[MEMORY].dying):
        if _pages(found) < dying:
            found = _with_page_counters(found, _Survey(_CounterReader(hierarchy), cgroups, deadline), host)
        if (shown := _pages(found)) < dying:
            blind_spots.append(
                f"pages are seen for at most {shown:,} of {dying:,} zombies: what holds the others does not show in "
                "memory.stat or in the page counters (right below the root, neither is complete on older kernels)"
            )
    found.sort(key=lambda parent: (parent.bytes, parent.dying or 0), reverse=True)
    if tree.unreadable:
        blind_spots.append(f"{min(tree.unreadable)} may not be listed, nor what is below it: run as root")
    if not hierarchy.whole:
        blind_spots.append(f"{hierarchy.path} shows only a part of the hierarchy: zombies elsewhere can't be seen")
    return ResidualReport(found, blind_spots)


def _pages(parents: list[ParentResidual]) -> int:
    return sum(parent.bytes for parent in parents) // PAGE


def _with_page_counters(parents: list[ParentResidual], counters: "_Survey", host: Host) -> list[ParentResidual]:
    """The parents with what the page counters have beyond memory.stat, and those that only the counters show."""
    known = {parent.path: parent for parent in parents}
    stock = _STOCK_PAGES * PAGE * len(possible_cpus(host) or (0,))
    for charged in counters.parents(lambda _: None):
        parent = known.get(charged.path, ParentResidual(charged.path, 1, None, name=charged.name))
        # The per-CPU stock for the processes of the cgroup itself does not belong to a zombie.
        least = stock + 1 if charged.populated else PAGE
        unclassified = charged.unclassified_bytes - parent.file_bytes - parent.shmem_bytes - parent.anon_bytes
        in_swap = charged.swap_bytes - parent.swap_bytes
        # All pages may be in swap; then no memory is charged.
        if unclassified < least and in_swap < least:
            continue
        known[parent.path] = replace(
            parent,
            unclassified_bytes=unclassified if unclassified >= least else 0,
            swap_bytes=max(parent.swap_bytes, charged.swap_bytes),
            exact=False,
            populated=charged.populated,
        )
    return list(known.values())


class _Reader:
    """Reads the statistics of the cgroups of one hierarchy."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self.version = hierarchy.version
        self.root = hierarchy.path

    def directory(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def amounts(self, name: str) -> tuple[Amounts, Amounts] | None:
        """The amounts of a cgroup itself (empty when unknown) and of its whole subtree; None when it is gone or may not
        be read."""
        content = ProcFile(self.directory(name) / "memory.stat").read_or_none()
        if content is None:
            return None
        stat = parse_flat_keyed(content)
        if self.version == 1:
            own = {key: stat.get(kernel_name, 0) for key, kernel_name in _V1.items()}
            return own, {key: stat.get(b"total_" + kernel_name, own[key]) for key, kernel_name in _V1.items()}
        total = {key: stat.get(kernel_name, 0) for key, kernel_name in _V2.items()}
        total["swap"] = self.number(name, "memory.swap.current")
        return dict.fromkeys(total, 0), total

    def number(self, name: str, file: str) -> int:
        """The value of a file with a single number; 0 when the kernel has no such file."""
        content = ProcFile(self.directory(name) / file).read_or_none() or b""
        return int(content) if content.strip().isdigit() else 0

    def dying_below(self, name: str, children: list[str]) -> int | None:
        """The number of removed cgroups whose closest live ancestor this is; None when the kernel has no count."""
        if self.version == 1:
            return None
        counts = count_below(self.directory(name))
        if counts is None:
            return None
        below = (count_below(self.directory(f"{name}/{child}")) for child in children)
        return max(0, counts.dying - sum(child.dying for child in below if child is not None))

    def populated(self, name: str) -> bool:
        return bool(ProcFile(self.directory(name) / "cgroup.procs").read_or_none())

    def hierarchical(self, name: str) -> bool:
        """On old kernels a cgroup may be non-hierarchical: then its totals lack those below it."""
        content = ProcFile(self.directory(name) / "memory.use_hierarchy").read_or_none()
        return content is None or content.strip() != b"0"


class _CounterReader(_Reader):
    """Reads the page counters of v1 instead of the totals of memory.stat. numa_stat would have them by kind, but walks
    the whole subtree before 5.8, which would cause the very incident."""

    def amounts(self, name: str) -> tuple[Amounts, Amounts] | None:
        # The root's usage is derived from the same incomplete statistics (mm/memcontrol.c, mem_cgroup_usage).
        read = super().amounts(name) if name else None
        if read is None:
            return None
        usage = self.number(name, "memory.usage_in_bytes")
        charged = usage - self.number(name, "memory.kmem.usage_in_bytes")
        swap = self.number(name, "memory.memsw.usage_in_bytes") - usage
        nothing = dict.fromkeys(read[0], 0)
        own = nothing | {"swap": read[0]["swap"], "unclassified": read[0]["cached"] + read[0]["anon"]}
        return own, nothing | {"swap": max(0, swap), "unclassified": max(0, charged)}


class _Survey:
    """One reading of a whole hierarchy, within a time limit."""

    def __init__(self, reader: _Reader, cgroups: list[tuple[str, list[str]]], deadline: float) -> None:
        self._reader = reader
        self._cgroups = cgroups
        self._deadline = deadline
        self._read: dict[str, tuple[Amounts, Amounts] | None] = {}
        self._unread = 0
        self._closed = 0
        self._alone: list[str] = []

    def parents(self, progress: Progress) -> list[ParentResidual]:
        """Every cgroup that has more than itself and its children."""
        return list(self._parents(progress))

    def blind_spots(self) -> list[str]:
        found = []
        if self._unread:
            found.append(
                f"reading took too long: {self._unread:,} of {len(self._cgroups):,} cgroups were not looked at"
            )
        if self._closed:
            found.append(
                f"memory.stat of {self._closed:,} cgroups could not be read (gone meanwhile, or not permitted)"
            )
        if self._alone:
            found.append(f"{self._alone[0]} has memory.use_hierarchy off: its totals lack those below it")
        return found

    def _parents(self, progress: Progress) -> Iterator[ParentResidual]:
        for index, (name, children) in enumerate(self._cgroups):
            progress(index / len(self._cgroups))
            if time.monotonic() > self._deadline:
                self._unread += 1
                continue
            dying = self._reader.dying_below(name, children)
            if self._reader.version == 2 and not dying:
                continue
            rest = self._rest(name, children)
            if rest is None:
                self._closed += 1
                continue
            if self._reader.version == 1 and not any(rest.values()):
                if not self._reader.hierarchical(name):
                    self._alone.append(str(self._reader.directory(name)))
                continue
            agreed = self._agreed(name, rest)
            if dying or any(agreed.values()):
                yield self._parent(name, dying, agreed)

    def _agreed(self, name: str, rest: Amounts) -> Amounts:
        """The part that further readings confirm."""
        for _ in range(_LOOKS - 1):
            again = self._fresh_rest(name)
            if again is not None:
                rest = {key: min(value, again[key]) for key, value in rest.items()}
        return rest

    def _rest(self, name: str, children: list[str]) -> Amounts | None:
        """Totals minus what the cgroup itself and its children account for; None when unknown. A child that was just
        removed would look like a zombie, so children are then listed again."""
        rest = self._minus_children(name, children)
        for _ in range(_LOOKS):
            if rest is not None:
                break
            rest = self._fresh_rest(name)
        return rest

    def _fresh_rest(self, name: str) -> Amounts | None:
        children = subdirectories(self._reader.directory(name))
        for path in (name, *(f"{name}/{child}" for child in children)):
            self._read.pop(path, None)
        return self._minus_children(name, children)

    def _minus_children(self, name: str, children: list[str]) -> Amounts | None:
        # Read the cgroup first: charges that children gain in the meantime make the residual smaller, never larger.
        mine = self._amounts(name)
        if mine is None:
            return None
        own, rest = mine[0], dict(mine[1])
        for key, value in own.items():
            rest[key] -= value
        for child in children:
            theirs = self._amounts(f"{name}/{child}")
            if theirs is None:
                return None
            for key, value in theirs[1].items():
                rest[key] -= value
        return {key: max(0, value) for key, value in rest.items()}

    def _amounts(self, name: str) -> tuple[Amounts, Amounts] | None:
        if name not in self._read:
            self._read[name] = self._reader.amounts(name)
        return self._read[name]

    def _parent(self, name: str, dying: int | None, rest: Amounts) -> ParentResidual:
        return ParentResidual(
            path=str(self._reader.directory(name)),
            version=self._reader.version,
            dying=dying,
            file_bytes=max(0, rest["cached"] - rest["shmem"]),
            shmem_bytes=rest["shmem"],
            anon_bytes=rest["anon"],
            swap_bytes=rest["swap"],
            dirty_bytes=rest["dirty"],
            mapped_bytes=rest["mapped"],
            unevictable_bytes=rest["unevictable"],
            name=name or "/",
            exact=self._reader.version == 1,
            populated=self._reader.populated(name),
            own_bytes=own[0]["cached"] if (own := self._amounts(name)) else 0,
            unclassified_bytes=rest.get("unclassified", 0),
        )
