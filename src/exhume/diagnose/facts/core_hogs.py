"""Core hogs (processes that have most of one core, second after second), what runs next to them, and what waits."""

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import CORE_TAKEN, SURELY, Load, NamedProcess
from exhume.diagnose.evidence.quotes import quote_column
from exhume.diagnose.evidence.rows import Mask, Rows
from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.finding import Evidence
from exhume.model.tables import stood_still

# On a large node that only computes, every core has a hog.
_MOST_HOGS = 256
_PID_BITS = 32
# A process with this fraction of its time on one core is considered bound to it.
_BOUND = 0.9
# Fraction of the seconds that counts as most of them.
_MOST_SECONDS = 0.7


@dataclass(frozen=True, slots=True)
class CoreHog(NamedProcess):
    """A process and the core it holds, and for how many seconds; `user` is the fraction (0 to 1) of its time there in
    user mode. The load is its time there, compared with its time on any core in the baseline."""

    cpu: int
    load: Load
    seconds: float
    user: float
    evidence: Evidence


def find_core_hogs(
    case: Case,
    *,
    seconds: float,
    share: float = CORE_TAKEN,
    among: Mask | None = None,
    pids: Collection[int] | None = None,
) -> list[CoreHog]:
    """The processes that had `share` of one core for `seconds`, by the masked samples; the longest first."""
    samples = case.samples
    # Process 0 is the idle task; a negative pid stands for a process that was already gone.
    chosen = samples.within(case.focus) & (samples.pid > 0)
    if among is not None:
        chosen &= among
    if pids is not None:
        chosen &= np.isin(samples.pid, list(pids))
    places = np.flatnonzero(chosen)
    distinct, members = np.unique(samples.cpu[places] << _PID_BITS | samples.pid[places], return_inverse=True)
    # One row for each process on a core, one column for each second.
    count = -(-case.focus.nanos // NANOS)
    cells = members * count + (samples.wall[places] - case.focus.since) // NANOS
    shares = np.bincount(cells, samples.weight[places] / 1e6, len(distinct) * count).reshape(-1, count)
    kept = (shares >= share).sum(axis=1)
    found = [
        (float(kept[at]), *divmod(int(distinct[at]), 1 << _PID_BITS)) for at in np.flatnonzero(kept >= seconds).tolist()
    ]
    longest = sorted(found, reverse=True)[:_MOST_HOGS]
    return [_core_hog(case, chosen, pid, cpu, kept) for kept, cpu, pid in longest]


def _core_hog(case: Case, chosen: Mask, pid: int, cpu: int, kept: float) -> CoreHog:
    samples = case.samples
    own, here = samples.pid == pid, samples.cpu == cpu
    mask = chosen & here & own
    load = case.load_of(mask | (samples.within(case.baseline) & own))
    computing = samples.time(mask & ~samples.in_kernel) / max(1.0, samples.time(mask))
    # The share of the core that it had in that second, including all that it did there.
    share = round(min(1.0, samples.time(samples.within(Window(*load.second)) & here & own) / 1e6), 3)
    quote = Evidence("samples", "weight_us", "share", share, *load.second, cpu, match=(("pid", str(pid)),))
    return CoreHog(pid, load.owner.comm if load.owner is not None else "", cpu, load, kept, computing, quote)


@dataclass(frozen=True, slots=True)
class CoRunner(NamedProcess):
    """A process next to a core's hog, in cores' worth: on all cores now and before, and on that core now."""

    cores: float
    before: float
    there: float
    evidence: tuple[Evidence, ...]

    @property
    def lost(self) -> float:
        return self.before - self.cores


def slowed_co_runner(case: Case, cpu: int, hog: int, *, least: float, part: float) -> CoRunner | None:
    """The process that lost most compared with the baseline: it ran steadily on this core, still runs on this core
    only, and has surely less than `part` of what it had. A process that ended is not slowed, nor is one that may run
    elsewhere."""
    if case.baseline.empty:
        return None
    before = case.samples.within(case.baseline) & (case.samples.cpu == cpu)
    found = [
        each
        for pid in _pids(case, before, hog)
        if (each := _co_runner(case, pid, cpu)).lost >= least
        and 0 < each.cores < part * each.before
        and each.there >= _BOUND * each.cores
        and _surely_lost(case, each)
        and _is_steady(case, before & (case.samples.pid == pid), case.baseline, each.before / 2)
    ]
    return max(found, key=lambda each: each.lost, default=None)


def _surely_lost(case: Case, each: CoRunner) -> bool:
    """Whether a process's loss of CPU time is no chance of the sampling. By time, since the recorder may have changed
    its rate between the windows."""
    own = case.samples.pid == each.pid
    counts = [int((own & case.samples.within(window)).sum()) for window in (case.baseline, case.focus)]
    errors = [part / math.sqrt(max(count, 1)) for part, count in zip((each.before, each.cores), counts, strict=True)]
    return each.lost >= SURELY * math.hypot(*errors)


def delayed_part(case: Case, pid: int, cpu: int) -> float | None:
    """Of the time that the threads of a process wanted this core, the fraction they had to wait; None if they were not
    followed there."""
    rows = case.now("run_delays").on(cpu)
    rows = rows.where(rows.numbers("pid") == pid)
    ran, waited = rows.total("run_ns"), rows.total("wait_ns")
    return None if ran is None or waited is None else waited / max(ran + waited, 1.0)


def competing_co_runner(case: Case, cpu: int, hog: int, *, least: float) -> CoRunner | None:
    """The process with most of this core next to the hog, if both have at least a share of most seconds."""
    samples = case.samples
    there = samples.within(case.focus) & (samples.cpu == cpu)
    if not _is_steady(case, there & (samples.pid == hog), case.focus, least):
        return None
    steady = (
        pid for pid in _pids(case, there, hog) if _is_steady(case, there & (samples.pid == pid), case.focus, least)
    )
    return max((_co_runner(case, pid, cpu) for pid in steady), key=lambda each: each.there, default=None)


def _is_steady(case: Case, mask: Mask, window: Window, least: float) -> bool:
    """Whether the masked samples make up at least this share of most seconds."""
    seconds = max(1, round(window.seconds))
    bins = np.minimum((case.samples.wall[mask] - window.since) // NANOS, seconds - 1)
    shares = np.bincount(bins, case.samples.weight[mask], seconds) / 1e6
    return float((shares >= least).mean()) >= _MOST_SECONDS


def _pids(case: Case, mask: Mask, hog: int) -> list[int]:
    # Process 0 is the idle task, whatever interrupted it.
    return [pid for pid in np.unique(case.samples.pid[mask]).tolist() if pid not in (0, hog)]


def _co_runner(case: Case, pid: int, cpu: int) -> CoRunner:
    samples = case.samples
    own = samples.pid == pid
    comm = samples.comms[int(samples.comm[np.flatnonzero(own)[0]])]
    spent = {window: samples.time(own & samples.within(window)) for window in (case.focus, case.baseline)}
    there = samples.time(own & samples.within(case.focus) & (samples.cpu == cpu))
    quotes = tuple(
        Evidence(
            "samples", "weight_us", "sum", micros, window.since, window.until, match=(("pid", str(pid)),), unit="us"
        )
        # Evidence can't quote rows that don't exist.
        for window, micros in spent.items()
        if micros or window == case.focus
    )
    cores, before = (
        spent[each] / 1e6 / each.seconds if not each.empty else 0.0 for each in (case.focus, case.baseline)
    )
    return CoRunner(pid, comm, cores, before, there / 1e6 / case.focus.seconds, quotes)


@dataclass(frozen=True, slots=True)
class CoreWaits:
    """Run delay for one core, in seconds per second: now, in the baseline (0 without one), and the median of the other
    cores now (None if there is no other core)."""

    cpu: int
    now: float
    before: float
    elsewhere: float | None
    evidence: Evidence


def waits_of_cores(rows: Rows) -> dict[int, float]:
    """Run delay of each core in seconds per second, without the cores for which it is unknown."""
    waits = rows.numbers("wait_ns")
    known = ~np.isnan(waits)
    cpus = rows.cpu[known]
    seconds = np.bincount(cpus, rows.numbers("span_ms")[known]) / 1000
    waited = np.bincount(cpus, waits[known]) / NANOS
    return {cpu: float(waited[cpu] / seconds[cpu]) for cpu in np.flatnonzero(seconds).tolist()}


def core_waits(case: Case, cpu: int) -> CoreWaits | None:
    """The run delay of a core; None if the kernel doesn't report it."""
    now, quote = waits_of_cores(case.now("cpu")), quote_column(case.now("cpu").on(cpu), "wait_ns", "sum", "ns", cpu)
    if cpu not in now or quote is None:
        return None
    others = [waited for core, waited in now.items() if core != cpu]
    elsewhere = float(np.median(others)) if others else None
    return CoreWaits(cpu, now[cpu], waits_of_cores(case.before("cpu")).get(cpu, 0.0), elsewhere, quote)


@dataclass(frozen=True, slots=True)
class SoftirqWait:
    """How long (ns) the ksoftirqd of a core waited, all in all, in the tick at a wall time. `turns`: the number of its
    waits if it took turns with other threads, so that they were short; None if it stood still."""

    wall: int
    comm: str
    cpu: int
    waited: int
    turns: int | None

    @property
    def evidence(self) -> Evidence:
        return self._quote("wait_ns", self.waited, "ns")

    @property
    def evidence_of_turns(self) -> Evidence | None:
        return None if self.turns is None else self._quote("slices", self.turns, "")

    def _quote(self, column: str, value: int, unit: str) -> Evidence:
        match = (("comm", self.comm),)
        return Evidence("threads", column, "max", value, self.wall, self.wall + 1, self.cpu, match, unit=unit)


def softirq_waits(case: Case) -> list[SoftirqWait]:
    """The waits of every core's ksoftirqd, in order of time."""
    found = []
    waits = [
        row
        for row in case.now("threads").listed("wall", "comm", "cpu", "run_ns", "wait_ns", "slices")
        if row[1].startswith("ksoftirqd/") and row[4] > 0
    ]
    if not waits:
        return []
    cores = case.now("cpu")
    cores = cores.where(np.isin(cores.wall, np.unique([row[0] for row in waits])))
    ticks = {(wall, cpu): values for wall, cpu, *values in cores.listed("wall", "cpu", "span_ms", "wait_ns")}
    for wall, comm, cpu, ran, waited, slices in waits:
        span_ms, all_waited = ticks.get((wall, cpu), (1000, None))
        queue = None if all_waited is None else all_waited / (span_ms * MILLIS)
        stood = stood_still(waited, ran, slices, span_ms * MILLIS, queue)
        found.append(SoftirqWait(wall, comm, cpu, waited, None if stood else slices))
    return found


def softirq_wait(case: Case, cpu: int) -> Evidence | None:
    """Evidence of the longest wait (ns) of a core's ksoftirqd; None if it didn't wait, or only took turns."""
    waits = [each for each in softirq_waits(case) if each.cpu == cpu and each.turns is None]
    return max(waits, key=lambda each: (each.waited, -each.wall)).evidence if waits else None
