"""Build a finding from weighted evidence, or rule its cause out.

A weight says how strongly one kind of evidence supports the cause (0 to 1). Weights combine like independent witnesses:
the remaining doubt is the product of the doubts that each leaves. Evidence that was not available leaves its doubt in
place, and is reported.
"""

from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from exhume.diagnose import messages
from exhume.diagnose.catalogue import Cause, thresholds
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.rows import Mask
from exhume.model.finding import (
    Culprit,
    Doubt,
    Entity,
    Evidence,
    Finding,
    Forecast,
    Link,
    Place,
    Remedy,
    Role,
    RuledOut,
    Scope,
    Severity,
)

UNKNOWN_TARGET = "TARGET"
_NO_CULPRIT = Culprit()
_NO_VALUES: messages.Values = MappingProxyType({})


@dataclass(frozen=True)
class Found:
    """A finding, the samples it accounts for, and its share of the node's trouble: core-seconds, or an equivalent for
    what is not sampled. `risen`: cores' worth of CPU time above the baseline."""

    finding: Finding
    mask: Mask
    weight: float
    risen: float = 0.0


class EvidenceBuilder:
    """Collects links, weights and doubts for one cause."""

    def __init__(self, case: Case, cause: Cause) -> None:
        self.case, self.cause = case, cause
        self._doubt = 1.0
        self._links: list[Link] = []
        self._doubts: list[Doubt] = []
        self._used_stacks = False

    def add(
        self,
        role: Role,
        key: str,
        *evidence: Evidence | None,
        strength: float | str = 0.0,
        load: Load | None = None,
        at: int | None = None,
        values: messages.Values = _NO_VALUES,
        **more: object,
    ) -> None:
        """Add a link of the chain: the message `key` of this cause, or the shared message, with its values and those of
        the load that it is about. `strength` says how far it supports this cause rather than another: a number, or the
        name of a threshold (0: not at all)."""
        values = {**(load.values if load is not None else {}), **values, **more}
        quotes = tuple(each for each in evidence if each is not None)
        if at is None:
            at = load.at if load is not None else quotes[0].since if quotes else self.case.focus.since
        code = messages.code_of(self.cause.id, key)
        self._links.append(
            Link(role, at, messages.render(code, values), quotes, code, messages.entities_in(values.values()))
        )
        self.support(strength)
        self._used_stacks = self._used_stacks or any(each.table == "samples" for each in quotes)

    def support(self, strength: float | str) -> None:
        """Add a weight without a link of its own."""
        self._doubt *= 1.0 - min(max(self._limit(strength), 0.0), 1.0)

    def doubt(self, key: str, factor: float | str | None = None, **values: object) -> None:
        """Lower the confidence by a factor (a number, or the name of a threshold), and report why."""
        kept = thresholds("evidence")["doubt_factor"] if factor is None else self._limit(factor)
        self._doubt = 1.0 - (1.0 - self._doubt) * kept
        code = messages.code_of(self.cause.id, key)
        self._doubts.append(Doubt(code, messages.render(code, values)))

    def _limit(self, value: float | str) -> float:
        return self.cause.limit(value) if isinstance(value, str) else value

    @property
    def confidence(self) -> float:
        return round(min(float(thresholds("evidence")["most_confidence"]), 1.0 - self._doubt), 2)

    def rule_out(self, key: str, **values: object) -> RuledOut:
        return rule_out(self.cause.id, key, **values)

    def found(
        self,
        severity: Severity,
        key: str,
        *,
        culprit: Culprit = _NO_CULPRIT,
        load: Load | None = None,
        weight: float | None = None,
        target: str | None = None,
        remedies: tuple[Remedy, ...] | None = None,
        scope: Scope = Scope.NODE,
        forecast: Forecast | None = None,
        values: messages.Values = _NO_VALUES,
        **more: object,
    ) -> Found:
        """Conclude with the message `key` as the summary. `load` is the CPU time that the finding accounts for;
        `weight` replaces its seconds if they are not the right measure. The remedies are those of the catalogue, aimed
        at `target`, unless `remedies` replaces them."""
        values = {**(load.values if load is not None else {}), **values, **more}
        if not self.case.has_stacks and self.cause.functions:
            self.doubt("no-stacks", thresholds("evidence")["no_stacks_factor"])
        if self.case.baseline.empty and self._used_stacks:
            self.doubt("no-baseline")
        if remedies is None:
            remedies = untargeted(self.cause.remedies) if target is None else aim(self.cause.remedies, target)
        named: list[Entity] = list(messages.entities_in(values.values()))
        named += [entity for link in self._links for entity in link.entities]
        # The engine adds the pod later, with its name.
        named += replace(culprit, pod=None).entities
        finding = Finding(
            cause=self.cause.id,
            title=self.cause.title,
            severity=severity,
            confidence=self.confidence,
            summary=messages.render(messages.code_of(self.cause.id, key), values),
            chain=tuple(sorted(self._links, key=lambda link: list(Role).index(link.role))),
            culprit=culprit,
            remedies=remedies,
            doubts=tuple(self._doubts),
            entities=tuple(dict.fromkeys(named)),
            scope=scope,
            forecast=forecast,
        )
        mask = load.mask if load is not None else np.zeros(len(self.case.samples), np.bool_)
        if weight is None:
            weight = 0.0 if load is None else load.cores * self.case.focus.seconds
        return Found(finding, mask, weight, 0.0 if load is None else load.risen)


def rule_out(cause: str, key: str, **values: object) -> RuledOut:
    """Rule a cause out with the message `key`; programs can still read the values."""
    code = messages.code_of(cause, key)
    plain = tuple((name, each if isinstance(each, int | float | None) else str(each)) for name, each in values.items())
    return RuledOut(cause, code, messages.render(code, values), plain)


def untargeted(remedies: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """The remedies for a finding without a target: fixes that need one and commands for a pod are left out, other
    commands get a placeholder."""
    fitting = [
        each
        for each in remedies
        if not (each.names_target and each.fix_target is not None) and each.place is not Place.CLUSTER
    ]
    return tuple(aim((each,), UNKNOWN_TARGET)[0] if each.names_target else each for each in fitting)


def aim(remedies: tuple[Remedy, ...], target: str) -> tuple[Remedy, ...]:
    """The catalogue's remedies with the target filled in."""
    return tuple(
        replace(each, target=target, text=messages.fill(f"remedy.{each.id}", each.text, {"target": target}))
        for each in remedies
    )
