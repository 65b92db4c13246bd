"""What a plan against zombies is made from: the census, the residuals, the pins, and what the node has to work with.
Plain values, so that planning touches nothing."""

from dataclasses import dataclass
from pathlib import Path

from exhume.model.zombies import Census, ParentResidual, PinReport
from exhume.remedy.swaps import Swap


@dataclass(frozen=True, slots=True)
class WorkPlace:
    """Where a temporary swapfile would go: the room there, and why it can't hold one (empty when it can)."""

    path: Path
    free: int
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything at one moment. `fell` is how many fewer zombies a second look saw while nobody did anything, `after_s`
    seconds later; `leftovers` are what an earlier run made and could not remove;
    `unswappable` are parents whose limits keep everything below them out of swap."""

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


def reclaim_file(parent: ParentResidual) -> Path | None:
    """The file that makes the kernel reclaim below a cgroup. The root of v1 has one, but it refuses."""
    if parent.version == 2:
        return Path(parent.path) / "memory.reclaim"
    return None if is_root(parent) else Path(parent.path) / "memory.force_empty"


def is_root(parent: ParentResidual) -> bool:
    return parent.name in ("", "/")
