"""What recording costs at the default rate: on an idle node, under two kinds of forks, with many processes in cgroups;
compared with perf record and mpstat in the same minute, and by source."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.load import FORKS_PER_SECOND, crowd, exec_load, load
from bench.processes import start_exhume, start_mpstat, start_perf, watch
from bench.report import Row, Section
from bench.sizes import perf_data, recorded
from exhume.model.clock import NANOS, Window
from exhume.present.cost_view import reason_of
from exhume.store.read.recording import CostOfSource, Recording

RATE_HZ = 97
MINUTE_S = 60
# Perf's running cost is watched after this long.
PERF_WARM_UP_S = 8
# That of the recorder after this long, when imports, the symbol tables of what runs and the first inventory are paid
# for, and for as long as a segment of a small node lasts: one is sealed in it.
WARM_UP_S, STEADY_S, QUICK_S = 30, 300, 60
MEGA = 1e6
PROCESSES, CGROUPS = 3000, 300
STARTS = 5
# A source that takes less of a core than this, in percent, is in no table.
SHOWN_PERCENT = 0.01


@dataclass(frozen=True, slots=True)
class Steady:
    """A recording, start and end left out: percent of one core, the middle of the resident memory, and by source; the
    CPU seconds of the children that ended before, which read the inventory."""

    percent: float
    rss_mb: float
    sources: list[CostOfSource]
    inventory_s: float


def measure(work: Path, quick: bool) -> Section:
    seconds, steady_s = (MINUTE_S // 2, QUICK_S) if quick else (MINUTE_S, STEADY_S)
    forking = _beside_perf(work, "forks", seconds, load())
    executing = _beside_perf(work, "execs", seconds, exec_load())
    idle = _alone(work / "idle", steady_s, nullcontext())
    steady_execs = _alone(work / "execs-steady", steady_s, exec_load())
    crowded = _alone(work / "crowd", steady_s, crowd(PROCESSES, CGROUPS))
    starts = [_first_second(work / f"start-{attempt}") for attempt in range(STARTS)]
    return Section(
        "Recording at 97 Hz",
        f"""
        `exhume record --rate {RATE_HZ}`, `perf record -F {RATE_HZ} -g -a` and `mpstat -P ALL 1` run together for
        {seconds} s under each of two loads: `forks` (every core compresses and {FORKS_PER_SECOND} shells a second come
        and go) and `execs` (one core starts /bin/true as fast as it can, the others compress). CPU start to exit is the
        kernel's own count of each process, its threads and its children: perf only copies while it
        runs and reads everything again at its end, so its cost goes with the number of processes; exhume pays for
        imports and symbol tables at its start, once in weeks, and has nothing left to do at its end. Steady is the
        kernel's count over {steady_s} s of the recorder alone, with all threads and all children, those that run and
        those that ended; one segment is sealed in these {STEADY_S} s. The first {WARM_UP_S} s are left out, and with
        them the child that reads the inventory, whose CPU seconds are a row of their own: it reads all of it after the
        start and once a day, states of units and containers once an hour, and what changed at most every five minutes
        (a second of CPU in an hour is 0.03%). `idle` is without any load of ours, `execs` with the load of that name,
        `crowd` with {PROCESSES:,} sleeping processes in {CGROUPS} cgroups with quotas. The first recorded second begins
        when all counters are set and the rings are open; of {STARTS} starts the middle one. The rows by source are from
        the recordings (`exhume info --cost`).
        """,
        [
            Row("CPU of exhume record / CPU of perf record, forks", forking.ratio, "", 1.0, 0.4),
            Row("CPU of exhume record / CPU of perf record, execs", executing.ratio, "", 0.8, 0.4),
            Row("idle, steady", idle.percent, "% of one core", 0.4, 0.2),
            Row("execs, steady", steady_execs.percent, "% of one core", 1.0, 0.6),
            Row("crowd, steady", crowded.percent, "% of one core", 0.8, 0.4),
            Row("the inventory, when all of it is read", idle.inventory_s, "s of CPU"),
            Row("resident memory, idle", idle.rss_mb, "MB", 85.0, 65.0, digits=1),
            Row("resident memory, execs", steady_execs.rss_mb, "MB", digits=1),
            Row("start to the first recorded second", float(np.median(starts)), "s", 0.6, 0.3),
            *forking.rows("forks"),
            *executing.rows("execs"),
            *(
                row
                for name, steady in (("idle", idle), ("execs", steady_execs), ("crowd", crowded))
                for row in _by_source(name, steady.sources)
            ),
        ],
    )


@dataclass(frozen=True, slots=True)
class BesidePerf:
    """What the three took of CPU under one load, and what they kept."""

    ours: float
    perfs: float
    mpstats: float
    running: list[float]
    samples: int
    perf_samples: int
    bytes_a_sample: float
    perf_bytes_a_sample: float

    @property
    def ratio(self) -> float:
        return self.ours / self.perfs

    def rows(self, name: str) -> Iterator[Row]:
        yield Row(f"{name}: exhume record, start and end included", self.ours, "s of CPU")
        yield Row(f"{name}: perf record, start and end included", self.perfs, "s of CPU")
        yield Row(f"{name}: mpstat", self.mpstats, "s of CPU", note="counters only: no stacks, no log")
        yield Row(f"{name}: perf record, steady", self.running[0], "% of one core")
        yield Row(f"{name}: mpstat, steady", self.running[1], "% of one core")
        yield Row(f"{name}: samples that exhume kept", self.samples, "", digits=0)
        yield Row(f"{name}: samples that perf kept", self.perf_samples, "", digits=0)
        yield Row(
            f"{name}: bytes a sample at this low rate, exhume",
            self.bytes_a_sample,
            "B",
            digits=1,
            note="every segment stores its stacks and symbols again, for few samples; the bound is for a large node",
        )
        yield Row(f"{name}: bytes a sample, perf.data", self.perf_bytes_a_sample, "B", digits=1)


def _beside_perf(work: Path, name: str, seconds: int, under: AbstractContextManager[None]) -> BesidePerf:
    directory, data = work / name, work / f"{name}.perf.data"
    with under:
        time.sleep(1)
        exhume, perf = start_exhume(directory, RATE_HZ), start_perf(data, RATE_HZ)
        mpstat = start_mpstat(work / f"{name}.mpstat.log")
        time.sleep(PERF_WARM_UP_S)
        left = seconds - PERF_WARM_UP_S
        running = [100 * cpu / left for cpu in watch(left, perf, mpstat)]
    # All end without the load: perf, with everything still to read, would take minutes under it.
    ours, perfs, mpstats = (process.finish() for process in (exhume, perf, mpstat))
    sealed, theirs = recorded(directory), perf_data(data)
    return BesidePerf(
        ours,
        perfs,
        mpstats,
        running,
        sealed.samples,
        theirs.samples,
        sealed.bytes_a_sample,
        theirs.bytes_a_sample,
    )


def _alone(directory: Path, seconds: int, under: AbstractContextManager[None]) -> Steady:
    with under:
        exhume = start_exhume(directory, RATE_HZ)
        time.sleep(WARM_UP_S)
        inventory_s = exhume.reaped()
        (cpu,) = watch(seconds, exhume)
        exhume.finish()
    return Steady(100 * cpu / seconds, float(np.median(exhume.rss)) / MEGA, _sources(directory), inventory_s)


def _first_second(directory: Path) -> float:
    """Seconds from the start of the program to the begin of the first second that it recorded."""
    began = time.monotonic_ns()
    exhume = start_exhume(directory, RATE_HZ, "--for", "2s")
    exhume.process.wait(60)
    first: int = min(Recording.open(directory).read("self")["time"].to_pylist())
    return (first - began) / 1e9


def _sources(directory: Path) -> list[CostOfSource]:
    """The cost by source of a recording, without what is left out of the steady cost."""
    recording = Recording.open(directory)
    span = recording.span()
    return [] if span is None else recording.self_cost(Window(span.since + WARM_UP_S * NANOS, span.until)).sources


def _by_source(name: str, sources: list[CostOfSource]) -> Iterator[Row]:
    for each in sources:
        if each.cpu_percent >= SHOWN_PERCENT:
            label = f"{name}: {each.source}"
            yield Row(label, each.cpu_percent, "% of one core", note=reason_of(each) or "", digits=3)
