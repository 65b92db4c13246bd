"""A signature found in stacks: which process spent how much of which core in which function."""

from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose.evidence.builder import EvidenceBuilder
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.impact import severity_of
from exhume.diagnose.evidence.load import OWNED, Load
from exhume.diagnose.evidence.quotes import quote_load
from exhume.diagnose.evidence.samples import Names
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Entity, Evidence, Role, Severity, process_entity

# A load with this part of its core's kernel time is what that core is busy with.
MOST = 0.5
# From this part of a second's total on one core, that core is named.
ONE_CORE = 0.7


@dataclass(frozen=True, slots=True)
class HotPath:
    """The load of a signature, the function of it that the time went to, and the evidence to quote. `process` is None
    where many processes share it."""

    load: Load
    function: str
    process: Entity | None
    evidence: Evidence
    culprit: Culprit

    @property
    def cpu(self) -> int | None:
        """The core to name; None where several share the load."""
        return self.load.cpu if self.load.peak >= ONE_CORE * self.load.together else None

    def describe(self, builder: EvidenceBuilder, strength: float) -> None:
        """Add the mechanism: who spent how much of a core in which function."""
        builder.add(
            Role.MECHANISM,
            "hot-path",
            self.evidence,
            strength=strength,
            at=self.load.at,
            who=self.process,
            peak=self.load.peak,
            cpu=self.cpu,
            function=self.function,
        )


def hot_path(case: Case, functions: tuple[str, ...], load: Load | None = None) -> HotPath | None:
    """The signature in the focus; None where no stack holds it."""
    names = Names.of(functions)
    load = case.load(names) if load is None else load
    if not load.samples:
        return None
    function = case.samples.nearest(load.mask, names) or functions[0]
    comm = _most_common_comm(case, load)
    culprit = case.culprit(load, function)
    culprit = replace(culprit, comm=culprit.comm or comm)
    process = None if comm is None else process_entity(comm)
    return HotPath(load, function, process, quote_load(case, load, functions), culprit)


def on_hot_cores(case: Case, functions: tuple[str, ...], share: float) -> Load:
    """The load of a signature on the cores where it took such a share of a second; on all where it did so on none. What
    every core of a large node does a little of (packets, rules, tracking) would hide what one of them does."""
    names = Names.of(functions)
    load = case.load(names)
    if not load.samples or load.peak < share:
        return load
    samples = case.samples
    seconds = (samples.wall[load.mask] - case.focus.since) // NANOS
    count = int(seconds.max()) + 1
    cells = np.bincount(samples.cpu[load.mask] * count + seconds, samples.weight[load.mask] / 1e6)
    hot = {int(cell) // count for cell in np.flatnonzero(cells >= share)} | {load.cpu}
    return case.load(names, cpus=[cpu for cpu in hot if cpu is not None])


def _most_common_comm(case: Case, load: Load) -> str | None:
    """The name that most of a load has, however many processes have it."""
    samples = case.samples
    weights = np.bincount(samples.comm[load.mask], samples.weight[load.mask], len(samples.comms))
    if not weights.any():
        return None
    best = int(np.argmax(weights))
    return samples.comms[best] if weights[best] >= OWNED * weights.sum() else None


def severity_on_core(case: Case, load: Load) -> Severity:
    """How much a load matters; one that is most of its core's kernel time matters as much as all of that."""
    alone = severity_of(case, load)
    if load.cpu is None:
        return alone
    whole = case.load_of(case.samples.in_kernel, cpus=[load.cpu])
    own = case.load_of(load.mask, cpus=[load.cpu])
    if own.cores < MOST * whole.cores:
        return alone
    return max(alone, severity_of(case, whole), key=lambda severity: severity.rank)
