"""Diagnose a window: find the foci, examine every cause, drop findings that others explain, and rank the rest."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose import messages
from exhume.diagnose.accounting import OVERCOMMIT, Ledger
from exhume.diagnose.baseline import SIGNIFICANT, compare
from exhume.diagnose.catalogue import catalogue, thresholds
from exhume.diagnose.causes import examiners
from exhume.diagnose.evidence.builder import Found, rule_out
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import CORE_TAKEN
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.facts.changes import with_changes
from exhume.diagnose.facts.core_hogs import waits_of_cores
from exhume.diagnose.facts.owners import with_names
from exhume.diagnose.failures import explained_failures
from exhume.diagnose.focus import find_foci
from exhume.diagnose.symptoms import Symptom, find_symptoms, is_made_by
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
UNKNOWN_PATH = "unknown-kernel-path"
# The code of the doubt that something was much the same before.
NOT_NEW = "shared.not-new"


def _limit(name: str) -> float:
    return float(thresholds("engine")[name])


def diagnose(
    recording: Recording, window: Window, *, at: int | None = None, progress: Progress = lambda done: None
) -> Diagnosis:
    """Diagnose a window or, with `at`, the focus nearest to that moment."""
    # The causes read the same few minutes many times.
    recording = recording if isinstance(recording, CachedRecording) else CachedRecording(recording)
    whole = window if at is None else None
    cases = [Case(recording, focus.window, focus.baseline, window=whole) for focus in find_foci(recording, window, at)]
    judged = [
        judge(case, progress=lambda done, n=number: progress((n + done) / len(cases)))  # type: ignore[misc]
        for number, case in enumerate(cases)
    ]
    best: dict[str, tuple[Judged, Found]] = {}
    for one in judged:
        for each in one.found:
            other = best.get(each.finding.cause)
            if other is None or _certainty(each.finding) > _certainty(other[1].finding):
                best[each.finding.cause] = one, each
    against: dict[str, RuledOut] = {}
    known = _known_elsewhere([each.finding for _, each in best.values()])
    if known is not None:
        against[UNKNOWN_PATH] = rule_out(UNKNOWN_PATH, "explained", by=known.cause, summary=known.summary)
        del best[UNKNOWN_PATH]
    most = max((_effect(one, each) for one, each in best.values()), default=0.0)
    harmed = any(_harms_node(each) for _, each in best.values())
    ranked = sorted(best.values(), key=lambda pair: _rank(pair[0], pair[1], most, harmed=harmed))
    ranked = overcommit_after_causes(ranked)
    symptoms = [symptom for one in judged for symptom in one.symptoms]
    findings: list[Finding] = []
    for one, each in ranked:
        findings.append(_complete(one, each, findings))
    # The accounting shown in the headline is that of the focus of the headline finding.
    head = ranked[0][0] if ranked and ranked[0][1].finding.severity is not Severity.INFO else judged[0]
    for reason in (each for one in judged for each in one.ruled_out):
        against.setdefault(reason.cause, reason)
    return Diagnosis(
        node=recording.facts.node,
        window=(window.since, window.until),
        focus=(head.case.focus.since, head.case.focus.until),
        verdict=_verdict(cases, findings, symptoms),
        findings=findings,
        ruled_out=[reason for cause, reason in against.items() if cause not in best],
        blind_spots=blind_spots(recording, cases),
        baseline=(head.case.baseline.since, head.case.baseline.until),
        # Foci overlap where a peak stands on top of a longer stretch.
        symptoms=list(dict.fromkeys(symptom.link for symptom in symptoms)),
        accounting=head.ledger.accounting() if len(head.case.now("cpu")) else None,
        failures=explained_failures(recording, findings),
        labels=recording.facts.labels,
    )


@dataclass(frozen=True)
class Judged:
    """A case with its findings, the time lost to each, and the reasons why the other causes were ruled out."""

    case: Case
    found: list[Found]
    ruled_out: list[RuledOut]
    symptoms: list[Symptom]
    ledger: Ledger


def judge(case: Case, progress: Progress = lambda done: None) -> Judged:
    """Examine a case and account for its time."""
    found, ruled_out = examine(case, progress)
    symptoms, ledger = find_symptoms(case), Ledger(case, found)
    weighed = [weigh(each, ledger, symptoms) for each in found]
    if any(one.finding.severity is not other.finding.severity for one, other in zip(found, weighed, strict=True)):
        ledger = Ledger(case, weighed)
    return Judged(case, weighed, ruled_out, symptoms, ledger)


def weigh(each: Found, ledger: Ledger, symptoms: list[Symptom]) -> Found:
    """Return the finding with its severity adjusted to its effect on other work.

    A warning is lowered to info if it caused no symptom and accounts for little of a large amount of lost time. An info
    finding is raised to a warning if threads wait for every core and a new kernel path takes part of a core: that slows
    every thread, even if the path never holds a core or only waits for its turn to hold one."""
    finding, cause = each.finding, catalogue()[each.finding.cause]
    if not each.mask.any() or cause.id in thresholds("engine")["not_by_time"]:
        return each
    severity, contends = finding.severity, _contends(ledger.case, each)
    if severity is Severity.WARNING and not contends and ledger.lost_s >= _much_lost(ledger):
        explains = ledger.lost_to(cause.id) >= _limit("explains_least") * ledger.lost_s
        if not explains and not _made(ledger.case, each, symptoms):
            severity = Severity.INFO
    elif severity is Severity.INFO and contends:
        severity = Severity.WARNING
    return replace(each, finding=replace(finding, severity=severity))


def _contends(case: Case, each: Found) -> bool:
    """Whether a well-known kernel path competes with other work: it takes, or would take, much of a core more than in
    the baseline while threads wait for the cores it runs on."""
    known = catalogue()[each.finding.cause].functions and each.finding.confidence >= _limit("well_known")
    if not known or _queue_for(case, each.mask) < _limit("contended_queue"):
        return False
    if each.risen >= _limit("contended_cores"):
        return True
    load = case.load_of(each.mask)
    return load.is_new and case.wanted(load) >= CORE_TAKEN


def _queue_for(case: Case, mask: Mask) -> float:
    """Mean number of threads waiting for the cores of these samples, weighted by the samples' time on each core; the
    node's average if the kernel doesn't count waits per core."""
    queues, here = waits_of_cores(case.now("cpu")), mask & case.samples.within(case.focus)
    if not queues or not here.any():
        return case.queue
    spent = np.bincount(case.samples.cpu[here], case.samples.weight[here])
    return float(np.average([queues.get(cpu, 0.0) for cpu in range(len(spent))], weights=spent))


def _much_lost(ledger: Ledger) -> float:
    return max(_limit("much_lost_s"), _limit("much_lost") * ledger.core_seconds)


def _complete(one: Judged, each: Found, before: Iterable[Finding]) -> Finding:
    """Return the finding with names, comparisons, symptoms that no finding before it has, and the time lost to it."""
    case, finding = one.case, with_comparison(one.case, with_names(one.case, each.finding))
    finding = with_symptoms(finding, _made(case, each, one.symptoms), before)
    if finding.severity is not Severity.INFO:
        finding = with_changes(case, finding)
    lost = round(one.ledger.lost_to(finding.cause), 3)
    return replace(finding, lost_s=lost, focus=(case.focus.since, case.focus.until))


def _known_elsewhere(found: list[Finding]) -> Finding | None:
    """Return the finding from another focus that identifies the unknown kernel path: it has the same process, and the
    path's function is its culprit function or part of its signature."""
    path = next((each for each in found if each.cause == UNKNOWN_PATH), None)
    if path is None or path.culprit.comm is None or path.culprit.function is None:
        return None
    comm, function = path.culprit.comm, path.culprit.function
    known = (each for each in found if each.culprit.comm == comm and not catalogue()[each.cause].last)
    return next(
        (each for each in known if function == each.culprit.function or function in catalogue()[each.cause].names), None
    )


def _certainty(finding: Finding) -> tuple[float, float]:
    return finding.severity.rank, finding.confidence


def _effect(one: Judged, each: Found) -> float:
    """The effect of a finding on other work, in core-seconds; findings without samples use their equivalent weight."""
    lost = one.ledger.lost_to(each.finding.cause)
    return lost if each.mask.any() else max(lost, each.weight)


def _rank(one: Judged, each: Found, most: float, *, harmed: bool) -> tuple[float, ...]:
    """Sort key: severity first, node-wide findings before those of a single workload, then confidence weighted by
    effect (the largest effect has weight 1). If something harms the node by more than the CPU time it takes (kills,
    loops, leaks), a workload at its own limit never ranks above it, however critical the limit is for that workload."""
    finding, least = each.finding, _limit("least_weight")
    weight = least + (1 - least) * (_effect(one, each) / most if most else 1.0)
    of_group = finding.scope is not Scope.NODE
    severity = Severity.WARNING if of_group and harmed and finding.severity is Severity.CRITICAL else finding.severity
    return -severity.rank, float(of_group), -finding.confidence * weight, -finding.confidence


def _harms_node(each: Found) -> bool:
    """Whether the finding harms the node by more than the CPU time it takes."""
    if each.finding.scope is not Scope.NODE or each.finding.severity is Severity.INFO:
        return False
    return each.finding.cause in thresholds("engine")["not_by_time"] or not each.mask.any()


def overcommit_after_causes(ranked: list[tuple[Judged, Found]]) -> list[tuple[Judged, Found]]:
    """Move overcommit behind the causes of equal severity that take a real part of a core from useful work, for more
    than a moment: having more work than cores slows everything and aggravates the other problems, so those come first.
    If as many threads waited before, so do useful programs that take such a part: they are what is new."""
    at = next((place for place, (_, each) in enumerate(ranked) if each.finding.cause == OVERCOMMIT), None)
    if at is None:
        return ranked
    overcommit = ranked[at][1].finding
    severity, least = overcommit.severity, catalogue()[OVERCOMMIT].limit("real_share")
    lasting, is_usual = catalogue()[OVERCOMMIT].limit("seconds"), NOT_NEW in {each.code for each in overcommit.doubts}
    before = [
        place
        for place, (one, each) in enumerate(ranked)
        if place > at
        and each.finding.severity is severity
        and (is_usual or not catalogue()[each.finding.cause].useful)
        and one.ledger.cores_of(each.finding.cause) * min(1.0, one.case.focus.seconds / lasting) >= least
    ]
    after = [place for place in range(at, len(ranked)) if place not in before]
    return [ranked[place] for place in (*range(at), *before, *after)]


def examine(case: Case, progress: Progress = lambda done: None) -> tuple[list[Found], list[RuledOut]]:
    """Examine every cause in one case. The causes marked `last` come after the others are settled and see what is
    left."""
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
            # Samples of a well-known harmless path are explained too, and must not be reported as an unknown path.
            if each.finding.severity is not Severity.INFO or each.finding.confidence >= _limit("well_known"):
                case.explained |= each.mask
        case.found = tuple(each.finding.cause for each in found)
    return found, ruled_out


def settle(found: list[Found]) -> tuple[list[Found], list[RuledOut]]:
    """Drop the findings that are only an effect of another finding."""
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
    """Whether the better finding, which must be at least as severe, accounts for the lesser one. If either has no
    samples, it must also be at least as confident and name the same process, container or cgroup."""
    if better.finding.severity.rank < lesser.finding.severity.rank:
        return False
    if not better.mask.any() and not better.weight:
        # A finding that costs nothing now can't be the cause of another one now.
        return False
    if not lesser.mask.any() or not better.mask.any():
        return better.finding.confidence >= lesser.finding.confidence and _names_same(better.finding, lesser.finding)
    # Fraction of the lesser finding's samples that the better one accounts for as well.
    same = float((better.mask & lesser.mask).sum()) / max(1, int(lesser.mask.sum()))
    least = _limit("same_process_time")
    return same >= _limit("same_time") or (same >= least and _names_same(better.finding, lesser.finding))


def _names_same(better: Finding, lesser: Finding) -> bool:
    """Whether the better finding names the culprit of the lesser one; True if the lesser one names none."""
    whom = lesser.culprit
    names = (
        (whom.comm, (EntityKind.PROCESS, EntityKind.CONTAINER, EntityKind.UNIT)),
        (whom.container, (EntityKind.CONTAINER,)),
        (whom.cgroup, (EntityKind.CGROUP,)),
    )
    known = [(name, kinds) for name, kinds in names if name]
    return not known or any(better.names(name, *kinds) for name, kinds in known)


def _made(case: Case, each: Found, symptoms: list[Symptom]) -> list[Symptom]:
    """The symptoms that a finding caused: it ran on the symptom's core at the time. Without stacks, compare only the
    cores."""
    finding = each.finding
    if not case.has_stacks:
        return [symptom for symptom in symptoms if _may_have_made(finding, symptom)]
    states = catalogue()[finding.cause].states
    if not each.mask.any() and finding.cause in thresholds("engine")["not_by_time"]:
        return []
    if not each.mask.any() and not states and each.weight > 0:
        # A finding that is counted rather than sampled is not tied to a core.
        return [symptom for symptom in symptoms if symptom.cpu is None and _may_have_made(finding, symptom)]
    return [symptom for symptom in symptoms if is_made_by(case, symptom, each.mask, states)]


def _may_have_made(finding: Finding, symptom: Symptom) -> bool:
    """Whether a finding that has no samples may have caused a symptom: one on its own core, or a log line that its
    cause is known to log. More work than cores makes threads wait for any core."""
    cpu = finding.culprit.cpu
    if finding.cause == OVERCOMMIT or symptom.event in catalogue()[finding.cause].log:
        return True
    return cpu is not None and symptom.cpu in (None, cpu)


def with_symptoms(finding: Finding, symptoms: list[Symptom], before: Iterable[Finding] = ()) -> Finding:
    """Return the finding with the symptoms that it caused at the head of its chain, but those that it quotes itself or
    that stand in the chain of a finding before it. Info findings and those that affect only their own workload caused
    none."""
    if finding.severity is Severity.INFO or finding.scope is Scope.WORKLOAD:
        return finding
    own = [link for link in finding.chain if link.role == "symptom"]
    others = (link for each in before for link in each.chain if link.role == "symptom")
    quoted = {quote for link in (*own, *others) for quote in link.evidence}
    symptoms = [symptom for symptom in symptoms if not symptom.evidence or set(symptom.evidence) - quoted]
    room = max(0, int(_limit("most_symptoms")) - len(own))
    links: list[Link] = [*[each.link for each in symptoms[:room]], *own]
    return replace(finding, chain=(*links, *[link for link in finding.chain if link.role != "symptom"]))


def with_comparison(case: Case, finding: Finding) -> Finding:
    """Return the finding with its function compared to the baseline, the other cores and an hour earlier."""
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
    severities = {finding.severity for finding in findings if finding.scope is not Scope.WORKLOAD} | {
        symptom.severity for symptom in symptoms if symptom.kind in ("log", "ksoftirqd")
    }
    # A core lost to the kernel is severe by itself, unless a finding explains it: then the severity of the finding
    # counts.
    known = {finding.culprit.cpu for finding in findings}
    severities |= {each.severity for each in symptoms if each.kind == "hot-core" and each.cpu not in known}
    if Severity.CRITICAL in severities:
        return Verdict.STARVED
    return Verdict.DEGRADED if Severity.WARNING in severities else Verdict.HEALTHY


def blind_spots(recording: Recording, cases: list[Case]) -> list[BlindSpot]:
    """What the recording can't show for these foci."""
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
