"""A signature found in stacks, in words and numbers: who spent how much of which core in which function."""

from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.impact import severity_of
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_load
from exhume.diagnose.evidence.samples import Names
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Evidence, Severity

# Owners of less than this are many hands.
OWNED = 1 / 3
# What holds so much of a core's time in the kernel is what that core is busy with.
MOST = 0.5


@dataclass(frozen=True, slots=True)
class HotPath:
    """`load` of the signature, the function of it that the time went to, and the evidence to quote."""

    load: Load
    function: str
    who: str | None
    evidence: Evidence
    culprit: Culprit

    def doing(self, one: str, many: str) -> str:
        """Who does it, with the verb for one or for many."""
        return f"many processes {many}" if self.who is None else f"{self.who} {one}"

    @property
    def text(self) -> str:
        where = f"core {self.load.cpu}" if self.load.peak >= 0.7 * self.load.together else "one of several cores"
        return f"{self.who or 'many processes'} spent {self.load.peak:.0%} of a second of {where} in {self.function}"


def hot_path(case: Case, functions: tuple[str, ...], load: Load | None = None) -> HotPath | None:
    """The signature in the focus; None where no stack holds it."""
    names = Names.of(functions)
    load = case.load(names) if load is None else load
    if not load.samples:
        return None
    function = case.samples.nearest(load.mask, names) or functions[0]
    who = owner_name(case, load)
    culprit = case.culprit(load, function)
    culprit = replace(culprit, comm=culprit.comm or who)
    return HotPath(load, function, who, quote_load(case, load, functions), culprit)


def on_hot_cores(case: Case, functions: tuple[str, ...], share: float) -> Load:
    """The load of a signature on the cores where it took such a share of a second; on all where it did so on none. What
    every core of a large node does a little of (packets, rules, tracking) would hide what one of them does."""
    names = Names.of(functions)
    load = case.load(names)
    if not load.samples or load.peak < share:
        return load
    sampled = case.samples
    seconds = (sampled.wall[load.mask] - case.focus.since) // NANOS
    count = int(seconds.max()) + 1
    cells = np.bincount(sampled.cpu[load.mask] * count + seconds, sampled.weight[load.mask] / 1e6)
    hot = {int(cell) // count for cell in np.flatnonzero(cells >= share)} | {load.cpu}
    return case.load(names, cpus=[cpu for cpu in hot if cpu is not None])


def owner_name(case: Case, load: Load) -> str | None:
    """The name that most of a load goes under, however many processes bear it."""
    sampled = case.samples
    weights = np.bincount(sampled.comm[load.mask], sampled.weight[load.mask], len(sampled.comms))
    if not weights.any():
        return None
    best = int(np.argmax(weights))
    return sampled.comms[best] if weights[best] >= OWNED * weights.sum() else None


def severity_on_core(case: Case, load: Load) -> Severity:
    """How much a load matters; one that is most of what its core does in the kernel is as grave as all of that."""
    alone = severity_of(case, load)
    if load.cpu is None:
        return alone
    whole = case.load_of(case.samples.in_kernel, cpus=[load.cpu])
    own = case.load_of(load.mask, cpus=[load.cpu])
    if own.cores < MOST * whole.cores:
        return alone
    return max(alone, severity_of(case, whole), key=lambda severity: severity.rank)
