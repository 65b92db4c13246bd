"""The recorder's wiring: sources on one side, the store on the other."""

import gc
import mmap
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from exhume import __version__
from exhume.collect.cgroup.layout import find_v1, find_v2, hierarchies
from exhume.collect.loop import Recorder, RecorderOptions
from exhume.collect.source_set import Sources, open_sources
from exhume.collect.sources.kmsg import LogPosition
from exhume.collect.symbols.parser_process import ParserProcess
from exhume.model.clock import NANOS, SystemClock, read_boot_id
from exhume.model.facts import RecordingFacts
from exhume.model.ownership import Access
from exhume.model.process import raised_priority
from exhume.model.progress import RecordingSummary, TickSummary
from exhume.model.settings import RecorderSettings
from exhume.model.stop import Stop
from exhume.procfs.host import Host
from exhume.store.format.names import boot_part
from exhume.store.read.events import last_log_sequence
from exhume.store.read.index import sealed_segments
from exhume.store.write.writer import SegmentWriter

# Every segment holds the names of its own stacks. On a small node a minute has too few samples to share that cost: with
# five minutes a sample takes half the bytes, and the live segment is still quick to read.
SMALL_NODE = 1000
SMALL_SEGMENT_S, SEGMENT_S = 300, 60
# At its end the recorder seals what killed ones left for no longer than this: service managers don't wait long.
LEFTOVERS_S = 2.0


@dataclass(frozen=True, slots=True)
class NodeRecorder:
    """A recorder of this node, ready to run."""

    sources: Sources
    store: SegmentWriter
    settings: RecorderSettings

    def run(self, stop: Stop, on_tick: Callable[[TickSummary], None]) -> RecordingSummary:
        """Record until the stop is set or the time is over."""
        settings = self.settings
        options = RecorderOptions(settings.rate_hz, settings.cpu_budget, settings.memory_budget)
        until = None if settings.duration_ns is None else SystemClock().monotonic_ns() + settings.duration_ns
        # What is loaded by now lives to the end: keep the garbage collector from scanning it.
        gc.freeze()
        return Recorder(self.sources, options).run(self.store, stop, until, on_tick)


@contextmanager
def node_recorder(settings: RecorderSettings, parser: ParserProcess | None = None) -> Iterator[NodeRecorder]:
    """Open the sources and the store; at the end, what was recorded is sealed. The parser is one that was
    forked before."""
    host, age = Host(), settings.max_age_ns
    boot_id = read_boot_id(host.proc)
    sequence = last_log_sequence(settings.directory, boot_id)
    position = None if sequence is None else LogPosition(boot_id, sequence)
    with (
        raised_priority(settings.nice) as nice,
        closing(
            open_sources(host, settings.rate_hz, position, keep_secrets=settings.keep_secrets, parser=parser)
        ) as sources,
    ):
        facts = facts_of(boot_id, sources, settings.rate_hz, nice)
        writer = SegmentWriter(
            settings.directory,
            facts,
            max_bytes=settings.max_bytes,
            max_age_s=None if age is None else age / NANOS,
            access=Access(settings.group),
            leftovers_s=LEFTOVERS_S,
            segment_s=SMALL_SEGMENT_S if facts.cores * facts.rate_hz < SMALL_NODE else SEGMENT_S,
        )
        with closing(writer) as store:
            yield NodeRecorder(sources, store, settings)


def size_on_disk(directory: Path, began_ms: int) -> int:
    """Size of the segments of this recorder; the directory may hold those of an earlier one."""
    boot = boot_part(read_boot_id())
    mine = (s for s in sealed_segments(directory) if s.name.boot == boot and s.name.start_ms >= began_ms)
    return sum(segment.size() for segment in mine)


def facts_of(boot_id: str, sources: Sources, rate_hz: int, nice: int | None = None) -> RecordingFacts:
    """The facts of a recording that begins now. The time zone is the node's, by name, else its offset."""
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
