"""The recorder's loop: reads every source once a second and hands the rows to the sink."""

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from exhume.collect.assemble import Sources
from exhume.collect.budget import Budget, OwnCost
from exhume.collect.incidents import IncidentMarks
from exhume.collect.source import NOTHING, LossySource, Source, TickRows
from exhume.model.clock import NANOS, Clock, SystemClock, Tick, both_ns
from exhume.model.progress import RecordingSummary, RowSink, TickSummary
from exhume.model.tables import INCIDENT, Columns, Losses, Self, loss_total, to_columns

_log = logging.getLogger(__name__)
_PACKAGE = f"{Path(__file__).parents[1]}/"

# A tick that comes this much too late has missed at least one second.
LATE_NS = NANOS * 3 // 2
# A source that failed is left alone for a while; it may be a file that comes back.
RETRY_TICKS = 10
MEMORY_TICKS = 30
# After a start, or when the wall clock was set, the next full second may be next to nothing away.
SHORTEST_NS = NANOS // 5


class Stop(Protocol):
    """Ends the loop; threading.Event is one."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool: ...


@dataclass(frozen=True, slots=True)
class RecorderOptions:
    """How to record."""

    rate_hz: int = 97
    cpu_budget: float = 0.08
    memory_budget: int = 150_000_000


class TickBatch:
    """The rows of one tick by table; `given` is what each source returned; losses become rows at the end."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Columns]] = {}
        self.given: list[TickRows] = []
        self.losses: list[Losses] = []

    def add(self, rows: TickRows) -> None:
        if rows:
            self.given.append(rows)
        for table, columns in rows.items():
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


class Recorder:
    """Runs the sources once a second, at the full second of the wall clock, so that a row is a second people know."""

    def __init__(self, sources: Sources, options: RecorderOptions, clock: Clock | None = None) -> None:
        self._sources = sources
        self._options = options
        self._clock = clock or SystemClock()
        self._marks = IncidentMarks()
        self._budget = Budget(options.cpu_budget, options.rate_hz)
        self._cost = OwnCost(self._clock)
        self._paused: dict[str, int] = {}
        self._failed_at_first: list[Losses] = []

    def run(
        self, sink: RowSink, stop: Stop, until: int | None = None, on_tick: Callable[[TickSummary], None] | None = None
    ) -> RecordingSummary:
        """Record until `stop` is set, or until the monotonic time `until`. The sink stays open."""
        began, began_wall = both_ns(self._clock)
        start = began
        self._prime(start)
        totals = _Totals()
        index = 0
        stopped = stop.is_set()
        while not stopped:
            stop.wait(self._to_next_second(start))
            # A stop during a turn takes effect after one more: what came meanwhile is still to be read.
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
        return totals.summary(began_wall, ended_wall, self._cost, self._rate())

    def _to_next_second(self, start: int) -> float:
        remaining = NANOS - self._clock.wall_ns() % NANOS
        if self._clock.monotonic_ns() + remaining - start < SHORTEST_NS:
            remaining += NANOS
        return remaining / NANOS

    def _prime(self, now: int) -> None:
        """A first read of everything, for the counters that later ones are measured against."""
        tick = Tick(-1, now, now, self._clock.wall_ns())
        for source in self._sources.in_order():
            self._failed_at_first += self._read(source, tick)[1]

    def _turn(self, tick: Tick, sink: RowSink) -> TickSummary:
        batch = TickBatch()
        batch.losses, self._failed_at_first = self._failed_at_first, []
        if tick.nanos > LATE_NS:
            missed = round(tick.seconds) - 1
            batch.lose(
                Losses(tick.start, "recorder", "late-tick", missed, f"a tick took {tick.seconds:.1f} s instead of one")
            )
        for source in self._sources.in_order():
            rows, losses = self._read(source, tick)
            batch.add(rows)
            batch.losses += losses
            if self._sources.follower and source is self._sources.traced:
                self._sources.follower.observe(rows, losses)
        batch.add(self._marks.observe(tick, batch.given))
        samples = sum(len(columns["time_ms"]) for columns in batch.of("samples"))
        spent = self._cost.close_tick(tick, sink.written_bytes(), samples, self._sources.sampler)
        self._keep_budget(tick, spent, batch)
        batch.add({"self": to_columns("self", [spent])})
        for table, columns in batch.items():
            sink.append(table, columns)
        dropped = -sink.dropped_rows()
        if sink.commit(tick) and self._sources.sampler:
            self._sources.sampler.begin_segment()
        dropped += sink.dropped_rows()
        if dropped:
            # For the summary: in the recording the store counts them itself, as soon as there is room.
            text = f"{dropped} rows were dropped because the disk was full"
            batch.lose(Losses(tick.start, "store", "disk-full", dropped, text))
        return _summary(tick, batch, spent)

    def _read(self, source: Source, tick: Tick) -> tuple[TickRows, list[Losses]]:
        """What a source has for the tick, and what it lost. One that failed is left alone for a while."""
        rows: TickRows = NOTHING
        losses: list[Losses] = []
        if self._paused.get(source.name, -1) > tick.index:
            return rows, losses
        try:
            rows = source.read(tick)
            if isinstance(source, LossySource):
                losses = source.take_losses()
        except Exception as error:  # noqa: BLE001  the edge of the tick: one source's failure must not end the recording
            self._paused[source.name] = tick.index + RETRY_TICKS
            text = f"{type(error).__name__}: {error} ({_place_of(error)}); retried in {RETRY_TICKS} s"
            _log.warning("source %s failed: %s", source.name, text, exc_info=error)
            losses = [Losses(tick.start, source.name, "source-failed", 1, text)]
        return rows, losses

    def _keep_budget(self, tick: Tick, spent: Self, batch: TickBatch) -> None:
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
            batch.lose(Losses(tick.end, sampler.name, kind, change.rate_hz, reason))
        if spent.rss_kb * 1024 > self._options.memory_budget and tick.index % MEMORY_TICKS == MEMORY_TICKS - 1:
            sampler.release_memory()
            text = f"the recorder held {spent.rss_kb // 1024} MiB, over its budget: what it had looked up was dropped"
            batch.lose(Losses(tick.end, "recorder", "memory-released", 1, text))

    def _rate(self) -> int:
        return self._sources.sampler.rate_hz if self._sources.sampler else 0


def _place_of(error: Exception) -> str:
    """Where an error was raised, as file:line below the package: the innermost frame of exhume."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if frame.filename.startswith(_PACKAGE)] or frames
    return f"{inside[-1].filename.removeprefix(_PACKAGE)}:{inside[-1].lineno}"


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

    def summary(self, since: int, until: int, cost: OwnCost, rate_hz: int) -> RecordingSummary:
        return RecordingSummary(
            since=since,
            until=until,
            samples=self._samples,
            losses=dict(self._losses),
            incidents=self._incidents,
            cpu_seconds=cost.cpu_seconds,
            peak_rss_bytes=cost.peak_rss_kb * 1024,
            written_bytes=cost.written,
            rate_hz=rate_hz,
        )


def _summary(tick: Tick, batch: TickBatch, spent: Self) -> TickSummary:
    cpu = batch.of("cpu")
    incidents = [
        str(text)
        for columns in batch.of("events")
        for kind, text in zip(columns["kind"], columns["text"], strict=True)
        if kind == INCIDENT
    ]
    lost = sum(int(np.sum(columns["lost"])) for columns in batch.of("sampling"))
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
        losses=[loss.text for loss in batch.losses],
        loss_counts=batch.loss_counts(),
    )
