"""Who shares a core with the process that keeps it: who got less than before, and who competes with it all the time."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.evidence.samples import Samples
from exhume.model.clock import NANOS
from exhume.model.finding import Evidence
from exhume.model.window import Window


@dataclass(frozen=True, slots=True)
class CoRunner:
    """A process beside the keeper of a core, in cores' worth: on all cores now and before, and on that core now."""

    pid: int
    comm: str
    cores: float
    before: float
    there: float
    evidence: tuple[Evidence, ...]

    @property
    def lost(self) -> float:
        return self.before - self.cores


# A process with so much of its time on one core is taken to be bound to it.
_BOUND = 0.9
# A share of most seconds.
_MOST = 0.7


def slowed_co_runner(case: Case, cpu: int, keeper: int, *, least: float, part: float) -> CoRunner | None:
    """Who lost most since before: it ran on this core second after second, still runs there and nowhere else, and has
    less than a part of what it had. One that ended is not held back; nor is one that may go elsewhere."""
    if case.baseline.empty:
        return None
    sampled = case.samples
    then, now = sampled.within(case.baseline), sampled.within(case.focus)
    before = then & (sampled.cpu == cpu)
    found = [
        each
        for pid in _pids(sampled, before, keeper)
        if (each := _companion(case, pid, cpu, now, then)).lost >= least
        and 0 < each.cores < part * each.before
        and each.there >= _BOUND * each.cores
        and _steady(sampled, before & (sampled.pid == pid), case.baseline, each.before / 2)
    ]
    return max(found, key=lambda each: each.lost, default=None)


def competing_co_runner(case: Case, cpu: int, keeper: int, *, least: float) -> CoRunner | None:
    """The other process that has most of this core, second after second, beside the keeper: both have at least a share
    in most of them."""
    sampled = case.samples
    now = sampled.within(case.focus)
    there = now & (sampled.cpu == cpu)
    if not _steady(sampled, there & (sampled.pid == keeper), case.focus, least):
        return None
    found = [
        _companion(case, pid, cpu, now, sampled.within(case.baseline))
        for pid in _pids(sampled, there, keeper)
        if _steady(sampled, there & (sampled.pid == pid), case.focus, least)
    ]
    return max(found, key=lambda each: each.there, default=None)


def _steady(sampled: Samples, mask: Mask, window: Window, least: float) -> bool:
    """Whether the masked samples make up a share of most seconds."""
    seconds = max(1, round(window.seconds))
    bins = np.minimum((sampled.wall[mask] - window.since) // NANOS, seconds - 1)
    shares = np.bincount(bins, sampled.weight[mask], seconds) / 1e6
    return float((shares >= least).mean()) >= _MOST


def _pids(sampled: Samples, mask: Mask, keeper: int) -> list[int]:
    # Process 0 is the idle task, whatever interrupted it.
    return [pid for pid in np.unique(sampled.pid[mask]).tolist() if pid not in (0, keeper)]


def _companion(case: Case, pid: int, cpu: int, now: Mask, then: Mask) -> CoRunner:
    sampled = case.samples
    own = sampled.pid == pid
    first = int(np.flatnonzero(own)[0])
    micros = [float(sampled.weight[own & each].sum()) for each in (now, then, now & (sampled.cpu == cpu))]
    length = case.baseline.seconds
    told = [_ran(pid, micros[0], case.focus)]
    # No rows at all can't be quoted.
    if length and micros[1]:
        told.append(_ran(pid, micros[1], case.baseline))
    return CoRunner(
        pid,
        sampled.comms[int(sampled.comm[first])],
        micros[0] / 1e6 / case.focus.seconds,
        micros[1] / 1e6 / length if length else 0.0,
        micros[2] / 1e6 / case.focus.seconds,
        tuple(told),
    )


def _ran(pid: int, micros: float, window: Window) -> Evidence:
    return Evidence(
        "samples", "weight_us", "sum", micros, window.since, window.until, match=(("pid", str(pid)),), unit="us"
    )
