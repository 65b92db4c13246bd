"""Processes that keep a core: one of them has most of it, second after second."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.case import Case
from exhume.diagnose.load import TAKEN, Load
from exhume.diagnose.rows import Mask
from exhume.model.clock import NANOS
from exhume.model.finding import Evidence
from exhume.model.window import Window

_MOST = 12
_PID_BITS = 32


@dataclass(frozen=True, slots=True)
class Keeper:
    """A process and the core that it keeps, for so many seconds; `user` is the part of its time there that it computed
    (0 to 1). The load is its time there, held against what it had before on any core."""

    pid: int
    comm: str
    cpu: int
    load: Load
    seconds: float
    user: float
    evidence: Evidence


def find_keepers(case: Case, *, seconds: float, share: float = TAKEN, among: Mask | None = None) -> list[Keeper]:
    """Who had a share of one core in so many seconds or more, by the masked samples; the longest first."""
    if not case.has_stacks:
        return []
    sampled = case.sampled
    # Process 0 is the idle task; a negative number is one that was already gone.
    chosen = sampled.within(case.focus) & (sampled.pid > 0)
    if among is not None:
        chosen = chosen & among
    distinct, members = np.unique(sampled.cpu[chosen] << _PID_BITS | sampled.pid[chosen], return_inverse=True)
    micros = np.bincount(members, sampled.weight[chosen], len(distinct))
    found = []
    for place in np.argsort(-micros)[:_MOST].tolist():
        if micros[place] < seconds * share * 1e6:
            break
        cpu, pid = int(distinct[place] >> _PID_BITS), int(distinct[place] & ((1 << _PID_BITS) - 1))
        keeper = _keeper(case, chosen & (sampled.cpu == cpu) & (sampled.pid == pid), pid, cpu, share)
        if keeper.seconds >= seconds:
            found.append(keeper)
    return sorted(found, key=lambda each: -each.seconds)


def _keeper(case: Case, mask: Mask, pid: int, cpu: int, share: float) -> Keeper:
    sampled = case.sampled
    earlier = sampled.within(case.baseline) & (sampled.pid == pid)
    load = case.load_of(mask | earlier)
    computing = float(sampled.weight[mask & ~sampled.in_kernel].sum()) / max(1.0, float(sampled.weight[mask].sum()))
    kept = np.bincount((sampled.wall[mask] - case.focus.since) // NANOS, sampled.weight[mask]) / 1e6 >= share
    owner = load.owner
    comm = owner.comm if owner is not None else ""
    return Keeper(pid, comm, cpu, load, float(kept.sum()), computing, _share(case, pid, cpu, load.at))


def _share(case: Case, pid: int, cpu: int, at: int) -> Evidence:
    """A process's share of a core in one second, all that it did there."""
    sampled = case.sampled
    own = sampled.within(Window(at, at + NANOS)) & (sampled.cpu == cpu) & (sampled.pid == pid)
    share = round(min(1.0, float(sampled.weight[own].sum()) / 1e6), 3)
    return Evidence("samples", "weight_us", "share", share, at, at + NANOS, cpu, (("pid", str(pid)),))
