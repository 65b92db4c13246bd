"""The shape that most causes share: a signature in stacks holds a core, a process owns that time, and it is new.

A subclass names its catalogue entry and adds what is special about it; messages, functions and thresholds come from the
catalogue: `core_share` of a core counts as held, `least_seconds` of that rule the cause in, and `seconds` make it more
than worth knowing. The weights are `held` and `brief`.
"""

from exhume.diagnose.catalogue import Cause
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.core_hold import CoreHold, core_hold
from exhume.diagnose.evidence.impact import has_symptom
from exhume.diagnose.evidence.load import CORE_TAKEN, Load
from exhume.diagnose.evidence.quotes import present_functions, quote_share
from exhume.diagnose.evidence.samples import Names
from exhume.model.finding import Culprit, Role, RuledOut, Severity

Answer = Found | RuledOut


class StackCause:
    """A cause with a signature in stacks."""

    def __init__(self, cause: Cause) -> None:
        self.cause = cause

    def examine(self, builder: EvidenceBuilder, case: Case) -> Answer:
        early = self.precheck(builder, case)
        if early is not None:
            return early
        load = case.load(self.cause.names)
        hold = core_hold(case, load, self.cause.limit("core_share"))
        if not self.is_present(builder, case, hold):
            return builder.rule_out("share", peak=load.peak)
        functions = present_functions(case, self.cause.names)
        if load.samples:
            held = hold.seconds >= self.cause.limit("seconds")
            describe_load(builder, load, functions, strength="held" if held else "brief")
        values = self.collect(builder, case, load)
        culprit = case.culprit(load, case.samples.nearest(load.mask, self.named_functions) if load.samples else None)
        if culprit.pid is not None:
            quote = quote_share(case, load, functions, culprit.pid)
            part = hold.owner_part
            builder.add(Role.CULPRIT, "owner", quote, at=load.at, who=culprit.process, part=part)
        return builder.found(
            self.severity(case, load, hold),
            "summary",
            culprit=culprit,
            load=load,
            remedies=aim(self.cause.remedies, target_of(culprit)),
            who=culprit.process,
            peak=load.peak,
            cpu=load.cpu,
            cores=load.cores,
            values=values,
        )

    @property
    def named_functions(self) -> Names:
        """The functions of which the nearest to the leaf is named."""
        return self.cause.names

    def precheck(self, builder: EvidenceBuilder, case: Case) -> Answer | None:
        """An answer without looking at stacks; None where those decide."""
        return None

    def is_present(self, builder: EvidenceBuilder, case: Case, hold: CoreHold) -> bool:
        """Whether there is enough of it to report."""
        return hold.seconds >= self.cause.limit("least_seconds")

    def collect(self, builder: EvidenceBuilder, case: Case, load: Load) -> dict[str, object]:
        """Add the links that are special about this cause; returns more values for the summary."""
        return {}

    def taken_seconds(self, case: Case, load: Load) -> float:
        """Seconds in which it took a whole core."""
        return core_hold(case, load, CORE_TAKEN).seconds

    def severity(self, case: Case, load: Load, hold: CoreHold) -> Severity:
        seconds, symptom = self.cause.limit("seconds"), has_symptom(case, load.cpu)
        if hold.seconds < seconds or not (load.is_new or symptom):
            return Severity.INFO
        taken = load.is_new and symptom and self.taken_seconds(case, load) >= seconds
        return Severity.CRITICAL if taken else Severity.WARNING


def describe_load(builder: EvidenceBuilder, load: Load, functions: tuple[str, ...], strength: float | str) -> None:
    """Add the mechanism: how much of which core a signature took, now and before."""
    builder.add(
        Role.MECHANISM,
        "load",
        quote_share(builder.case, load, functions),
        strength=strength,
        at=load.at,
        peak=load.peak,
        cpu=load.cpu,
        cores=load.cores,
        before=load.before,
    )


def target_of(culprit: Culprit) -> str:
    """What a remedy for a process acts on: its container, the process, or the name that many processes share."""
    return culprit.container or (str(culprit.pid) if culprit.pid is not None else culprit.comm or "PID")
