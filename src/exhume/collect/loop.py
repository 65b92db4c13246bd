"""The recorder's loop: reads every source once a second and passes the rows to the sink."""

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from exhume.collect.budget import Budget, OwnCost, SourceCosts
from exhume.collect.incidents import IncidentMarks
from exhume.collect.source import NOTHING, LossySource, Source, TickRows
from exhume.collect.source_set import Sources
from exhume.collect.sources.cgroups import keep_shares
from exhume.model.clock import NANOS, Clock, SystemClock, Tick, both_ns
from exhume.model.progress import RecordingSummary, RowSink, TickSummary
from exhume.model.tables import INCIDENT, Columns, Losses, Self, loss_total, to_columns

_log = logging.getLogger(__name__)
_PACKAGE = f"{Path(__file__).parents[1]}/"
T = TypeVar("T")

# A tick that is this late has missed at least one second.
LATE_NS = NANOS * 3 // 2
# A failed source is not read for a while; its file may come back.
RETRY_TICKS = 10
MEMORY_TICKS = 30
# After a start, or when the wall clock was set, the next full second may be almost immediately.
SHORTEST_NS = NANOS // 5


class Stop(Protocol):
    """Ends the loop; threading.Event is one."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float) -> bool: ...


class TickObserver(Protocol):
    """Gets the rows of every tick after they were committed, for metrics and notifications. It is called in the
    recorder's thread, so it must be quick and must not block."""

    @property
    def name(self) -> str: ...

    def observe(self, tick: Tick, rows: Mapping[str, Sequence[Columns]], losses: Sequence[Losses]) -> None: ...


@dataclass(frozen=True, slots=True)
class RecorderOptions:
    """Options of a recording."""

    rate_hz: int = 97
    cpu_budget: float = 0.08
    memory_budget: int = 150_000_000


class TickBatch:
    """The rows of one tick by table, the rows of each source, and what was lost."""

    def __init__(self, losses: list[Losses]) -> None:
        self.rows: dict[str, list[Columns]] = {}
        self.given: list[TickRows] = []
        self.losses = losses

    def add(self, rows: TickRows) -> None:
        if rows:
            self.given.append(rows)
        for table, columns in rows.items():
            self.rows.setdefault(table, []).append(columns)


class Recorder:
    """Runs the sources once a second, at the full second of the wall clock, so that a row matches a second on the
    clock."""

    def __init__(
        self,
        sources: Sources,
        options: RecorderOptions,
        clock: Clock | None = None,
        observers: Sequence[TickObserver] = (),
    ) -> None:
        self._sources = sources
        # Looked up once: isinstance with a protocol compares every attribute, which for all sources took a fiftieth of
        # a tick.
        self._losses_of = {
            id(source): source.take_losses for source in sources.in_order() if isinstance(source, LossySource)
        }
        self._options = options
        self._observers = observers
        self._clock = clock or SystemClock()
        self._marks = IncidentMarks()
        self._budget = Budget(options.cpu_budget, options.rate_hz)
        self._cost = OwnCost(self._clock)
        self._source_costs = SourceCosts()
        self._paused: dict[str, int] = {}
        self._carried: list[Losses] = []

    def run(
        self, sink: RowSink, stop: Stop, until: int | None = None, on_tick: Callable[[TickSummary], None] | None = None
    ) -> RecordingSummary:
        """Record until `stop` is set, or until the monotonic time `until`. The sink stays open."""
        began, began_wall = both_ns(self._clock)
        start = began
        # Read everything once, as the base for later counter values.
        first = Tick(-1, start, start, self._clock.wall_ns())
        self._carried = [loss for source in self._sources.in_order() for loss in self._read(source, first)[1]]
        samples = incidents = index = 0
        losses: Counter[str] = Counter()
        stopped = stop.is_set()
        while not stopped:
            stop.wait(self._to_next_second(start))
            # After a stop request there is one more turn, to read the data that has accumulated.
            stopped = stop.is_set()
            now, wall = both_ns(self._clock)
            stopped |= until is not None and now >= until
            if stopped and self._sources.sampler:
                self._sources.sampler.end()
            tick = Tick(index, start, now, wall)
            summary = self._turn(tick, sink)
            samples += summary.samples
            incidents += len(summary.incidents)
            losses.update(summary.loss_counts)
            if on_tick:
                on_tick(summary)
            start, index = now, index + 1
        # Do not read the wall clock again: it may have been set in the meantime.
        ended_wall = began_wall + self._clock.monotonic_ns() - began
        return RecordingSummary(
            since=began_wall,
            until=ended_wall,
            samples=samples,
            losses=dict(losses),
            incidents=incidents,
            cpu_seconds=self._cost.cpu_seconds,
            peak_rss_bytes=self._cost.peak_rss_kb * 1024,
            written_bytes=self._cost.written,
            rate_hz=self._sources.sampler.rate_hz if self._sources.sampler else 0,
        )

    def _to_next_second(self, start: int) -> float:
        remaining = NANOS - self._clock.wall_ns() % NANOS
        if self._clock.monotonic_ns() + remaining - start < SHORTEST_NS:
            remaining += NANOS
        return remaining / NANOS

    def _turn(self, tick: Tick, sink: RowSink) -> TickSummary:
        batch, self._carried = TickBatch(self._carried), []
        if tick.nanos > LATE_NS:
            text = f"a tick took {tick.seconds:.1f} s instead of one"
            batch.losses.append(Losses(tick.start, "recorder", "late-tick", round(tick.seconds) - 1, text))
        costs = self._source_costs
        costs.lap("loop")
        for source in self._sources.in_order():
            rows, losses = self._read(source, tick)
            if source is self._sources.traced:
                # The follower counts all events, including those that are not kept.
                if self._sources.follower:
                    self._sources.follower.observe(rows, losses)
                rows, beyond = keep_shares(rows, tick, source.name)
                losses += beyond
            batch.add(rows)
            batch.losses += losses
            costs.lap(source.name)
        batch.add(self._marks.observe(tick, batch.given))
        samples = sum(len(columns["time_ms"]) for columns in batch.rows.get("samples", []))
        spent = self._cost.close_tick(tick, sink.written_bytes(), samples, self._sources.sampler)
        self._keep_budget(tick, spent, batch)
        batch.add({"self": to_columns("self", [spent])})
        if by_source := costs.close_tick(tick, self._cost.parser_seconds):
            batch.add({"source_cost": to_columns("source_cost", by_source)})
        costs.lap("loop")
        for table, batches in batch.rows.items():
            for columns in batches:
                sink.append(table, columns)
        if batch.losses:
            sink.append("losses", to_columns("losses", batch.losses))
        dropped = -sink.dropped_rows()
        if sink.commit(tick) and self._sources.sampler:
            self._sources.sampler.begin_segment()
        dropped += sink.dropped_rows()
        costs.lap("store")
        if dropped:
            # Only for the summary: the store counts them in the recording itself, as soon as there is room.
            text = f"{dropped} rows were dropped because the disk was full"
            batch.losses.append(Losses(tick.start, "store", "disk-full", dropped, text))
        for observer in self._observers:
            observe = partial(observer.observe, tick, batch.rows, batch.losses)
            self._carried += self._attempt(observer.name, "observer", tick, observe, None)[1]
            costs.lap(observer.name)
        return _summary(tick, batch, spent)

    def _read(self, source: Source, tick: Tick) -> tuple[TickRows, list[Losses]]:
        """The rows of a source for the tick, and what it lost."""

        def read() -> tuple[TickRows, list[Losses]]:
            rows = source.read(tick)
            take_losses = self._losses_of.get(id(source))
            return rows, take_losses() if take_losses else []

        nothing: tuple[TickRows, list[Losses]] = (NOTHING, [])
        (rows, losses), failed = self._attempt(source.name, "source", tick, read, nothing)
        return rows, losses + failed

    def _attempt(
        self, name: str, kind: str, tick: Tick, action: Callable[[], T], otherwise: T
    ) -> tuple[T, list[Losses]]:
        """The result of an action, and a loss if it failed. A failed action is not attempted again for a while."""
        if self._paused.get(name, -1) > tick.index:
            return otherwise, []
        try:
            return action(), []
        except Exception as error:  # noqa: BLE001  the edge of the tick: one failure must not end the recording
            self._paused[name] = tick.index + RETRY_TICKS
            what = f"{type(error).__name__}: {error} at {_place_of(error)}"
            text = f"the {kind} {name} failed and is tried again in {RETRY_TICKS} s; please report it ({what})"
            _log.warning("%s", text, exc_info=error)
            return otherwise, [Losses(tick.start, name, f"{kind}-failed", 1, text)]

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
            batch.losses.append(Losses(tick.end, sampler.name, kind, change.rate_hz, reason))
        if spent.rss_kb * 1024 > self._options.memory_budget and tick.index % MEMORY_TICKS == MEMORY_TICKS - 1:
            sampler.release_memory()
            text = f"the recorder held {spent.rss_kb // 1024} MiB, over its budget: what it had looked up was dropped"
            batch.losses.append(Losses(tick.end, "recorder", "memory-released", 1, text))


def _place_of(error: Exception) -> str:
    """Where an error was raised, as file:line below the package: the innermost frame of exhume."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if frame.filename.startswith(_PACKAGE)] or frames
    return f"{inside[-1].filename.removeprefix(_PACKAGE)}:{inside[-1].lineno}"


def _summary(tick: Tick, batch: TickBatch, spent: Self) -> TickSummary:
    counts: Counter[str] = Counter()
    for loss in batch.losses:
        counts[loss.kind] += loss_total(loss.kind, loss.count)
    return TickSummary(
        tick=tick,
        cpu=next(iter(batch.rows.get("cpu", [])), None),
        samples=spent.samples,
        lost=sum(int(np.sum(columns["lost"])) for columns in batch.rows.get("sampling", [])),
        rate_hz=spent.rate_hz,
        own_cpu=(spent.user_us + spent.system_us) / 1e6 / max(tick.seconds, 1e-9),
        rss_bytes=spent.rss_kb * 1024,
        written_bytes=spent.written_bytes,
        incidents=[
            str(text)
            for columns in batch.rows.get("events", [])
            for kind, text in zip(columns["kind"], columns["text"], strict=True)
            if kind == INCIDENT
        ],
        losses=[loss.text for loss in batch.losses],
        loss_counts=counts,
    )
