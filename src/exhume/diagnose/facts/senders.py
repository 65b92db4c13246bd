"""The local process that sends the packets a core works on, by the time in its own send calls."""

from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose.evidence.builder import EvidenceBuilder
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_load
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.evidence.samples import Names
from exhume.model.finding import Culprit, Evidence, Role, process_entity


@dataclass(frozen=True, slots=True)
class Sender:
    """The process whose sending grew most; `load` is the time it spent on that."""

    comm: str
    culprit: Culprit
    load: Load
    evidence: Evidence

    def describe(self, builder: EvidenceBuilder, strength: float | str = 0.0) -> None:
        """Add the link that names the sender."""
        values = {"who": process_entity(self.comm), "peak": self.load.peak, "cpu": self.load.cpu}
        builder.add(Role.CULPRIT, "sender", self.evidence, strength=strength, at=self.load.at, values=values)


def local_sender(case: Case, functions: tuple[str, ...], least_cores: float) -> Sender | None:
    """The sender of a storm; None where no process here sends enough, or more than before.

    A process that is only interrupted by packets is not one: the call to send has to be in its stack."""
    sending = case.samples.holding(Names.of(functions))
    if not sending.any():
        return None
    comm = _risen_most(case, sending)
    load = case.load_of(sending & case.samples.of_comms([comm]))
    if load.cores < least_cores or not load.is_new:
        return None
    culprit = case.culprit(load) if load.main_owner is not None else Culprit(cpu=load.cpu, comm=comm)
    quote = replace(quote_load(case, load, functions), match=(("comm", comm),))
    return Sender(comm, culprit, load, quote)


def _risen_most(case: Case, sending: Mask) -> str:
    """The name under which sending grew the most: others may send all the time."""
    samples = case.samples
    rates = []
    for window in (case.focus, case.baseline):
        mask = sending & samples.within(window)
        weights = np.bincount(samples.comm[mask], samples.weight[mask], len(samples.comms))
        rates.append(weights / max(window.seconds, 1e-9))
    risen = rates[0] if case.baseline.empty else rates[0] - rates[1]
    return samples.comms[int(np.argmax(risen))]
