"""Incidents: moments that the recorder marks by itself, while they happen.

A mark is one row per episode: it is set in the episode's first second, and the same trigger on the same core stays
quiet until it has been absent for 30 seconds. The thresholds:

- a core at 95% or more in the kernel (system, irq, softirq) for two seconds: a busy program runs in user mode, and the
  kernel's own work is short, so two seconds of it on one core keep everything else there waiting. On a guest this is
  95% of the CPU time that the hypervisor leaves to it;
- a ksoftirqd that waited over half a second: a tenth of the time after which a network driver's watchdog fires. Not one
  that only took turns with others, whose short waits add up to that;
- a line in the kernel log about starvation, or a transmit timeout that the kernel counted;
- 200 more dying cgroups within a minute, confirmed by a second count: a node that starts and stops pods has a few
  dozen at most, and those go away; at this rate a leak reaches 10,000 within the hour.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from exhume.collect.source import TickRows, event_rows
from exhume.collect.sources.kmsg_signatures import STARVATION_KINDS
from exhume.model.clock import NANOS, Tick
from exhume.model.tables import (
    DYING_CGROUPS,
    HELD_PERMILLE,
    HOT_CORE,
    INCIDENT,
    KERNEL_STATES,
    RECORDER,
    WAITING_KSOFTIRQD,
    Columns,
    Events,
    is_held,
    queue_of,
    stood_still,
)

HOT_NS = 2 * NANOS
WAITED_NS = NANOS // 2
DYING_JUMP = 200
DYING_WITHIN_NS = 60 * NANOS
QUIET_NS = 30 * NANOS
# Counts above the minimum by no more than this fraction of the jump are taken as before the jump.
_CALM_PART = 0.1


class IncidentMarks:
    """Watches the rows of each tick, in order, and marks the beginning of an episode."""

    def __init__(self) -> None:
        self._last_seen: dict[tuple[str, str | int | None], int] = {}
        self._hot: dict[int, _HotRun] = {}
        self._dying: dict[str, deque[tuple[int, int]]] = {}
        self._began: int | None = None
        # The rows of cores of the present tick, which have the queues.
        self._queues: list[Columns] = []

    def observe(self, tick: Tick, given: Iterable[TickRows]) -> TickRows:
        """Rows of the events table for episodes that began in this tick; `given` is the rows of each source for it."""
        if self._began is None:
            self._began = tick.start
        given = list(given)
        self._queues = [rows["cpu"] for rows in given if "cpu" in rows]
        watchers = {
            "cpu": self._hot_cores,
            "threads": self._starved_softirqs,
            "events": self._logged,
            "cgroups": self._dying_cgroups,
        }
        found = [watchers[table](tick, rows[table]) for rows in given for table in watchers if table in rows]
        return event_rows([mark for marks in found for mark in marks])

    def _hot_cores(self, tick: Tick, cpu: Columns) -> list[Events]:
        kernel = np.sum([np.asarray(cpu[state], np.int64) for state in KERNEL_STATES], axis=0)
        held = is_held(kernel, np.asarray(cpu["steal"], np.int64))
        opened = []
        seen = set()
        columns = (np.asarray(cpu["cpu"]), kernel, held)
        for core, share, hot in zip(*(column.tolist() for column in columns), strict=True):
            seen.add(core)
            run = self._hot[core] = self._hot.get(core) or _HotRun(share)
            nanos = run.extend(tick, share, hot)
            if nanos and self._opens((HOT_CORE, core), tick.end):
                length = f"{nanos / NANOS:.1f} s"
                of = "what the hypervisor left of it" if run.stolen else "it"
                text = f"core {core} has spent {length} in the kernel so far, {HELD_PERMILLE // 10}% of {of} or more"
                opened.append(_incident(run.start, HOT_CORE, text, cpu=core, value=nanos / NANOS))
        for core in self._hot.keys() - seen:
            del self._hot[core]
        return opened

    def _starved_softirqs(self, tick: Tick, threads: Columns) -> list[Events]:
        opened = []
        for comm, core, ran, waited, slices in _rows(threads, "comm", "cpu", "run_ns", "wait_ns", "slices"):
            starved = waited > WAITED_NS and comm.startswith("ksoftirqd/")
            starved = starved and stood_still(waited, ran, slices, tick.nanos, queue_of(self._queues, core, tick.nanos))
            if starved and self._opens((WAITING_KSOFTIRQD, core), tick.end):
                # A wait is counted when it ends, so a wait longer than the tick began before it.
                start = min(tick.start, tick.end - waited)
                text = f"{comm} waited {waited / NANOS:.1f} s to run: softirqs of core {core} stood still"
                opened.append(_incident(start, WAITING_KSOFTIRQD, text, cpu=core, value=waited / NANOS))
        return opened

    def _logged(self, _: Tick, events: Columns) -> list[Events]:
        opened = []
        for time, source, kind, text, core, device in _rows(events, "time", "source", "kind", "text", "cpu", "device"):
            # Lines logged before the recording began have no recorded data to examine.
            if kind not in STARVATION_KINDS or (self._began is not None and time < self._began):
                continue
            if self._opens((kind, core if core is not None else device), time):
                opened.append(replace(_incident(time, kind, f"{source}: {text}", cpu=core), device=device))
        return opened

    def _dying_cgroups(self, _: Tick, cgroups: Columns) -> list[Events]:
        opened = []
        for time, hierarchy, parent, dying in _rows(cgroups, "time", "hierarchy", "parent", "dying"):
            if parent or dying is None:
                continue
            history = self._dying.setdefault(hierarchy, deque())
            while history and history[0][0] < time - DYING_WITHIN_NS:
                history.popleft()
            if len(history) >= 2:
                least = min(count for _, count in history)
                jump = min(dying, history[-1][1]) - least
                if jump >= DYING_JUMP and self._opens((DYING_CGROUPS, hierarchy), time):
                    # From the last count before the jump: counts may have fluctuated by a few for a while.
                    start, count = next(each for each in reversed(history) if each[1] <= least + jump * _CALM_PART)
                    seconds = (time - start) / NANOS
                    text = f"{dying - count} more dying cgroups within {seconds:.0f} s ({dying} in all)"
                    opened.append(_incident(start, DYING_CGROUPS, text, value=float(dying - count)))
            history.append((time, dying))
        return opened

    def _opens(self, trigger: tuple[str, str | int | None], now: int) -> bool:
        """Whether this is a new episode of the trigger; in any case record that it was seen now."""
        last = self._last_seen.get(trigger)
        self._last_seen[trigger] = now
        return last is None or now - last > QUIET_NS


class _HotRun:
    """How long a core has been in the kernel without interruption.

    A burst begins and ends within a tick. Those two ticks count with the excess over the core's share before the burst:
    so a burst of two seconds is found wherever it lies, and a core that is steadily at 60% does not count as one.
    """

    __slots__ = ("_before", "_full", "_hot", "_lead", "_share", "start", "stolen")

    def __init__(self, share: int) -> None:
        self._before = self._share = share
        self._hot = share >= HELD_PERMILLE
        self._full = self._lead = 0
        self.start = 0
        # Whether steal time was a significant part of it.
        self.stolen = False

    def extend(self, tick: Tick, share: int, hot: bool) -> int:
        """Add a tick; returns the length of the burst in nanoseconds once it is long enough, else 0."""
        length = 0
        if hot:
            if not self._full:
                self._lead = 0 if self._hot else self._part(self._share, tick)
                self.start = tick.start - self._lead
                self.stolen = False
            self.stolen |= share < HELD_PERMILLE
            self._full += tick.nanos
            length = self._lead + self._full
        else:
            if self._full:
                length = self._lead + self._full + self._part(share, tick)
                self._full = 0
            self._before = self._before if self._hot else self._share
        self._share, self._hot = share, hot
        return length if length >= HOT_NS * HELD_PERMILLE // 1000 else 0

    def _part(self, share: int, tick: Tick) -> int:
        return max(share - self._before, 0) * tick.nanos // 1000


def _rows(columns: Columns, *names: str) -> list[tuple[Any, ...]]:
    """Rows of some columns; a column that a source left out is None throughout."""
    lists = [columns.get(name, [None] * len(columns["time"])) for name in names]
    return list(zip(*(each.tolist() if isinstance(each, np.ndarray) else each for each in lists), strict=True))


def _incident(time: int, trigger: str, text: str, *, cpu: int | None = None, value: float | None = None) -> Events:
    return Events(time, RECORDER, INCIDENT, "critical", text, cpu=cpu, value=value, trigger=trigger)
