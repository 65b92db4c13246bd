"""The situation on which a plan against zombies is based: the census, what is charged below which parents, what pins
it, and what the node can spare."""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from exhume.collect.cgroup.census import take_census
from exhume.collect.cgroup.layout import find_v1, find_v2, hierarchies
from exhume.collect.cgroup.pins import KnownPins, classify, likely_pins
from exhume.collect.cgroup.residuals import find_residuals
from exhume.control.changes import read_journal
from exhume.control.swap import Swap, swaps
from exhume.model.errors import UsageError
from exhume.model.stop import Stop
from exhume.model.zombies import Census, ParentResidual, PinReport
from exhume.procfs.flat_keyed import parse_flat_keyed
from exhume.procfs.host import Host, ProcFile
from exhume.procfs.mountinfo import read_mounts


@dataclass(frozen=True, slots=True)
class WorkPlace:
    """The place for a temporary swapfile: the free space, and why it can't hold one (empty if it can)."""

    path: Path
    free: int
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """The zombies that a step covers: those `below` a cgroup; directories to `search` first for files that pin them,
    and the ids of the `only` parts that may be taken (empty: all)."""

    below: Path | None = None
    search: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()

    @property
    def params(self) -> tuple[tuple[str, str], ...]:
        """The form that a step stores."""
        below = [("below", str(self.below))] if self.below is not None else []
        return (*below, *(("search", str(path)) for path in self.search), *(("only", name) for name in self.only))

    @classmethod
    def from_params(cls, params: Iterable[tuple[str, str]]) -> "Scope":
        """Read the output of `params`."""
        known = list(params)
        below = [Path(value) for name, value in known if name == "below"]
        search = tuple(Path(value) for name, value in known if name == "search")
        return cls(below[0] if below else None, search, tuple(value for name, value in known if name == "only"))


@dataclass(frozen=True, slots=True)
class Situation:
    """The state of a node at one moment. `fell` is how many fewer zombies a second count found while nothing was done,
    `after_s` seconds later; `leftovers` are what an earlier run created and could not remove; `unswappable` are parents
    whose limits keep everything below them out of swap; `has_pods`: the node runs Kubernetes pods."""

    census: Census
    residuals: tuple[ParentResidual, ...]
    pins: PinReport
    swaps: tuple[Swap, ...]
    memory_available: int
    page_cache: int
    place: WorkPlace
    fell: int = 0
    after_s: float = 0.0
    leftovers: tuple[str, ...] = ()
    unswappable: frozenset[str] = frozenset()
    below: Path | None = None
    blind_spots: tuple[str, ...] = ()
    has_pods: bool = False


def reclaim_file(parent: ParentResidual) -> Path | None:
    """The file that triggers reclaim below a cgroup. The root of v1 has one, but it refuses writes."""
    if parent.version == 2:
        return Path(parent.path) / "memory.reclaim"
    return None if is_root(parent) else Path(parent.path) / "memory.force_empty"


def is_root(parent: ParentResidual) -> bool:
    return parent.name in ("", "/")


Progress = Callable[[float], None]
PIN_SECONDS = 8.0
# A second count after this time shows whether the number falls by itself.
_WAIT_S = 0.5
# The kernel's memory statistics may lag by this much.
_STATISTICS_LATE_S = 2.2
# File systems that can't hold a swapfile.
_NO_SWAPFILES = frozenset(
    {"tmpfs", "devtmpfs", "ramfs", "overlay", "nfs", "nfs4", "cifs", "9p", "virtiofs", "zfs", "fuse"}
)


@dataclass(frozen=True, slots=True)
class Watch:
    """Observes one node, or with `below` only what is below one of its cgroups. `roots` are directories that probably
    hold the files that pin; `known` are those that were found, so that later looks needn't search again; `stop` ends a
    search early."""

    host: Host
    place: Path
    below: Path | None = None
    roots: Sequence[Path] = ()
    pin_seconds: float = PIN_SECONDS
    known: KnownPins = field(default_factory=KnownPins)
    stop: Stop | None = None

    def residuals(self) -> list[ParentResidual]:
        """Parents with memory charged to removed children."""
        return [parent for parent in find_residuals(self.host).parents if self._inside(parent)]

    def situation(self, progress: Progress | None = None) -> Situation:
        """Collect everything that a plan is based on."""
        census = take_census(self.host)
        began = time.monotonic()
        report = find_residuals(self.host)
        parents = [parent for parent in report.parents if self._inside(parent)]
        pins = PinReport()
        if parents:
            pins = likely_pins(
                self.host, parents, self.roots, progress, self.pin_seconds, known=self.known, stop=self.stop
            )
        if progress is not None:
            progress(1.0)
        if any(_is_partly_metadata(parent) for parent in classify(parents, pins, census.dying)):
            time.sleep(_STATISTICS_LATE_S)
            parents = _lower(parents, self.residuals())
        parents = classify(parents, pins, census.dying)
        if not parents:
            time.sleep(_WAIT_S)
        again = take_census(self.host)
        fell = census.dying - again.dying if census.dying is not None and again.dying is not None else 0
        memory = parse_flat_keyed(ProcFile(self.host.proc / "meminfo").read_or_none() or b"")
        kib = {name: memory.get(name, 0) * 1024 for name in (b"MemAvailable", b"Cached", b"Buffers", b"Shmem")}
        return Situation(
            census=again,
            residuals=tuple(parents),
            pins=pins,
            swaps=tuple(swaps(self.host)),
            memory_available=kib[b"MemAvailable"],
            page_cache=max(0, kib[b"Cached"] + kib[b"Buffers"] - kib[b"Shmem"]),
            place=work_place(self.host, self.place),
            fell=max(0, fell),
            after_s=time.monotonic() - began,
            leftovers=tuple(str(change) for change in read_journal(self.place, self.host).changes),
            unswappable=frozenset(parent.path for parent in parents if parent.version == 2 and _swap_is_barred(parent)),
            below=self.below,
            blind_spots=tuple(report.blind_spots),
            has_pods=_has_pods(self.host),
        )

    def _inside(self, parent: ParentResidual) -> bool:
        return self.below is None or Path(parent.path).is_relative_to(self.below)


def _is_partly_metadata(parent: ParentResidual) -> bool:
    """Whether some cached pages are metadata and some are not; if the kernel reclaims by itself, the latter may be gone
    before they are searched for."""
    return 0 < parent.metadata_bytes < parent.file_bytes


def _lower(parents: Sequence[ParentResidual], later: Sequence[ParentResidual]) -> list[ParentResidual]:
    """For each parent found by both passes, the residual with fewer bytes."""
    again = {parent.path: parent for parent in later}
    return [min(parent, again[parent.path], key=lambda each: each.bytes) for parent in parents if parent.path in again]


def memory_root(host: Host) -> Path | None:
    """The root of the hierarchy with memory cgroups: a cgroup that always exists."""
    layout = hierarchies(host)
    hierarchy = find_v1(layout, "memory") or find_v2(layout)
    return hierarchy.path if hierarchy else None


def _has_pods(host: Host) -> bool:
    """Whether kubelet's pod cgroups exist, with either of its cgroup drivers."""
    root = memory_root(host)
    return root is not None and any((root / name).is_dir() for name in ("kubepods", "kubepods.slice"))


def find_cgroup(host: Host, path: Path) -> Path:
    """Find a memory cgroup by its directory, or by its path as in /proc/PID/cgroup. Raises UsageError."""
    root = memory_root(host)
    named = root / str(path).lstrip("/") if root else path
    found = next((each for each in (path, named) if (each / "cgroup.procs").exists()), None)
    if found is None:
        raise UsageError(f"{path} is not a cgroup with the memory controller; --below takes its directory or its path")
    return found


def work_place(host: Host, place: Path) -> WorkPlace:
    """Examine a place for a swapfile, or its nearest existing parent if it would have to be created."""
    existing = next(path for path in (place, *place.parents) if path.exists())
    real = existing.resolve()
    mounts = [mount for mount in read_mounts(host.proc / "self/mountinfo") if real.is_relative_to(mount.point)]
    # Of mounts on top of each other, the last one is visible.
    kind = max(enumerate(mounts), key=lambda each: (len(each[1].point), each[0]))[1].kind if mounts else ""
    why_not = ""
    if kind in _NO_SWAPFILES or kind.startswith("fuse."):
        why_not = f"{place} is on {kind}, which can't hold a swapfile; name a directory on a disk with --work-dir"
    elif not os.access(existing, os.W_OK):
        why_not = f"{existing} can't be written to; name another directory with --work-dir"
    return WorkPlace(place, shutil.disk_usage(existing).free, why_not)


def _swap_is_barred(parent: ParentResidual) -> bool:
    """Whether a limit on a v2 cgroup or above it forbids swap."""
    path = Path(parent.path)
    return any((ProcFile(up / "memory.swap.max").read_or_none() or b"").strip() == b"0" for up in (path, *path.parents))
