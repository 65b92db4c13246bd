"""Which local process sends the packets that a core works on: by what it spends in its own calls to send."""

from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.hot_path import OWNED
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_load
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.evidence.samples import Names
from exhume.model.finding import Culprit, Evidence


@dataclass(frozen=True, slots=True)
class Sender:
    """Whoever sends most, and how much time that is: `load` is its own."""

    comm: str
    culprit: Culprit
    load: Load
    evidence: Evidence

    @property
    def text(self) -> str:
        share = f"{self.load.peak:.0%} of core {self.load.cpu}"
        return f"{self.comm} sends packets on this node: it spent up to {share} in doing so"


def local_sender(case: Case, functions: tuple[str, ...], least_cores: float) -> Sender | None:
    """The sender of a storm; None where nobody here sends enough to be one, or nobody does more of it than before.

    A process that is only interrupted by packets is not one: the call to send has to be in its stack."""
    sending = case.samples.holding(Names.of(functions))
    if not sending.any():
        return None
    comm = _risen_most(case, sending)
    load = case.load_of(sending & case.samples.of_comms([comm]))
    if load.cores < least_cores or not load.is_new:
        return None
    owner = load.owner
    culprit = case.culprit(load) if owner is not None and owner.part >= OWNED else Culprit(cpu=load.cpu, comm=comm)
    told = replace(quote_load(case, load, functions), match=(("comm", comm),))
    return Sender(comm, culprit, load, told)


def _risen_most(case: Case, sending: Mask) -> str:
    """The name under which sending grew the most: others may send all the time."""
    sampled = case.samples
    rates = []
    for window in (case.focus, case.baseline):
        mask = sending & sampled.within(window)
        weights = np.bincount(sampled.comm[mask], sampled.weight[mask], len(sampled.comms))
        rates.append(weights / max(window.seconds, 1e-9))
    risen = rates[0] if case.baseline.empty else rates[0] - rates[1]
    return sampled.comms[int(np.argmax(risen))]
