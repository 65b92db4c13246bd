"""Core hogs: processes that have most of one core, second after second."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import CORE_TAKEN, Load
from exhume.diagnose.evidence.rows import Mask
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Entity, Evidence, process_entity

# On a large node that only computes, each core has one.
_MOST = 256
_PID_BITS = 32


@dataclass(frozen=True, slots=True)
class CoreHog:
    """A process and the core that it holds, for how many seconds; `user` is the part of its time there that it computed
    (0 to 1). The load is its time there, compared with what it had before on any core."""

    pid: int
    comm: str
    cpu: int
    load: Load
    seconds: float
    user: float
    evidence: Evidence

    @property
    def entity(self) -> Entity:
        return process_entity(self.comm, self.pid)


def find_core_hogs(
    case: Case,
    *,
    seconds: float,
    share: float = CORE_TAKEN,
    among: Mask | None = None,
    pids: Collection[int] | None = None,
) -> list[CoreHog]:
    """The processes that had a share of one core for at least that many seconds, by the masked samples; the longest
    first. Of all processes, or of some."""
    if not case.has_stacks:
        return []
    samples = case.samples
    # Process 0 is the idle task; a negative number is one that was already gone.
    chosen = samples.within(case.focus) & (samples.pid > 0)
    if among is not None:
        chosen &= among
    if pids is not None:
        chosen &= np.isin(samples.pid, list(pids))
    keys = samples.cpu[chosen] << _PID_BITS | samples.pid[chosen]
    order = np.argsort(keys, kind="stable")
    distinct, starts, counts = np.unique(keys[order], return_index=True, return_counts=True)
    bins = ((samples.wall[chosen] - case.focus.since) // NANOS)[order]
    weights = samples.weight[chosen][order] / 1e6
    found = []
    for key, start, count in zip(distinct.tolist(), starts.tolist(), counts.tolist(), strict=True):
        kept = float((np.bincount(bins[start : start + count], weights[start : start + count]) >= share).sum())
        if kept >= seconds:
            cpu, pid = key >> _PID_BITS, key & ((1 << _PID_BITS) - 1)
            found.append((kept, cpu, pid))
    longest = sorted(found, reverse=True)[:_MOST]
    return [
        _core_hog(case, chosen & (samples.cpu == cpu) & (samples.pid == pid), pid, cpu, kept)
        for kept, cpu, pid in longest
    ]


def _core_hog(case: Case, mask: Mask, pid: int, cpu: int, kept: float) -> CoreHog:
    samples = case.samples
    earlier = samples.within(case.baseline) & (samples.pid == pid)
    load = case.load_of(mask | earlier)
    computing = float(samples.weight[mask & ~samples.in_kernel].sum()) / max(1.0, float(samples.weight[mask].sum()))
    owner = load.owner
    comm = owner.comm if owner is not None else ""
    return CoreHog(pid, comm, cpu, load, kept, computing, _share(case, pid, cpu, load.at))


def _share(case: Case, pid: int, cpu: int, at: int) -> Evidence:
    """A process's share of a core in one second, all that it did there."""
    samples = case.samples
    own = samples.within(Window(at, at + NANOS)) & (samples.cpu == cpu) & (samples.pid == pid)
    share = round(min(1.0, float(samples.weight[own].sum()) / 1e6), 3)
    return Evidence("samples", "weight_us", "share", share, at, at + NANOS, cpu, (("pid", str(pid)),))
