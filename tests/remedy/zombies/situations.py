"""Situations made by hand, as the kernel would show them."""

from pathlib import Path

from exhume.model.zombies import PAGE, Census, HierarchyCensus, ParentResidual, PinnedFile, PinReport
from exhume.remedy.zombies.situation import Situation, WorkPlace

GIB = 1 << 30
ROOT = "/sys/fs/cgroup/memory"


def census(dying: int | None) -> Census:
    kernel = None if dying is None else dying + 240
    return Census([HierarchyCensus("memory", 1, ROOT, "memory", kernel, 240, dying)])


def parent(name: str = "/docker", version: int = 1, dying: int | None = None, **pages: int) -> ParentResidual:
    """A parent with so many pages of each kind."""
    amounts = {f"{kind}_bytes": number * PAGE for kind, number in pages.items()}
    return ParentResidual(path=f"{ROOT}{name.rstrip('/')}", version=version, dying=dying, name=name, **amounts)


def pinned(path: str, kind: str, pages: int = 1, holders: tuple = ()) -> PinnedFile:
    return PinnedFile(path, kind, pages, pages * PAGE, list(holders))


def situation(dying: int | None, *parents: ParentResidual, pins: tuple = (), **others: object) -> Situation:
    values = {
        "swaps": (),
        "memory_available": 8 * GIB,
        "page_cache": 2 * GIB,
        "place": WorkPlace(Path("/var/lib/exhume-fix"), 100 * GIB),
        **others,
    }
    report = PinReport(list(pins), expected_bytes=sum(file.bytes for file in pins))
    return Situation(census=census(dying), residuals=parents, pins=report, **values)
