"""Which local process sends the packets that a core works on: by what it spends in its own calls to send."""

from dataclasses import dataclass

from exhume.diagnose.case import Case
from exhume.diagnose.evidence import of_load
from exhume.diagnose.hot_path import OWNED, owner_name
from exhume.diagnose.load import Load
from exhume.diagnose.sampled import Names
from exhume.model.finding import Culprit, Evidence


@dataclass(frozen=True, slots=True)
class Sender:
    """Whoever sends most, and how much time that is: `load` holds all senders."""

    comm: str
    culprit: Culprit
    load: Load
    evidence: Evidence

    @property
    def text(self) -> str:
        return (
            f"{self.comm} sends on this node: it spent up to {self.load.peak:.0%} of core {self.load.cpu} in doing so"
        )


def local_sender(case: Case, functions: tuple[str, ...], least_cores: float) -> Sender | None:
    """The sender of a storm; None where nobody here sends enough to be one, or nobody does more of it than before.

    A process that is only interrupted by packets is not one: the call to send has to be in its stack."""
    load = case.load(Names.of(functions))
    if load.cores < least_cores or not load.is_new:
        return None
    comm = owner_name(case, load)
    if comm is None:
        return None
    owner = load.owner
    culprit = case.culprit(load) if owner is not None and owner.part >= OWNED else Culprit(cpu=load.cpu, comm=comm)
    return Sender(comm, culprit, load, of_load(case, load, functions))
