"""Where the recorder's parts meet: sources on one side, the store on the other."""

import gc
import mmap
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from exhume import __version__
from exhume.collect.assemble import Sources, open_sources
from exhume.collect.loop import Recorder, RecorderOptions
from exhume.collect.sources.kmsg import LogPosition
from exhume.model.clock import NANOS, SystemClock, read_boot_id
from exhume.model.errors import Missing
from exhume.model.facts import RecordingFacts
from exhume.model.ownership import Access
from exhume.model.priority import raised_priority
from exhume.model.progress import RecordingSummary, TickSummary
from exhume.model.stop import Stop
from exhume.procfs.host import Host
from exhume.store.read.events import last_log_sequence
from exhume.store.write.writer import SegmentWriter

# Every segment explains its own stacks. On a small node a minute has too few samples to share that cost between: five
# minutes take half the bytes a sample, and are still little to read while they grow.
SMALL_NODE = 1000
SMALL_SEGMENT_S, SEGMENT_S = 300, 60


class NodeRecorder:
    """A recorder of this node, ready to run, with what it has to do without."""

    def __init__(self, sources: Sources, store: SegmentWriter, values: Mapping[str, Any]) -> None:
        self._sources = sources
        self._store = store
        self._values = values

    @property
    def tightened(self) -> bool:
        """Whether the directory could be read by more users than it should until now."""
        return self._store.tightened

    @property
    def missing(self) -> list[Missing]:
        return self._sources.missing

    def run(self, stop: Stop, on_tick: Callable[[TickSummary], None]) -> RecordingSummary:
        """Record until told to stop or the time is over."""
        values = self._values
        options = RecorderOptions(values["rate"], values["cpu-budget"], values["memory-budget"])
        until = None if values["for"] is None else SystemClock().monotonic_ns() + values["for"]
        # What is there by now stays to the end: it is not looked through for garbage any more.
        gc.freeze()
        return Recorder(self._sources, options).run(self._store, stop, until, on_tick)


@contextmanager
def node_recorder(values: Mapping[str, Any]) -> Iterator[NodeRecorder]:
    """The recorder that these settings (by their names in the registry) describe; at the end, what it has is sealed."""
    host = Host()
    boot_id = read_boot_id(host.proc)
    sequence = last_log_sequence(values["dir"], boot_id)
    position = None if sequence is None else LogPosition(boot_id, sequence)
    with (
        raised_priority(values["nice"]) as nice,
        closing(open_sources(host, values["rate"], position, keep_secrets=values["keep-secrets"])) as sources,
    ):
        facts = facts_of(boot_id, sources, values["rate"], nice)
        with closing(_open_store(values, facts)) as store:
            yield NodeRecorder(sources, store, values)


def _open_store(values: Mapping[str, Any], facts: RecordingFacts) -> SegmentWriter:
    age = values["max-age"]
    return SegmentWriter(
        values["dir"],
        facts,
        max_bytes=values["max-size"],
        max_age_s=None if age is None else age / NANOS,
        access=Access(values["group"]),
        segment_s=SMALL_SEGMENT_S if facts.cores * facts.rate_hz < SMALL_NODE else SEGMENT_S,
    )


def facts_of(boot_id: str, sources: Sources, rate_hz: int, nice: int | None = None) -> RecordingFacts:
    """What is true of the whole recording."""
    sampler = sources.sampler
    return RecordingFacts(
        node=platform.node(),
        boot_id=boot_id,
        cores=os.cpu_count() or 0,
        kernel=platform.release(),
        arch=platform.machine(),
        event_source=sampler.event_source if sampler else "none",
        rate_hz=rate_hz if sampler else 0,
        sources_missing=[str(missing) for missing in sources.missing],
        exhume_version=__version__,
        timezone=_zone(),
        page_bytes=mmap.PAGESIZE,
        nice=nice,
    )


def _zone() -> str:
    """The node's time zone by name where it has one, else its offset."""
    try:
        target = str(Path("/etc/localtime").readlink())
    except OSError:
        return time.strftime("%z")
    return target.partition("zoneinfo/")[2] or time.strftime("%z")
