"""The recorder's budget: it is kept by sampling less often, never by going dark."""

import logging
import resource
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from exhume.collect.assemble import Sources
from exhume.collect.incidents import IncidentMarks
from exhume.collect.perf.sampler import Sampler
from exhume.collect.source import NOTHING, Source, TickRows
from exhume.model.clock import MILLIS, NANOS, Clock, SystemClock, Tick, both_ns
from exhume.model.events import loss_total
from exhume.model.progress import RecordingSummary, TickSummary
from exhume.model.sink import RowSink
from exhume.model.tables import Columns, Losses, Self, to_columns
from exhume.procfs.host import ProcFile
from exhume.procfs.pid_status import status_values

AVERAGED_TICKS = 30
# The first seconds read symbol tables and every process anew; they say nothing about the cost of going on.
SETTLING_TICKS = 10
LOWEST_HZ = 11
# Only well below the budget is the rate raised again, or it would swing.
RAISE_BELOW = 0.4


@dataclass(frozen=True, slots=True)
class RateChange:
    """A new sampling rate, and why."""

    rate_hz: int
    reason: str


class Budget:
    """Watches what the recorder costs and says when the rate has to change."""

    def __init__(self, cpu_share: float, rate_hz: int) -> None:
        self._share = cpu_share
        self._wanted = rate_hz
        self._rate = rate_hz
        self._spent: deque[tuple[float, float]] = deque(maxlen=AVERAGED_TICKS)
        self._settling = SETTLING_TICKS

    def observe(self, cpu_seconds: float, seconds: float) -> RateChange | None:
        """One tick's cost. Returns the rate to go on with when it has to change."""
        if self._settling:
            self._settling -= 1
            return None
        self._spent.append((cpu_seconds, seconds))
        if len(self._spent) < AVERAGED_TICKS:
            return None
        share = sum(cpu for cpu, _ in self._spent) / max(sum(length for _, length in self._spent), 1e-9)
        if share > self._share and self._rate > LOWEST_HZ:
            return self._change(max(LOWEST_HZ, self._rate // 2), share, "over")
        if share < self._share * RAISE_BELOW and self._rate < self._wanted:
            return self._change(min(self._wanted, self._rate * 2), share, "well within")
        return None

    def _change(self, rate_hz: int, share: float, how: str) -> RateChange:
        reason = (
            f"the recorder used {share:.1%} of one core, {how} its budget of {self._share:.1%}: "
            f"sampling at {rate_hz} Hz instead of {self._rate} Hz"
        )
        self._rate = rate_hz
        self._spent.clear()
        return RateChange(rate_hz, reason)


class Gathered:
    """Rows by table; `given` is what each source gave; losses are rows of their own, for the loop to look at."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Columns]] = {}
        self.given: list[TickRows] = []
        self.losses: list[Losses] = []

    def add(self, rows: TickRows) -> None:
        if rows:
            self.given.append(rows)
        for table, columns in rows.items():
            if table == "losses":
                names = list(columns)
                self.losses.extend(
                    Losses(**dict(zip(names, row, strict=True)))
                    for row in zip(*(columns[name] for name in names), strict=True)
                )
            else:
                self._rows.setdefault(table, []).append(columns)

    def lose(self, loss: Losses) -> None:
        self.losses.append(loss)

    def loss_counts(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for loss in self.losses:
            counts[loss.kind] += loss_total(loss.kind, loss.count)
        return counts

    def of(self, table: str) -> list[Columns]:
        return self._rows.get(table, [])

    def items(self) -> Iterator[tuple[str, Columns]]:
        """Every batch, losses last."""
        for table, batches in self._rows.items():
            for columns in batches:
                yield table, columns
        if self.losses:
            yield "losses", to_columns("losses", self.losses)


_log = logging.getLogger(__name__)
_PACKAGE = f"{Path(__file__).parents[1]}/"

# A tick that comes this much too late has missed at least one second.
LATE_NS = NANOS * 3 // 2
# A source that failed is left alone for a while; it may be a file that comes back.
RETRY_TICKS = 10
CLOCK_TICKS = 60
MEMORY_TICKS = 30
# After a start, or when the wall clock was set, the next full second may be next to nothing away.
SHORTEST_NS = NANOS // 5
# Losses of a source that traces cgroups by which a mkdir or rmdir may have been missed.
UNTOLD = frozenset(("lost-task-records", "damaged-task-bytes", "lost-cgroup-events", "source-failed"))


class Stop(Protocol):
    """Tells the loop to end; threading.Event is one."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool: ...


@dataclass(frozen=True, slots=True)
class RecorderOptions:
    """How to record."""

    rate_hz: int = 97
    cpu_budget: float = 0.08
    memory_budget: int = 150_000_000


class Recorder:
    """Runs the sources once a second, at the full second of the wall clock, so that a row is a second people know."""

    def __init__(self, sources: Sources, options: RecorderOptions, clock: Clock | None = None) -> None:
        self._sources = sources
        self._options = options
        self._clock = clock or SystemClock()
        self._marks = IncidentMarks()
        self._budget = Budget(options.cpu_budget, options.rate_hz)
        self._account = _Account(self._clock)
        self._paused: dict[str, int] = {}
        self._hierarchy: int | None = None
        self._failed_at_first: list[Losses] = []

    def run(
        self, sink: RowSink, stop: Stop, until: int | None = None, on_tick: Callable[[TickSummary], None] | None = None
    ) -> RecordingSummary:
        """Record until told to stop, or until the monotonic time `until`. The sink is closed by whoever opened it."""
        began, began_wall = both_ns(self._clock)
        start = began
        self._prime(start)
        totals = _Totals()
        index = 0
        stopped = stop.is_set()
        while not stopped:
            stop.wait(self._to_next_second(start))
            # Whoever says stop while a turn is taken is heard after one more: what came meanwhile is still to be read.
            stopped = stop.is_set()
            now, wall = both_ns(self._clock)
            tick = Tick(index, start, now, wall)
            summary = self._turn(tick, sink)
            totals.add(summary)
            if on_tick:
                on_tick(summary)
            start, index = now, index + 1
            if until is not None and now >= until:
                break
        # Not the wall clock again: it may have been set meanwhile.
        ended_wall = began_wall + self._clock.monotonic_ns() - began
        return totals.summary(began_wall, ended_wall, self._account, self._rate())

    def _to_next_second(self, start: int) -> float:
        remaining = NANOS - self._clock.wall_ns() % NANOS
        if self._clock.monotonic_ns() + remaining - start < SHORTEST_NS:
            remaining += NANOS
        return remaining / NANOS

    def _prime(self, now: int) -> None:
        """A first look at everything, for the counters that later ones are measured against."""
        tick = Tick(-1, now, now, self._clock.wall_ns())
        gathered = Gathered()
        for source in self._sources.in_order():
            self._read(source, tick, gathered)
        self._failed_at_first = gathered.losses
        if self._sources.cgroups and self._sources.cgroups.v1:
            self._hierarchy = self._sources.cgroups.v1.hierarchy_id

    def _turn(self, tick: Tick, sink: RowSink) -> TickSummary:
        gathered = Gathered()
        while self._failed_at_first:
            gathered.lose(self._failed_at_first.pop())
        if tick.nanos > LATE_NS:
            missed = round(tick.seconds) - 1
            gathered.lose(
                Losses(tick.start, "recorder", "late-tick", missed, f"a tick took {tick.seconds:.1f} s instead of one")
            )
        if tick.index % CLOCK_TICKS == 0:
            self._sources.log_clock.measure()
        for source in self._sources.in_order():
            self._read(source, tick, gathered)
            if source is self._sources.traced:
                self._follow_cgroups(source, gathered)
        gathered.add(self._marks.observe(tick, gathered.given))
        samples = sum(len(columns["time_ms"]) for columns in gathered.of("samples"))
        spent = self._account.close_tick(tick, sink.written_bytes(), samples, self._sources.sampler)
        self._keep_budget(tick, spent, gathered)
        gathered.add({"self": to_columns("self", [spent])})
        for table, columns in gathered.items():
            sink.append(table, columns)
        dropped = -sink.dropped_rows()
        if sink.commit(tick) and self._sources.sampler:
            self._sources.sampler.begin_segment()
        dropped += sink.dropped_rows()
        if dropped:
            # For whoever watches: in the recording the store counts them itself, as soon as there is room.
            text = f"{dropped} rows were dropped because the disk was full"
            gathered.lose(Losses(tick.start, "store", "disk-full", dropped, text))
        return _summary(tick, gathered, spent)

    def _read(self, source: Source, tick: Tick, gathered: Gathered) -> None:
        if self._paused.get(source.name, -1) > tick.index:
            return
        try:
            rows: TickRows = source.read(tick)
        except Exception as error:  # noqa: BLE001  the edge of the tick: one source's failure must not end the recording
            rows = NOTHING
            self._paused[source.name] = tick.index + RETRY_TICKS
            text = f"{type(error).__name__}: {error} ({_place_of(error)}); retried in {RETRY_TICKS} s"
            _log.warning("source %s failed: %s", source.name, text, exc_info=error)
            gathered.lose(Losses(tick.start, source.name, "source-failed", 1, text))
        gathered.add(rows)

    def _follow_cgroups(self, source: Source, gathered: Gathered) -> None:
        """What the tracepoints told keeps the count of visible cgroups current without walking them."""
        memory = self._sources.cgroups.v1 if self._sources.cgroups else None
        if memory is None:
            return
        if any(loss.source == source.name and loss.kind in UNTOLD for loss in gathered.losses):
            memory.lost_track()
            memory.follow_from_now()
        for columns in gathered.of("cgroup_events"):
            for hierarchy, op, path in zip(columns["hierarchy"], columns["op"], columns["path"], strict=True):
                if hierarchy == self._hierarchy:
                    memory.follow(op, path)

    def _keep_budget(self, tick: Tick, spent: Self, gathered: Gathered) -> None:
        sampler = self._sources.sampler
        if sampler is None:
            return
        change = self._budget.observe((spent.user_us + spent.system_us) / 1e6, tick.seconds)
        if change:
            kind, reason = "rate-lowered" if change.rate_hz < sampler.rate_hz else "rate-raised", change.reason
            try:
                sampler.set_rate(change.rate_hz)
            except OSError as error:
                kind, reason = "rate-refused", f"the kernel refused {change.rate_hz} Hz: {error.strerror}"
            gathered.lose(Losses(tick.end, sampler.name, kind, change.rate_hz, reason))
        if spent.rss_kb * 1024 > self._options.memory_budget and tick.index % MEMORY_TICKS == MEMORY_TICKS - 1:
            sampler.release_memory()
            text = f"the recorder held {spent.rss_kb // 1024} MiB, over its budget: what it had looked up was dropped"
            gathered.lose(Losses(tick.end, "recorder", "memory-released", 1, text))

    def _rate(self) -> int:
        return self._sources.sampler.rate_hz if self._sources.sampler else 0


def _place_of(error: Exception) -> str:
    """Where an error was raised, as file:line below the package: the innermost frame of exhume."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if frame.filename.startswith(_PACKAGE)] or frames
    return f"{inside[-1].filename.removeprefix(_PACKAGE)}:{inside[-1].lineno}"


class _Account:
    """What the recorder itself costs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._statm = ProcFile("/proc/self/statm")
        self._status = ProcFile("/proc/self/status")
        self._page_kb = resource.getpagesize() // 1024
        self._began = self._usage = resource.getrusage(resource.RUSAGE_SELF)
        self._written = 0
        self._peak_rss_kb = 0

    def close_tick(self, tick: Tick, written: int, samples: int, sampler: Sampler | None) -> Self:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        rss = int(self._statm.read().split()[1]) * self._page_kb
        row = Self(
            time=tick.start,
            span_ms=tick.nanos // MILLIS,
            user_us=int((usage.ru_utime - self._usage.ru_utime) * 1e6),
            system_us=int((usage.ru_stime - self._usage.ru_stime) * 1e6),
            rss_kb=rss,
            rate_hz=sampler.rate_hz if sampler else 0,
            samples=samples,
            tick_us=max(0, (self._clock.monotonic_ns() - tick.end) // 1000),
            written_bytes=written - self._written,
            ring_fill=sampler.ring_fill if sampler else 0,
        )
        self._usage, self._written = usage, written
        self._peak_rss_kb = max(self._peak_rss_kb, rss)
        return row

    @property
    def peak_rss_kb(self) -> int:
        """The most memory that was held, also between ticks: the kernel's high-water mark (fs/proc/task_mmu.c,
        task_mem). Not ru_maxrss, which keeps what the process held before its exec (fs/exec.c, exec_mmap)."""
        return max(self._peak_rss_kb, *status_values(self._status.read(), b"VmHWM"))

    @property
    def cpu_seconds(self) -> float:
        """What recording took; loading the program is not part of it."""
        return self._usage.ru_utime + self._usage.ru_stime - self._began.ru_utime - self._began.ru_stime

    @property
    def written(self) -> int:
        return self._written


class _Totals:
    """The sum of all ticks."""

    def __init__(self) -> None:
        self._samples = 0
        self._incidents = 0
        self._losses: Counter[str] = Counter()

    def add(self, summary: TickSummary) -> None:
        self._samples += summary.samples
        self._incidents += len(summary.incidents)
        self._losses.update(summary.loss_counts)

    def summary(self, since: int, until: int, account: _Account, rate_hz: int) -> RecordingSummary:
        return RecordingSummary(
            since=since,
            until=until,
            samples=self._samples,
            losses=dict(self._losses),
            incidents=self._incidents,
            cpu_seconds=account.cpu_seconds,
            peak_rss_bytes=account.peak_rss_kb * 1024,
            written_bytes=account.written,
            rate_hz=rate_hz,
        )


def _summary(tick: Tick, gathered: Gathered, spent: Self) -> TickSummary:
    cpu = gathered.of("cpu")
    incidents = [
        str(text)
        for columns in gathered.of("events")
        for kind, text in zip(columns["kind"], columns["text"], strict=True)
        if kind == "incident"
    ]
    lost = sum(int(np.sum(columns["lost"])) for columns in gathered.of("sampling"))
    return TickSummary(
        tick=tick,
        cpu=cpu[0] if cpu else None,
        samples=spent.samples,
        lost=lost,
        rate_hz=spent.rate_hz,
        own_cpu=(spent.user_us + spent.system_us) / 1e6 / max(tick.seconds, 1e-9),
        rss_bytes=spent.rss_kb * 1024,
        written_bytes=spent.written_bytes,
        incidents=incidents,
        losses=[loss.text for loss in gathered.losses],
        loss_counts=gathered.loss_counts(),
    )
