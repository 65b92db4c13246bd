"""The recorder's own cost, and its budget: it stays within the budget by sampling less often, never by stopping."""

import os
import resource
import time
from collections import defaultdict, deque
from dataclasses import dataclass

from exhume.collect.perf.source import PerfSource
from exhume.model.clock import MILLIS, NANOS, Clock, Tick
from exhume.model.tables import Self, SourceCost
from exhume.procfs.host import ProcFile
from exhume.procfs.pid_status import status_values

AVERAGED_TICKS = 30
# The first seconds read symbol tables and every process; they are not representative of the running cost.
SETTLING_TICKS = 10
LOWEST_HZ = 11
# Raise the rate again only well below the budget, or it would oscillate.
RAISE_BELOW = 0.4


@dataclass(frozen=True, slots=True)
class RateChange:
    """A new sampling rate, and the reason for it."""

    rate_hz: int
    reason: str


class Budget:
    """Watches the recorder's cost and decides when the rate has to change."""

    def __init__(self, cpu_share: float, rate_hz: int) -> None:
        self._share = cpu_share
        self._requested = rate_hz
        self._rate = rate_hz
        self._spent: deque[tuple[float, float]] = deque(maxlen=AVERAGED_TICKS)
        self._settling = SETTLING_TICKS

    def observe(self, cpu_seconds: float, seconds: float) -> RateChange | None:
        """Account for the cost of one tick. Returns the new rate if it has to change."""
        if self._settling:
            self._settling -= 1
            return None
        self._spent.append((cpu_seconds, seconds))
        if len(self._spent) < AVERAGED_TICKS:
            return None
        share = sum(cpu for cpu, _ in self._spent) / max(sum(length for _, length in self._spent), 1e-9)
        if share > self._share and self._rate > LOWEST_HZ:
            return self._change(max(LOWEST_HZ, self._rate // 2), share, "over")
        if share < self._share * RAISE_BELOW and self._rate < self._requested:
            return self._change(min(self._requested, self._rate * 2), share, "well within")
        return None

    def _change(self, rate_hz: int, share: float, how: str) -> RateChange:
        reason = (
            f"the recorder used {share:.1%} of one core, {how} its budget of {self._share:.1%}: "
            f"sampling at {rate_hz} Hz instead of {self._rate} Hz"
        )
        self._rate = rate_hz
        self._spent.clear()
        return RateChange(rate_hz, reason)


class OwnCost:
    """The cost of the recorder itself."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._statm = ProcFile("/proc/self/statm", single=True)
        self._status = ProcFile("/proc/self/status", single=True)
        self._page_kb = resource.getpagesize() // 1024
        self._began = self._usage = resource.getrusage(resource.RUSAGE_SELF)
        # CPU time of the process that reads symbols, which is part of the recording cost.
        self._parser_s = 0.0
        self.written = 0
        self._peak_rss_kb = 0

    def close_tick(self, tick: Tick, written: int, samples: int, sampler: PerfSource | None) -> Self:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        parser_s, parser_kb = sampler.parser_cost if sampler else (0.0, 0)
        rss = int(self._statm.read().split()[1]) * self._page_kb + parser_kb
        row = Self(
            time=tick.start,
            span_ms=tick.nanos // MILLIS,
            user_us=int((usage.ru_utime - self._usage.ru_utime + max(0.0, parser_s - self._parser_s)) * 1e6),
            system_us=int((usage.ru_stime - self._usage.ru_stime) * 1e6),
            rss_kb=rss,
            rate_hz=sampler.rate_hz if sampler else 0,
            samples=samples,
            tick_us=max(0, (self._clock.monotonic_ns() - tick.end) // 1000),
            written_bytes=written - self.written,
            ring_fill=sampler.ring_fill if sampler else 0,
        )
        self._usage, self.written, self._parser_s = usage, written, max(parser_s, self._parser_s)
        self._peak_rss_kb = max(self._peak_rss_kb, rss)
        return row

    @property
    def peak_rss_kb(self) -> int:
        """The peak resident memory, also between ticks: the kernel's high-water mark (fs/proc/task_mmu.c, task_mem).
        Not ru_maxrss, which includes the process's memory before its exec (fs/exec.c, exec_mmap)."""
        return max(self._peak_rss_kb, *status_values(self._status.read(), b"VmHWM"))

    @property
    def parser_seconds(self) -> float:
        """CPU time of the process that reads symbols."""
        return self._parser_s

    @property
    def cpu_seconds(self) -> float:
        """CPU time of the recording, without loading the program."""
        own = self._usage.ru_utime + self._usage.ru_stime - self._began.ru_utime - self._began.ru_stime
        return own + self._parser_s


# Ticks that share a row of the source_cost table: a row per source and tick would cost more than the measuring.
COSTED_TICKS = 10


class SourceCosts:
    """CPU time by source. Everything is measured in one thread, from the end of one source to the end of the next: one
    read of the thread's clock per source, a third of a microsecond."""

    def __init__(self) -> None:
        self._spent: defaultdict[str, int] = defaultdict(int)
        self._lap = time.thread_time_ns()
        self._thread, self._process, self._children = self._lap, time.process_time_ns(), _children_ns()
        self._parser_ns = 0
        self._start: int | None = None

    def lap(self, name: str) -> None:
        """Attribute this thread's CPU time since the last call to `name`."""
        now = time.thread_time_ns()
        self._spent[name] += now - self._lap
        self._lap = now

    def close_tick(self, tick: Tick, parser_s: float) -> list[SourceCost]:
        """The rows of the last ticks, if they are due."""
        if self._start is None:
            self._start = tick.start
        if tick.index % COSTED_TICKS != COSTED_TICKS - 1:
            return []
        self.lap("loop")
        # CPU time of the process that this thread did not use was used by other threads.
        thread, process, children = self._lap, time.process_time_ns(), _children_ns()
        self._spent["background"] = max(0, process - self._process - (thread - self._thread))
        self._spent["children"] = children - self._children
        parser_ns = max(int(parser_s * NANOS), self._parser_ns)
        self._spent["symbols"] = parser_ns - self._parser_ns
        rows = [
            SourceCost(self._start, (tick.end - self._start) // MILLIS, name, spent // 1000)
            for name, spent in self._spent.items()
        ]
        self._thread, self._process, self._children, self._parser_ns = thread, process, children, parser_ns
        self._spent.clear()
        self._start = None
        return rows


def _children_ns() -> int:
    """CPU time of the children that exited: those that seal, read the inventory and diagnose."""
    spent = os.times()
    return int((spent.children_user + spent.children_system) * NANOS)
