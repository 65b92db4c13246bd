"""Write synthetic recordings at the scale of a large node, in the real format, with a planted incident.

They are written with the store's own code, minute by minute, in as many processes as is worthwhile.
"""

import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import pyarrow as pa

from exhume.lab.synth.tables import Minute
from exhume.lab.synth.world import NOTICED_NS, Incident, World
from exhume.model.clock import MILLIS, NANOS
from exhume.model.errors import RecordingError, UsageError
from exhume.store.format.names import LIVE_DIRECTORY, SegmentName, boot_part
from exhume.store.write.lock import DirectoryLock, cannot_write
from exhume.store.write.seal import seal
from exhume.store.write.writer import LiveTable, to_batch

# Disk space of a core per hour, measured, plus a margin: refuse before a disk is full, not after.
BYTES_PER_CORE_HOUR = 2_500_000
SPARE_BYTES = 256 << 20
# Below this many minutes, starting processes costs more than it saves.
WORTH_SHARING = 8
MOST_PROCESSES = 8

Progress = Callable[[int, int], None]
"""Called with the minutes that are done and the minutes in all."""


@dataclass(frozen=True, slots=True)
class SyntheticSummary:
    """What was written, and where the incident is."""

    directory: Path
    cores: int
    seconds: int
    samples: int
    bytes: int
    segments: int
    since: int
    until: int
    incident: Incident


def write_synthetic(
    directory: Path, *, cores: int, hours: float, seed: int, progress: Progress | None = None
) -> SyntheticSummary:
    """Write the recording of a node with this many cores. The same numbers and seed write the same rows on any machine.

    Raises RecordingError if the directory is not empty or the disk has too little room."""
    seconds = round(hours * 3600)
    if not 1 <= cores <= 4096 or seconds < 1 or seed < 0:
        raise UsageError("a synthetic recording needs 1 to 4096 cores, more than 0 hours, and a seed from 0 on")
    _check_room(directory, cores, hours)
    lock = DirectoryLock(directory)
    try:
        (directory / LIVE_DIRECTORY).mkdir(exist_ok=True)
        world = World(cores, seconds, seed)
        samples = size = segments = 0
        for rows, sealed in _written_minutes(directory, world):
            samples, size, segments = samples + rows, size + sealed, segments + 1
            if progress is not None:
                progress(segments, world.timeline.minutes)
    except OSError as error:
        raise cannot_write(directory, error) from error
    except BrokenProcessPool as error:
        raise RecordingError(f"a process that wrote to {directory} was killed: is there enough memory?") from error
    finally:
        lock.close()
    timeline, plan, fleet = world.timeline, world.plan, world.fleet
    thread = fleet.kubelet_thread
    since = timeline.wall(timeline.start)
    return SyntheticSummary(
        directory=directory,
        cores=cores,
        seconds=seconds,
        samples=samples,
        bytes=size,
        segments=segments,
        since=since,
        until=since + seconds * NANOS,
        incident=Incident(
            cpu=plan.cpu,
            pid=int(fleet.pid[thread]),
            tid=int(fleet.tid[thread]),
            comm=fleet.comms[fleet.comm[thread]],
            since=timeline.wall(plan.start),
            until=timeline.wall(plan.stop),
            log_time=timeline.wall(plan.start + NOTICED_NS),
        ),
    )


def _check_room(directory: Path, cores: int, hours: float) -> None:
    if directory.exists() and any(directory.iterdir()):
        raise RecordingError(f"{directory} is not empty; name a new directory for the synthetic recording")
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    wanted = int(cores * hours * BYTES_PER_CORE_HOUR) + SPARE_BYTES
    free = shutil.disk_usage(existing).free
    if free < wanted:
        raise RecordingError(
            f"a synthetic recording of {cores} cores and {hours:g} hours takes up to {wanted / 1e9:.1f} GB, and "
            f"{existing} has {free / 1e9:.1f} GB free; make room, or ask for fewer cores or hours"
        )


def _written_minutes(directory: Path, world: World) -> Iterator[tuple[int, int]]:
    minutes = range(world.timeline.minutes)
    processes = min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
    if len(minutes) < WORTH_SHARING or processes == 1:
        for minute in minutes:
            yield _write_minute(directory, world, minute)
        return
    # Each process builds the same world from the seed: cheaper than sending it, and a clean start for Arrow's threads.
    context = multiprocessing.get_context("spawn")
    write = partial(_write_alike, directory, world.cores, world.timeline.seconds, world.seed)
    with ProcessPoolExecutor(processes, context, _prepare_process) as pool:
        yield from pool.map(write, minutes)


def _prepare_process() -> None:
    # The main process handles Ctrl-C, and stops the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pa.set_cpu_count(1)


_world_once = lru_cache(1)(World)


def _write_alike(directory: Path, cores: int, seconds: int, seed: int, minute: int) -> tuple[int, int]:
    return _write_minute(directory, _world_once(cores, seconds, seed), minute)


def _write_minute(directory: Path, world: World, minute: int) -> tuple[int, int]:
    """Write one live segment as a recorder does (one message per second for samples), then seal it. Return its number
    of samples and its bytes."""
    start = world.timeline.start_of(minute)
    name = SegmentName(world.timeline.wall(start) // MILLIS, boot_part(world.facts.boot_id), start // MILLIS)
    live = directory / LIVE_DIRECTORY / str(name)
    live.mkdir()
    made = Minute(world, minute)
    rows_by_second = made.sampled.rows_by_second
    for table, columns in made.tables():
        batch = to_batch(table, columns)
        if batch is None:
            continue
        batches = [batch]
        if table == "samples":
            ends = rows_by_second.cumsum()
            batches = [batch.slice(end - rows, rows) for end, rows in zip(ends, rows_by_second, strict=True) if rows]
        with closing(LiveTable(live, table, world.facts)) as file:
            file.write(batches)
    sealed = seal(directory, live)
    return int(rows_by_second.sum()), sealed.size if sealed is not None else 0
