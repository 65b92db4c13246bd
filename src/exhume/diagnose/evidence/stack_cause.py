"""Stack signatures: the shape that most causes share, and the load of a signature.

`StackCause`: a signature holds a core, a process owns that time, and it is new. A subclass adds what is special about
its cause. The catalogue entry has the thresholds: from `core_share` on a core counts as held, `least_seconds` of that
are needed to report the cause, and `seconds` to report it above info; the weights are `held` and `brief`.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose.catalogue import Cause
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case, CoreHold
from exhume.diagnose.evidence.load import OWNED, Load, seconds_by_core
from exhume.diagnose.evidence.quotes import present_functions, quote_share
from exhume.diagnose.evidence.samples import Names
from exhume.diagnose.symptoms import has_symptom
from exhume.model.finding import Culprit, Entity, Evidence, Role, RuledOut, Severity, process_entity

Answer = Found | RuledOut
# A core is named if it has at least this fraction of a second's total.
_ONE_CORE = 0.7


class StackCause:
    """A cause with a signature in stacks."""

    def __init__(self, cause: Cause) -> None:
        self.cause = cause

    def examine(self, builder: EvidenceBuilder, case: Case) -> Answer:
        early = self.precheck(builder, case)
        if early is not None:
            return early
        load = case.load(self.cause.names)
        hold = case.hold(load, self.cause.limit("core_share"))
        if not self.is_present(case, hold):
            return builder.rule_out("share", peak=load.peak)
        return self.conclude(builder, case, load, hold)

    def conclude(self, builder: EvidenceBuilder, case: Case, load: Load, hold: CoreHold) -> Found:
        """Build the finding: the mechanism, what is special about this cause, and the owner of the load."""
        functions = present_functions(case, self.cause.names)
        if load.samples:
            strength = "held" if hold.seconds >= self.cause.limit("seconds") else "brief"
            builder.add(Role.MECHANISM, "load", quote_share(case, load, functions), strength=strength, load=load)
        values = self.collect(builder, case, load)
        culprit, owner = case.culprit(load, self.function(case, load)), load.main_owner
        if owner is not None:
            quote, parts = (
                quote_share(case, load, functions, owner.pid),
                {"part": hold.owner_part, "of_all": owner.part},
            )
            builder.add(Role.CULPRIT, "owner", quote, at=load.at, who=culprit.process, values=parts)
        severity, target = self.severity(case, load, hold), target_of(culprit)
        values = {"who": culprit.process, **values}
        return builder.found(severity, "summary", culprit=culprit, load=load, target=target, values=values)

    def precheck(self, builder: EvidenceBuilder, case: Case) -> Answer | None:
        """An answer that needs no stacks; None if the stacks have to decide."""
        return None

    def is_present(self, case: Case, hold: CoreHold) -> bool:
        """Whether there is enough of it to report."""
        return hold.seconds >= self.cause.limit("least_seconds")

    def collect(self, builder: EvidenceBuilder, case: Case, load: Load) -> dict[str, object]:
        """Add the links that are special to this cause; return additional values for the summary."""
        return {}

    def function(self, case: Case, load: Load) -> str | None:
        """The function to name with the culprit."""
        return case.samples.nearest(load.mask, self.cause.names)

    def taken_seconds(self, case: Case, load: Load) -> float:
        """Seconds in which the load took a whole core."""
        return case.hold(load).seconds

    def severity(self, case: Case, load: Load, hold: CoreHold) -> Severity:
        seconds, symptom = self.cause.limit("seconds"), has_symptom(case, load.cpu, load.mask)
        if hold.seconds < seconds or not (load.is_new or symptom):
            return Severity.INFO
        taken = load.is_new and symptom and self.taken_seconds(case, load) >= seconds
        return Severity.CRITICAL if taken else Severity.WARNING


def target_of(culprit: Culprit) -> str:
    """The target of a command that takes a pid, also if the process is in a container."""
    return str(culprit.pid) if culprit.pid is not None else "PID"


@dataclass(frozen=True, slots=True)
class HotPath:
    """A signature found in stacks: its load, the function with most of its time, and the evidence to quote. `process`
    is the name with most of the load, however many processes have that name."""

    load: Load
    function: str
    process: Entity | None
    evidence: Evidence
    culprit: Culprit

    def describe(self, builder: EvidenceBuilder, strength: float) -> None:
        """Add the mechanism: who spent how much of a core in which function. No core is named if several share the
        load."""
        load = self.load
        values = {"who": self.process, "function": self.function}
        cpu = load.cpu if load.peak >= _ONE_CORE * load.together else None
        builder.add(Role.MECHANISM, "hot-path", self.evidence, strength=strength, load=load, cpu=cpu, values=values)


def hot_path(
    case: Case, functions: tuple[str, ...], *, cpus: Collection[int] | None = None, share: float | None = None
) -> HotPath | None:
    """Look for the signature in the focus, on the given cores or, with `share`, on its hot cores; None if no stack has
    it."""
    names, samples = Names.of(functions), case.samples
    load = case.load(names, cpus=cpus) if share is None else on_hot_cores(case, functions, share)
    if not load.samples:
        return None
    function = samples.nearest(load.mask, names) or functions[0]
    weights = np.bincount(samples.comm[load.mask], samples.weight[load.mask], len(samples.comms))
    best = int(np.argmax(weights))
    comm = samples.comms[best] if weights[best] >= OWNED * weights.sum() else None
    culprit = case.culprit(load, function)
    culprit = replace(culprit, comm=culprit.comm or comm)
    process = None if comm is None else process_entity(comm)
    return HotPath(load, function, process, quote_share(case, load, functions), culprit)


def on_hot_cores(case: Case, functions: tuple[str, ...], share: float) -> Load:
    """The load of a signature on the cores where it took at least this share of a second, or on all cores if there are
    none. What every core of a large node does a little of (packets, rules, tracking) would otherwise hide what one core
    does."""
    names = Names.of(functions)
    load = case.load(names)
    if load.cpu is None or load.peak < share:
        return load
    hot = (seconds_by_core(case.samples, load.mask, case.focus) >= share).any(axis=1)
    return case.load(names, cpus={load.cpu, *np.flatnonzero(hot).tolist()})
