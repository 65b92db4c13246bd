"""Opens every source that works on this node; for each other source it lists how to enable it."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from exhume.collect.perf.source import PerfSource
from exhume.collect.source import PartialSource, Source, StatFile
from exhume.collect.sources.cgroup_trace import CgroupTraceSource
from exhume.collect.sources.cgroups import CgroupFollower, CgroupSource, ChurnSource
from exhume.collect.sources.container_events import CriEventSource, DockerEventSource
from exhume.collect.sources.cpu import CpuSource
from exhume.collect.sources.interrupts import InterruptSource
from exhume.collect.sources.inventory import InventorySource
from exhume.collect.sources.job_events import EventInbox, InboxEventSource, JobEventSource, JobSocket
from exhume.collect.sources.kmsg import KernelLogClock, KernelLogSource, LogPosition, klogctl
from exhume.collect.sources.netdev import NetdevSource
from exhume.collect.sources.node import NodeSource
from exhume.collect.sources.pod_owners import PodOwners, PodOwnerSource
from exhume.collect.sources.softnet import SoftnetSource
from exhume.collect.sources.threads import ThreadSource
from exhume.collect.sources.throttling import ThrottlingSource
from exhume.collect.sources.unit_events import UnitEventSource
from exhume.collect.symbols.opener_process import OpenerProcess
from exhume.model.errors import SourceUnavailable
from exhume.model.facts import MissingSource
from exhume.procfs.host import Host

_S = TypeVar("_S", bound=Source)


@dataclass(frozen=True, slots=True)
class Inboxes:
    """What other threads of the recorder provide to be recorded; None for none."""

    pod_owners: PodOwners | None = None
    job_events: EventInbox | None = None


@dataclass(slots=True)
class Sources:
    """The sources that the loop reads. `traced` records every cgroup that is made or removed (the perf source, or a
    source for only that), and `follower` uses it to keep the count of visible cgroups current."""

    sampler: PerfSource | None = None
    cgroups: CgroupSource | None = None
    traced: Source | None = None
    follower: CgroupFollower | None = None
    others: list[Source] = field(default_factory=list)
    missing: list[MissingSource] = field(default_factory=list)

    def in_order(self) -> list[Source]:
        """The sampler first: until it drains the rings, the kernel has to buffer."""
        named: list[Source | None] = [self.sampler, None if self.traced is self.sampler else self.traced, self.cgroups]
        return [source for source in named if source is not None] + self.others

    def close(self) -> None:
        for source in self.in_order():
            source.close()


def open_sources(
    host: Host,
    rate_hz: int,
    log_position: LogPosition | None,
    *,
    keep_secrets: bool = False,
    opener: OpenerProcess | None = None,
    job_socket: JobSocket | None = None,
    inboxes: Inboxes | None = None,
) -> Sources:
    """Open all sources that work here. An opener process that was started before is used, or stopped if it is not
    needed."""
    sources = Sources()
    stat = StatFile(host)
    inboxes = inboxes or Inboxes()
    pod_owners, posted = inboxes.pod_owners, inboxes.job_events
    sources.sampler = _open(
        lambda: PerfSource(host, rate_hz, keep_secrets=keep_secrets, opener=opener), sources.missing
    )
    if sources.sampler is None and opener is not None:
        opener.end()
    sources.cgroups = _open(lambda: CgroupSource(host), sources.missing)
    makers: list[Callable[[], Source]] = [
        lambda: CpuSource(host, stat),
        lambda: NodeSource(host, stat),
        lambda: SoftnetSource(host),
        lambda: InterruptSource(host),
        lambda: ThreadSource(host),
        lambda: ThrottlingSource(host),
        lambda: NetdevSource(host),
        # syslog(2) only reads the log of this machine.
        lambda: KernelLogSource(host, log_position, KernelLogClock(), klogctl if host.dev == Host().dev else None),
        lambda: DockerEventSource(pod_owners=pod_owners),
        lambda: CriEventSource(host, pod_owners=pod_owners),
        UnitEventSource,
        lambda: InventorySource(host),
    ]
    if job_socket is not None:
        makers.append(lambda: JobEventSource(host, job_socket, keep_secrets=keep_secrets))
    if posted is not None:
        makers.append(lambda: InboxEventSource(host, posted, keep_secrets=keep_secrets))
    if pod_owners is not None:
        makers.append(lambda: PodOwnerSource(host, pod_owners))
    memory = sources.cgroups.v1 if sources.cgroups else None
    sources.traced = _trace_cgroups(host, sources)
    if sources.traced is None:
        makers.append(lambda: ChurnSource(memory))
    for make in makers:
        source = _open(make, sources.missing)
        if source is not None:
            sources.others.append(source)
    if sources.traced and memory:
        sources.follower = CgroupFollower(memory)
    return sources


def _trace_cgroups(host: Host, sources: Sources) -> Source | None:
    """The source that traces cgroups: perf, or else a tracing instance of our own; None when neither works."""
    if sources.sampler is not None and sources.sampler.traces_cgroups:
        return sources.sampler
    # Reported below with both ways to enable it.
    instance = _open(lambda: CgroupTraceSource(host), [])
    if instance is None:
        sources.missing.append(_no_tracepoints(host, sources.sampler))
    return instance


def _open(make: Callable[[], _S], missing: list[MissingSource]) -> _S | None:
    try:
        source = make()
    except SourceUnavailable as unavailable:
        missing.append(unavailable.missing)
        return None
    if isinstance(source, PartialSource):
        missing.extend(source.missing)
    return source


def _no_tracepoints(host: Host, sampler: PerfSource | None) -> MissingSource:
    mounted = [p for p in (host.sys / "kernel/tracing", host.sys / "kernel/debug/tracing") if (p / "events").exists()]
    if sampler is None:
        reason, remedy = "tracepoints need perf_event_open", "add CAP_PERFMON and mount tracefs, see stacks"
    elif not mounted:
        reason = "tracefs is neither mounted nor can it be mounted for the recorder alone"
        remedy = "run mount -t tracefs tracefs /sys/kernel/tracing, or add CAP_SYS_ADMIN"
    elif not os.access(mounted[0] / "events", os.R_OK | os.X_OK):
        reason, remedy = f"{mounted[0]} can't be read", "run as root, or give this user read access to tracefs"
    else:
        reason = "the cgroup tracepoints can't be opened"
        remedy = "add CAP_PERFMON (CAP_SYS_ADMIN before Linux 5.8), or set kernel.perf_event_paranoid to -1"
    return MissingSource("cgroup-events", reason, remedy)
