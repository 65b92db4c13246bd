"""From a window to a diagnosis: find what stands out, examine every cause, settle which explains which, and rank."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from exhume.diagnose import messages
from exhume.diagnose.baseline import SIGNIFICANT, compare
from exhume.diagnose.catalogue import catalogue, thresholds
from exhume.diagnose.causes import examiners
from exhume.diagnose.evidence.builder import Found, rule_out
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.facts.owners import with_names
from exhume.diagnose.focus import find_foci
from exhume.diagnose.symptoms import Symptom, find_symptoms
from exhume.model.clock import Window
from exhume.model.finding import (
    BlindSpot,
    Diagnosis,
    Doubt,
    EntityKind,
    Finding,
    Link,
    Role,
    RuledOut,
    Scope,
    Severity,
    Verdict,
)
from exhume.store.read.cached import CachedRecording
from exhume.store.read.recording import Recording

Progress = Callable[[float], None]


def _limit(name: str) -> float:
    return float(thresholds("engine")[name])


def diagnose(
    recording: Recording, window: Window, *, at: int | None = None, progress: Progress = lambda done: None
) -> Diagnosis:
    """The diagnosis of a window, or of what is nearest to a moment in it."""
    # The causes read the same minutes over and over.
    recording = recording if isinstance(recording, CachedRecording) else CachedRecording(recording)
    foci = find_foci(recording, window, at)
    cases = [Case(recording, focus.window, focus.baseline) for focus in foci]
    findings: dict[str, Finding] = {}
    against: dict[str, RuledOut] = {}
    symptoms: list[Symptom] = []
    for number, case in enumerate(cases):
        own = find_symptoms(case)
        symptoms += own
        found, ruled_out = examine(case, progress=lambda done, n=number: progress((n + done) / len(cases)))  # type: ignore[misc]
        for each in found:
            finding = with_symptoms(with_comparison(case, with_names(case, each.finding)), own)
            other = findings.get(finding.cause, finding)
            better = (finding.severity.rank, finding.confidence) > (other.severity.rank, other.confidence)
            findings[finding.cause] = finding if better else other
        for reason in ruled_out:
            against.setdefault(reason.cause, reason)
    # Each focus is ranked by itself; among them, the most severe come first.
    ranked = sorted(findings.values(), key=_standing)
    return Diagnosis(
        node=recording.facts.node,
        window=(window.since, window.until),
        focus=(cases[0].focus.since, cases[0].focus.until),
        verdict=_verdict(cases, ranked, symptoms),
        findings=ranked,
        ruled_out=[reason for cause, reason in against.items() if cause not in findings],
        blind_spots=blind_spots(recording, cases),
        baseline=(cases[0].baseline.since, cases[0].baseline.until),
        symptoms=[symptom.link for symptom in symptoms],
    )


def examine(case: Case, progress: Progress = lambda done: None) -> tuple[list[Found], list[RuledOut]]:
    """Examine every cause in one case, those for what is left after the others are settled; the findings are ranked."""
    case.explained = np.zeros(len(case.samples), np.bool_)
    found: list[Found] = []
    ruled_out: list[RuledOut] = []
    done = 0
    for last in (False, True):
        for cause, look in examiners().items():
            if catalogue()[cause].last is not last:
                continue
            answer = look(case)
            if isinstance(answer, RuledOut):
                ruled_out.append(answer)
            elif answer.finding.confidence < _limit("least_confidence"):
                ruled_out.append(rule_out(cause, "low-confidence", confidence=answer.finding.confidence))
            else:
                found.append(answer)
            done += 1
            progress(done / len(examiners()))
        found, effects = settle(found)
        ruled_out += effects
        for each in found:
            # What is known to be harmless is no unknown path either.
            if each.finding.severity is not Severity.INFO or each.finding.confidence >= _limit("well_known"):
                case.explained |= each.mask
        case.found = tuple(each.finding.cause for each in found)
    return sorted(found, key=_rank), ruled_out


def settle(found: list[Found]) -> tuple[list[Found], list[RuledOut]]:
    """Drop the findings that are only an effect of another one."""
    by_cause = {each.finding.cause: each for each in found}
    kept, dropped = [], []
    for each in found:
        yields_to = catalogue()[each.finding.cause].yields_to
        better = [by_cause[name] for name in yields_to if name in by_cause]
        winner = next((other for other in better if _explains(other, each)), None)
        if winner is None:
            kept.append(each)
        else:
            values = {"by": winner.finding.cause, "summary": winner.finding.summary}
            dropped.append(rule_out(each.finding.cause, "explained", **values))
    return kept, dropped


def _explains(better: Found, lesser: Found) -> bool:
    """Whether the better finding accounts for the lesser one. One that isn't about samples is explained by any that is
    as severe and names the same process, container or cgroup."""
    if better.finding.severity.rank < lesser.finding.severity.rank:
        return False
    if not better.mask.any() and not better.weight:
        # What costs nothing now causes nothing now.
        return False
    if not lesser.mask.any() or not better.mask.any():
        return better.finding.confidence >= lesser.finding.confidence and _names_same(better.finding, lesser.finding)
    # The part of the lesser one's samples that are also the better one's.
    same = float((better.mask & lesser.mask).sum()) / max(1, int(lesser.mask.sum()))
    least = _limit("same_process_time")
    return same >= _limit("same_time") or (same >= least and _names_same(better.finding, lesser.finding))


def _names_same(better: Finding, lesser: Finding) -> bool:
    """Whether the better finding names the culprit of the lesser one; True where that one names none."""
    whom = lesser.culprit
    names = (
        (whom.comm, (EntityKind.PROCESS, EntityKind.CONTAINER, EntityKind.UNIT)),
        (whom.container, (EntityKind.CONTAINER,)),
        (whom.cgroup, (EntityKind.CGROUP,)),
    )
    known = [(name, kinds) for name, kinds in names if name]
    return not known or any(better.names(name, *kinds) for name, kinds in known)


def _rank(each: Found) -> tuple[float, ...]:
    finding = each.finding
    weight = min(1.0, _limit("least_weight") + each.weight / _limit("full_weight"))
    return (*_standing(finding), -finding.confidence * weight, -finding.confidence)


def _standing(finding: Finding) -> tuple[float, ...]:
    """The more severe comes first; what only one workload feels after what the node does."""
    return (-finding.severity.rank, float(finding.scope is Scope.WORKLOAD))


def with_symptoms(finding: Finding, symptoms: list[Symptom]) -> Finding:
    """The finding with the symptoms at the head of its chain: those of its own core where it is about one. A finding
    that is only worth knowing caused none of them, nor did one that no other work feels."""
    if finding.severity is Severity.INFO or finding.scope is Scope.WORKLOAD:
        return finding
    cpu = finding.culprit.cpu
    near = [each for each in symptoms if cpu is None or each.cpu is None or each.cpu == cpu]
    own = [link for link in finding.chain if link.role == "symptom"]
    links: list[Link] = [*[each.link for each in near[: max(0, int(_limit("most_symptoms")) - len(own))]], *own]
    return replace(finding, chain=(*links, *[link for link in finding.chain if link.role != "symptom"]))


def with_comparison(case: Case, finding: Finding) -> Finding:
    """The finding with its function compared with the time before, the other cores and the hour before."""
    function, cpu = finding.culprit.function, finding.culprit.cpu
    if function is None or cpu is None or not case.has_stacks:
        return finding
    comparison = compare(case, function, cpu)
    if not comparison.now.samples:
        return finding
    earlier = comparison.hour_earlier
    if earlier is not None and comparison.significance_of(earlier) < SIGNIFICANT:
        code = "shared.usual"
        confidence = round(_limit("usual_factor") * finding.confidence, 2)
        doubts = (*finding.doubts, Doubt(code, messages.render(code, {})))
        finding = replace(finding, confidence=confidence, doubts=doubts)
    code = "shared.comparison"
    text = messages.render(code, comparison.values)
    link = Link(Role.MECHANISM, case.focus.since, text, comparison.evidence, code)
    last = max((i for i, each in enumerate(finding.chain) if each.role == Role.MECHANISM), default=-1)
    return replace(finding, chain=(*finding.chain[: last + 1], link, *finding.chain[last + 1 :]))


def _verdict(cases: list[Case], findings: list[Finding], symptoms: list[Symptom]) -> Verdict:
    if not any(len(case.now("cpu")) for case in cases):
        return Verdict.UNKNOWN
    severities = {finding.severity for finding in findings if finding.scope is Scope.NODE} | {
        symptom.severity for symptom in symptoms if symptom.kind in ("log", "ksoftirqd")
    }
    # A core in the kernel is severe by itself, unless a finding says what it does: then that one's severity counts.
    known = {finding.culprit.cpu for finding in findings}
    severities |= {each.severity for each in symptoms if each.kind == "hot-core" and each.cpu not in known}
    if Severity.CRITICAL in severities:
        return Verdict.STARVED
    return Verdict.DEGRADED if Severity.WARNING in severities else Verdict.HEALTHY


def blind_spots(recording: Recording, cases: list[Case]) -> list[BlindSpot]:
    """What could not be seen in these times."""
    spots = [_blind_spot("source", source=source) for source in recording.facts.sources_missing]
    for case in cases:
        if not case.has_stacks:
            spots.append(_blind_spot("stacks"))
        if case.baseline.empty:
            spots.append(_blind_spot("baseline"))
        missing = sum(gap.seconds for gap in recording.gaps(case.focus))
        if missing:
            spots.append(_blind_spot("gap", missing=missing, seconds=case.focus.seconds))
        for loss in recording.losses(case.focus):
            values = {"source": loss.source, "count": loss.count, "kind": loss.kind, "cpu": loss.cpu, "text": loss.text}
            spots.append(_blind_spot("loss", **values))
    spots += [_blind_spot("unread", path=each.path, reason=each.reason) for each in recording.skipped]
    return list(dict.fromkeys(spots))


def _blind_spot(key: str, **values: object) -> BlindSpot:
    code = f"blind-spot.{key}"
    return BlindSpot(code, messages.render(code, values))
