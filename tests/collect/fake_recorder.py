"""Fakes of what a recorder is made of: a clock that moves when the loop waits, sources that return what they are given,
and a sink that keeps everything."""

from collections.abc import Callable
from typing import Any

from exhume.collect.loop import Recorder, RecorderOptions
from exhume.collect.source import NOTHING, TickRows
from exhume.collect.source_set import Sources
from exhume.model.clock import NANOS, Tick
from exhume.model.tables import Columns, Losses, columns_of

WALL = 1_700_000_000 * NANOS


class FakeClock:
    """Monotonic and wall time, moved by hand."""

    def __init__(self, monotonic: int = 500 * NANOS, wall: int = WALL) -> None:
        self.monotonic = monotonic
        self.wall = wall

    def monotonic_ns(self) -> int:
        return self.monotonic

    def wall_ns(self) -> int:
        return self.wall

    def pass_ns(self, nanos: int) -> None:
        self.monotonic += nanos
        self.wall += nanos


class StopAfter:
    """Asks the loop to stop after some ticks; `delays` are seconds by which a wait lasts too long, by tick."""

    def __init__(self, clock: FakeClock, ticks: int, delays: dict[int, float] | None = None) -> None:
        self._clock = clock
        self._ticks = ticks
        self._delays = delays or {}
        self.waits: list[float] = []

    def now(self) -> None:
        """Ask at once, also while a turn is taken."""
        self._ticks = 0

    def is_set(self) -> bool:
        return len(self.waits) >= self._ticks

    def wait(self, timeout: float) -> bool:
        if not self.is_set():
            self._clock.pass_ns(round((timeout + self._delays.get(len(self.waits), 0)) * NANOS))
        self.waits.append(timeout)
        return self.is_set()


class FakeSource:
    """Gives what `rows` returns for the tick, or raises it; loses what `losses` returns for it."""

    def __init__(
        self,
        name: str,
        rows: Callable[[Tick], TickRows] = lambda tick: NOTHING,
        losses: Callable[[Tick], list[Losses]] = lambda tick: [],
    ) -> None:
        self.name = name
        self.rows = rows
        self.losses = losses
        self.lost: list[Losses] = []
        self.ticks: list[int] = []
        self.closed = False

    def read(self, tick: Tick) -> TickRows:
        self.ticks.append(tick.index)
        self.lost = self.losses(tick)
        return self.rows(tick)

    def take_losses(self) -> list[Losses]:
        return self.lost

    def close(self) -> None:
        self.closed = True


class FakeSampler(FakeSource):
    """The part of the sampler that the loop knows."""

    def __init__(self, rate_hz: int = 97, rows: Callable[[Tick], TickRows] = lambda tick: NOTHING) -> None:
        super().__init__("stacks", rows)
        self.rate_hz = rate_hz
        self.ring_fill = 3
        self.rates: list[int] = []
        self.segments = 0
        self.released = 0
        self.refuses: OSError | None = None
        self.parser_cost = (0.0, 0)
        self.ended = False

    def set_rate(self, rate_hz: int) -> None:
        if self.refuses:
            raise self.refuses
        self.rates.append(rate_hz)
        self.rate_hz = rate_hz

    def begin_segment(self) -> None:
        self.segments += 1

    def release_memory(self) -> None:
        self.released += 1

    def end(self) -> None:
        self.ended = True


class KeepingSink:
    """Keeps the rows of every tick; a new segment begins after each tick in `cuts`."""

    def __init__(self, cuts: frozenset[int] = frozenset()) -> None:
        self._cuts = cuts
        self._pending: list[tuple[str, Columns]] = []
        self.ticks: list[tuple[Tick, list[tuple[str, Columns]]]] = []
        self.dropped = 0

    def append(self, table: str, columns: Columns) -> None:
        known = {column.name for column in columns_of(table)}
        assert columns.keys() <= known
        self._pending.append((table, columns))

    def commit(self, tick: Tick) -> bool:
        self.ticks.append((tick, self._pending))
        self._pending = []
        return tick.index in self._cuts

    def written_bytes(self) -> int:
        return 1000 * len(self.ticks)

    def dropped_rows(self) -> int:
        return self.dropped

    def close(self) -> None:
        """Nothing to seal."""

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table, with the number of the tick that they were committed in."""
        return [
            {"tick": tick.index, **dict(zip(columns, values, strict=True))}
            for tick, batches in self.ticks
            for name, columns in batches
            if name == table
            for values in zip(*columns.values(), strict=True)
        ]


class FakeRecorder:
    """A recorder of fake sources, and what came of it."""

    def __init__(
        self, *sources: Any, sampler: Any = None, options: RecorderOptions | None = None, observers: Any = ()
    ) -> None:
        self.clock = FakeClock()
        self.sources = Sources(sampler=sampler, traced=sampler, others=list(sources))
        self.sink = KeepingSink()
        self.recorder = Recorder(
            self.sources, options or RecorderOptions(memory_budget=1 << 40), self.clock, observers=observers
        )

    def run(self, ticks: int, delays: dict[int, float] | None = None, until: int | None = None, on_tick: Any = None):
        self.stop = StopAfter(self.clock, ticks, delays)
        return self.recorder.run(self.sink, self.stop, until, on_tick)
