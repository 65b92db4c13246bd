"""All sources that read files of the node, as many as this node lets work."""

from collections.abc import Callable
from dataclasses import dataclass, field

from exhume.collect.cgroups import CgroupSource
from exhume.collect.cpu import CpuSource
from exhume.collect.host import Host
from exhume.collect.interrupts import InterruptSource
from exhume.collect.kmsg import KernelLogSource, LogPosition
from exhume.collect.netdev import NetdevSource
from exhume.collect.node import NodeSource
from exhume.collect.softnet import SoftnetSource
from exhume.collect.source import PartialSource, Source
from exhume.collect.stat import StatFile
from exhume.collect.threads import ThreadSource
from exhume.collect.throttling import ThrottlingSource
from exhume.model.errors import Missing, SourceUnavailable


@dataclass(slots=True)
class FileSources:
    """The sources that work, in the order in which to read them (the most urgent first), and what is missing."""

    sources: list[Source] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    cgroups: CgroupSource | None = None
    kernel_log: KernelLogSource | None = None


def assemble(
    host: Host, log_position: LogPosition | None = None, clock_offset: Callable[[], int] = lambda: 0
) -> FileSources:
    """Open every source; one that can't work here says why and is left out."""
    stat = StatFile(host)
    found = FileSources()
    builders: tuple[Callable[[], Source], ...] = (
        lambda: CpuSource(host, stat),
        lambda: ThreadSource(host),
        lambda: KernelLogSource(host, log_position, clock_offset),
        lambda: NodeSource(host, stat),
        lambda: SoftnetSource(host),
        lambda: InterruptSource(host),
        lambda: NetdevSource(host),
        lambda: ThrottlingSource(host),
        lambda: CgroupSource(host),
    )
    for build in builders:
        try:
            source = build()
        except SourceUnavailable as unavailable:
            found.missing.append(unavailable.missing)
            continue
        found.sources.append(source)
        if isinstance(source, PartialSource):
            found.missing.extend(source.missing)
        if isinstance(source, CgroupSource):
            found.cgroups = source
        elif isinstance(source, KernelLogSource):
            found.kernel_log = source
    return found
