"""Processes that share a core with its hog: those that got less than before, and those that compete with it."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.evidence.samples import Samples
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Entity, Evidence, process_entity


@dataclass(frozen=True, slots=True)
class CoRunner:
    """A process next to the hog of a core, in cores' worth: on all cores now and before, and on that core now."""

    pid: int
    comm: str
    cores: float
    before: float
    there: float
    evidence: tuple[Evidence, ...]

    @property
    def entity(self) -> Entity:
        return process_entity(self.comm, self.pid)

    @property
    def lost(self) -> float:
        return self.before - self.cores


# A process with so much of its time on one core is taken to be bound to it.
_BOUND = 0.9
# A share of most seconds.
_MOST = 0.7


def slowed_co_runner(case: Case, cpu: int, hog: int, *, least: float, part: float) -> CoRunner | None:
    """The process that lost most since before: it ran on this core second after second, still runs there and nowhere
    else, and has less than a part of what it had. One that ended is not slowed; nor is one that may run elsewhere."""
    if case.baseline.empty:
        return None
    samples = case.samples
    then, now = samples.within(case.baseline), samples.within(case.focus)
    before = then & (samples.cpu == cpu)
    found = [
        each
        for pid in _pids(samples, before, hog)
        if (each := _co_runner(case, pid, cpu, now, then)).lost >= least
        and 0 < each.cores < part * each.before
        and each.there >= _BOUND * each.cores
        and _steady(samples, before & (samples.pid == pid), case.baseline, each.before / 2)
    ]
    return max(found, key=lambda each: each.lost, default=None)


def competing_co_runner(case: Case, cpu: int, hog: int, *, least: float) -> CoRunner | None:
    """The other process that has most of this core, second after second, next to the hog: both have at least a share
    in most of them."""
    samples = case.samples
    now = samples.within(case.focus)
    there = now & (samples.cpu == cpu)
    if not _steady(samples, there & (samples.pid == hog), case.focus, least):
        return None
    found = [
        _co_runner(case, pid, cpu, now, samples.within(case.baseline))
        for pid in _pids(samples, there, hog)
        if _steady(samples, there & (samples.pid == pid), case.focus, least)
    ]
    return max(found, key=lambda each: each.there, default=None)


def _steady(samples: Samples, mask: Mask, window: Window, least: float) -> bool:
    """Whether the masked samples make up a share of most seconds."""
    seconds = max(1, round(window.seconds))
    bins = np.minimum((samples.wall[mask] - window.since) // NANOS, seconds - 1)
    shares = np.bincount(bins, samples.weight[mask], seconds) / 1e6
    return float((shares >= least).mean()) >= _MOST


def _pids(samples: Samples, mask: Mask, hog: int) -> list[int]:
    # Process 0 is the idle task, whatever interrupted it.
    return [pid for pid in np.unique(samples.pid[mask]).tolist() if pid not in (0, hog)]


def _co_runner(case: Case, pid: int, cpu: int, now: Mask, then: Mask) -> CoRunner:
    samples = case.samples
    own = samples.pid == pid
    first = int(np.flatnonzero(own)[0])
    micros = [float(samples.weight[own & each].sum()) for each in (now, then, now & (samples.cpu == cpu))]
    length = case.baseline.seconds
    quotes = [_ran(pid, micros[0], case.focus)]
    # No rows at all can't be quoted.
    if length and micros[1]:
        quotes.append(_ran(pid, micros[1], case.baseline))
    return CoRunner(
        pid,
        samples.comms[int(samples.comm[first])],
        micros[0] / 1e6 / case.focus.seconds,
        micros[1] / 1e6 / length if length else 0.0,
        micros[2] / 1e6 / case.focus.seconds,
        tuple(quotes),
    )


def _ran(pid: int, micros: float, window: Window) -> Evidence:
    return Evidence(
        "samples", "weight_us", "sum", micros, window.since, window.until, match=(("pid", str(pid)),), unit="us"
    )
