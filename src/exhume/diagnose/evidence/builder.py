"""The builder on which a cause is judged: strands of evidence, each with its weight, become a finding or rule it out.

A strand says how strongly one kind of evidence speaks for the cause (0 to 1). Independent strands add up the way
independent witnesses do: what is left of the doubt is the product of what each leaves. Evidence that could not be
looked at leaves doubt, and is said.
"""

import shlex
from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose.catalogue import Cause
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.rows import Mask
from exhume.model.finding import Culprit, Evidence, Finding, Link, Remedy, Role, RuledOut, Severity

MOST_CONFIDENCE = 0.97
WITHOUT_STACKS = 0.7
WITHOUT_BASELINE = 0.9


@dataclass(frozen=True)
class Found:
    """A finding, with the samples that it accounts for and how much of the node's trouble that is: seconds of a core
    taken, or an equivalent for what isn't sampled."""

    finding: Finding
    mask: Mask
    weight: float


class EvidenceBuilder:
    """Collects links and strands for one cause."""

    def __init__(self, case: Case, cause: Cause) -> None:
        self.case = case
        self.cause = cause
        self._doubt = 1.0
        self._links: list[Link] = []
        self._unsure: list[str] = []
        self._used_stacks = False

    def add(self, role: Role, text: str, *evidence: Evidence, strength: float = 0.0, at: int | None = None) -> None:
        """A link of the chain. `strength`: how far it speaks for this cause rather than another (0: it only tells)."""
        moment = at if at is not None else (evidence[0].since if evidence else self.case.focus.since)
        self._links.append(Link(role, moment, text, evidence))
        self.support(strength)
        self._used_stacks = self._used_stacks or any(each.table == "samples" for each in evidence)

    def support(self, strength: float) -> None:
        """Evidence that is told elsewhere."""
        self._doubt *= 1.0 - min(max(strength, 0.0), 1.0)

    def doubt(self, why: str, factor: float = 0.9) -> None:
        """Something that speaks against it, or could not be looked at: lowers the confidence, and is said."""
        self._doubt = 1.0 - (1.0 - self._doubt) * factor
        self._unsure.append(why)

    @property
    def confidence(self) -> float:
        return round(min(MOST_CONFIDENCE, 1.0 - self._doubt), 2)

    def rule_out(self, why: str) -> RuledOut:
        return RuledOut(self.cause.id, why)

    def found(
        self,
        severity: Severity,
        summary: str,
        *,
        culprit: Culprit | None = None,
        load: Load | None = None,
        weight: float | None = None,
        remedies: tuple[Remedy, ...] | None = None,
    ) -> Found:
        """Conclude. `load` is the CPU time that it accounts for; `weight` replaces its seconds where that isn't the
        measure; `remedies` replaces those of the table, with targets filled in."""
        if not self.case.has_stacks and self.cause.functions:
            self.doubt("no stacks were sampled in this time: the functions are not known", WITHOUT_STACKS)
        if self.case.baseline.empty and self._used_stacks:
            self.doubt("there is no calm time to compare with in this recording", WITHOUT_BASELINE)
        finding = Finding(
            cause=self.cause.id,
            title=self.cause.title,
            severity=severity,
            confidence=self.confidence,
            summary=summary,
            chain=tuple(sorted(self._links, key=lambda link: list(Role).index(link.role))),
            culprit=culprit or Culprit(),
            remedies=self.cause.remedies if remedies is None else remedies,
            why_not_sure=tuple(self._unsure),
        )
        mask = load.mask if load is not None else np.zeros(len(self.case.samples), np.bool_)
        if weight is None:
            weight = 0.0 if load is None else load.cores * self.case.focus.seconds
        return Found(finding, mask, weight)


def aim(remedies: tuple[Remedy, ...], target: str) -> tuple[Remedy, ...]:
    """The remedies of the table, with their target; `{target}` in their words stands for it."""
    return tuple(
        replace(
            each,
            target=target,
            text=each.text.replace("{target}", target),
            # Whoever pastes it into a shell must not run what somebody put into a name.
            command=each.command.replace("{target}", shlex.quote(target)),
        )
        for each in remedies
    )
