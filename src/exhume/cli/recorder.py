"""The recorder's wiring: connects the sources to the store."""

import gc
import mmap
import os
import platform
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from exhume import __version__
from exhume.collect.cgroup.layout import find_v1, find_v2, hierarchies
from exhume.collect.loop import Recorder, RecorderOptions, TickObserver
from exhume.collect.source_set import Inboxes, Sources, open_sources
from exhume.collect.sources.job_events import JobSocket
from exhume.collect.sources.kmsg import LogPosition
from exhume.collect.symbols.opener_process import OpenerProcess
from exhume.collect.systemd.notify import SystemdNotifier
from exhume.model.clock import NANOS, SystemClock, read_boot_id
from exhume.model.errors import ExhumeError
from exhume.model.facts import RecordingFacts
from exhume.model.job_event import DEFAULT_SOCKET
from exhume.model.ownership import Access
from exhume.model.process import keep_freed_memory, raised_priority
from exhume.model.progress import RecordingSummary, TickSummary
from exhume.model.settings import AUTO, SYSTEM_DIRECTORY, RecorderSettings
from exhume.model.stop import Stop
from exhume.procfs.host import Host
from exhume.store.format.names import boot_part
from exhume.store.read.events import last_log_record
from exhume.store.read.index import sealed_segments
from exhume.store.write.health import HealthFile
from exhume.store.write.writer import SegmentWriter

# Every segment stores the names of its own stacks. On a small node a minute has too few samples to share that cost:
# with segments of five minutes a sample takes half the bytes, and the live segment is still quick to read.
SMALL_NODE = 1000
SMALL_SEGMENT_S, SEGMENT_S = 300, 60
# Time limit at shutdown for sealing segments left by killed recorders: service managers do not wait long.
LEFTOVERS_S = 2.0
# Files that a recorder has open on a node of two cores; with more cores and this limit, only stack sampling is lost.
LEAST_OPEN_FILES = 128


@dataclass(frozen=True, slots=True)
class NodeRecorder:
    """A recorder of this node, ready to run."""

    sources: Sources
    store: SegmentWriter
    settings: RecorderSettings
    facts: RecordingFacts
    health: HealthFile

    def relabel(self, labels: Mapping[str, str]) -> None:
        """Record these node labels from now on; labels set by the operator take precedence."""
        self.store.relabel({**labels, **self.settings.node_labels})

    def run(
        self, stop: Stop, on_tick: Callable[[TickSummary], None], observers: Sequence[TickObserver] = ()
    ) -> RecordingSummary:
        """Record until a stop is requested or the duration is over."""
        settings = self.settings
        options = RecorderOptions(settings.rate_hz, settings.cpu_budget, settings.memory_budget)
        until = None if settings.duration_ns is None else SystemClock().monotonic_ns() + settings.duration_ns
        # Everything loaded by now lives until exit: exclude it from garbage collection.
        gc.freeze()
        keep_freed_memory()
        with closing(SystemdNotifier.from_environment()) as notifier:
            recorder = Recorder(self.sources, options, observers=(self.health, notifier, *observers))
            return recorder.run(self.store, stop, until, on_tick)


@contextmanager
def node_recorder(
    settings: RecorderSettings, opener: OpenerProcess | None = None, inboxes: Inboxes | None = None
) -> Iterator[NodeRecorder]:
    """Open the sources and the store; on exit, seal what was recorded. `opener` is a process that was forked earlier;
    messages that arrive in the inboxes are recorded."""
    _check_open_files()
    host, age = Host(), settings.max_age_ns
    boot_id = read_boot_id(host.proc)
    last = last_log_record(settings.directory, boot_id)
    position = None if last is None else LogPosition(boot_id, *last)
    with (
        raised_priority(settings.nice) as nice,
        closing(_open_sources(host, settings, position, opener, inboxes)) as sources,
    ):
        facts = facts_of(boot_id, sources, settings.rate_hz, nice)
        facts = replace(facts, node=settings.node_name or facts.node, labels=dict(settings.node_labels))
        access = Access(settings.group)
        writer = SegmentWriter(
            settings.directory,
            facts,
            max_bytes=settings.max_bytes,
            max_age_s=None if age is None else age / NANOS,
            access=access,
            leftovers_s=LEFTOVERS_S,
            segment_s=SMALL_SEGMENT_S if facts.cores * facts.rate_hz < SMALL_NODE else SEGMENT_S,
        )
        with closing(writer) as store, closing(HealthFile(settings.directory, facts, access)) as health:
            yield NodeRecorder(sources, store, settings, facts, health)


def _check_open_files() -> None:
    """Check the hard limit on open files, to which stack sampling raises the soft limit. Raises ExhumeError."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST_OPEN_FILES:
        raise ExhumeError(
            f"at most {hard} open files are allowed, recording needs {LEAST_OPEN_FILES}: raise the limit "
            "(ulimit -n, LimitNOFILE= of the service)"
        )


def _open_sources(
    host: Host,
    settings: RecorderSettings,
    position: LogPosition | None,
    opener: OpenerProcess | None,
    inboxes: Inboxes | None,
) -> Sources:
    listen = events_socket(settings.events_socket, settings.directory)
    jobs = None if listen is None else JobSocket(listen, settings.group)
    return open_sources(
        host,
        settings.rate_hz,
        position,
        keep_secrets=settings.keep_secrets,
        opener=opener,
        job_socket=jobs,
        inboxes=inboxes,
    )


def events_socket(setting: Path | None, directory: Path) -> Path | None:
    """The path of the event socket for a recorder of this directory. By default only the service has one, in the
    directory that its unit creates: otherwise several recorders would use the same path."""
    if setting != AUTO:
        return setting
    serves = directory == SYSTEM_DIRECTORY and os.access(DEFAULT_SOCKET.parent, os.W_OK)
    return DEFAULT_SOCKET if serves else None


def size_on_disk(directory: Path, began_ms: int) -> int:
    """The size of this recorder's segments; the directory may also hold those of an earlier one."""
    boot = boot_part(read_boot_id())
    mine = (s for s in sealed_segments(directory) if s.name.boot == boot and s.name.start_ms >= began_ms)
    return sum(segment.size() for segment in mine)


def facts_of(boot_id: str, sources: Sources, rate_hz: int, nice: int | None = None) -> RecordingFacts:
    """The facts of a recording that begins now. The time zone is the node's, by name if known, else its UTC offset."""
    sampler, zone = sources.sampler, ""
    with suppress(OSError):
        zone = str(Path("/etc/localtime").readlink()).partition("zoneinfo/")[2]
    layout = hierarchies(Host())
    cpu = find_v1(layout, "cpu") or find_v2(layout)
    return RecordingFacts(
        node=platform.node(),
        boot_id=boot_id,
        cores=os.cpu_count() or 0,
        kernel=platform.release(),
        arch=platform.machine(),
        event_source=sampler.event_source if sampler else "none",
        rate_hz=rate_hz if sampler else 0,
        sources_missing=list(sources.missing),
        exhume_version=__version__,
        timezone=zone or time.strftime("%z"),
        page_bytes=mmap.PAGESIZE,
        nice=nice,
        cpu_cgroups=os.fspath(cpu.path) if cpu is not None else None,
        cpu_cgroup_version=cpu.version if cpu is not None else None,
    )
