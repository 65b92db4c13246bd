"""From a window to a diagnosis: find what stands out, examine every cause, settle which explains which, and rank."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from exhume.diagnose import messages
from exhume.diagnose.baseline import SIGNIFICANT, compare
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import Examine, examiners
from exhume.diagnose.evidence.builder import Found, rule_out
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Mask
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
    Severity,
    Verdict,
)
from exhume.store.read.cached import CachedRecording
from exhume.store.read.recording import Recording

# A finding below this is not reported: it would be a guess.
LEAST_CONFIDENCE = 0.3
# From here on a finding that is only worth knowing accounts for its samples like a more severe one.
WELL_KNOWN = 0.5
# Findings that share this part of their samples have the same cause; less is enough where they also name the same
# process.
SAME_TIME = 0.5
SAME_PROCESS_TIME = 0.2
MOST_SYMPTOMS = 4
# What is left of the confidence in something that was the same an hour before.
USUAL_FACTOR = 0.9

Progress = Callable[[float], None]


def diagnose(
    recording: Recording, window: Window, *, at: int | None = None, progress: Progress = lambda done: None
) -> Diagnosis:
    """The diagnosis of a window, or of what is nearest to a moment in it."""
    # The causes read the same minutes over and over.
    recording = recording if isinstance(recording, CachedRecording) else CachedRecording(recording)
    foci = find_foci(recording, window, at)
    cases = [Case.of(recording, focus) for focus in foci]
    findings: dict[str, Finding] = {}
    against: dict[str, RuledOut] = {}
    symptoms: list[Symptom] = []
    for number, case in enumerate(cases):
        own = find_symptoms(case)
        symptoms += own
        found, ruled_out = examine(case, progress=lambda done, n=number: progress((n + done) / len(cases)))  # type: ignore[misc]
        for each in found:
            finding = with_symptoms(with_comparison(case, with_names(case, each.finding)), own)
            if finding.cause not in findings or _better(finding, findings[finding.cause]):
                findings[finding.cause] = finding
        for reason in ruled_out:
            against.setdefault(reason.cause, reason)
    # Each focus is ranked by itself; among them, the most severe come first.
    ranked = sorted(findings.values(), key=lambda finding: -finding.severity.rank)
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
    """Examine every cause in one case; the findings are ranked."""
    case.explained = np.zeros(len(case.samples), np.bool_)
    first = {cause: look for cause, look in examiners().items() if not catalogue()[cause].last}
    last = {cause: look for cause, look in examiners().items() if catalogue()[cause].last}
    total = len(first) + len(last)
    found: list[Found] = []
    ruled_out: list[RuledOut] = []
    _examine_all(first, case, found, ruled_out, lambda n: progress(n / total))
    found, settled = settle(found)
    ruled_out += settled
    for each in found:
        # What is known to be harmless is no unknown path either.
        if each.finding.severity is not Severity.INFO or each.finding.confidence >= WELL_KNOWN:
            case.explained |= each.mask
    case.found = tuple(each.finding.cause for each in found)
    _examine_all(last, case, found, ruled_out, lambda n: progress((len(first) + n) / total))
    found, settled = settle(found)
    ruled_out += settled
    return sorted(found, key=_rank), ruled_out


def _examine_all(
    causes: Mapping[str, Examine],
    case: Case,
    found: list[Found],
    ruled_out: list[RuledOut],
    step: Callable[[int], None],
) -> None:
    for number, look in enumerate(causes.values()):
        answer = look(case)
        if isinstance(answer, RuledOut):
            ruled_out.append(answer)
        elif answer.finding.confidence < LEAST_CONFIDENCE:
            finding = answer.finding
            ruled_out.append(rule_out(finding.cause, "low-confidence", confidence=finding.confidence))
        else:
            found.append(answer)
        step(number + 1)


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
    same = overlap(better.mask, lesser.mask)
    return same >= SAME_TIME or (same >= SAME_PROCESS_TIME and _names_same(better.finding, lesser.finding))


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


def overlap(one: Mask, other: Mask) -> float:
    """The part of the other's samples that are also the one's."""
    return float((one & other).sum()) / max(1, int(other.sum()))


def _rank(each: Found) -> tuple[float, ...]:
    finding = each.finding
    return (-finding.severity.rank, -finding.confidence * min(1.0, 0.3 + each.weight / 10), -finding.confidence)


def _better(one: Finding, other: Finding) -> bool:
    return (one.severity.rank, one.confidence) > (other.severity.rank, other.confidence)


def with_symptoms(finding: Finding, symptoms: list[Symptom]) -> Finding:
    """The finding with the symptoms at the head of its chain: those of its own core where it is about one. A finding
    that is only worth knowing caused none of them."""
    if finding.severity is Severity.INFO:
        return finding
    cpu = finding.culprit.cpu
    near = [each for each in symptoms if cpu is None or each.cpu is None or each.cpu == cpu]
    own = [link for link in finding.chain if link.role == "symptom"]
    links: list[Link] = [*[each.link for each in near[: max(0, MOST_SYMPTOMS - len(own))]], *own]
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
        confidence = round(USUAL_FACTOR * finding.confidence, 2)
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
    severities = {finding.severity for finding in findings} | {
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
