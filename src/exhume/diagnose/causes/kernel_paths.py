"""Cores that the kernel keeps: with a work item, with spinning for a lock, or in a path that no cause accounts for;
that one is named by function, process and core.

A program that reads files or serves a network may well spend a core in the kernel without harm: such ordinary paths are
worth knowing at most, unless another process is known to wait.
"""

from dataclasses import replace

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import KERNEL_STATES, Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import log_lines, quote_event, quote_share
from exhume.diagnose.evidence.samples import Names
from exhume.diagnose.facts.core_hogs import find_core_hogs
from exhume.diagnose.symptoms import hurts_others, is_by_design, is_ordinary
from exhume.model.finding import Culprit, Role, RuledOut, Severity
from exhume.store.read.events import EventView

WORK = catalogue()["workqueue-hog"]
SPIN = catalogue()["spinlock-contention"]
UNKNOWN = catalogue()["unknown-kernel-path"]
# Callers that are named with the function of an unknown path.
_CALLERS = 4


@examines(WORK)
def workqueue_hog(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    lines, samples = log_lines(case, WORK.log), case.samples
    working = samples.holding(WORK.names)
    # The work function that took most time, and its load.
    functions = samples.adjacent(working & samples.within(case.focus), WORK.names, called=True)
    function = functions[0][0] if functions else None
    load = case.load_of(working & samples.holding(Names.of([function] if function else [])))
    if function is None or load.core_s < WORK.limit("seconds"):
        named = next((line for line in lines if function is not None and line.comm == function), None)
        if lines and (not case.has_stacks or named is not None or load.peak >= WORK.limit("supported")):
            return _logged(builder, case, named or lines[0], function, load)
        return builder.rule_out("share", share=load.peak)
    quote, values = quote_share(case, load, (function,)), {"function": function, "seconds": load.core_s}
    builder.add(Role.MECHANISM, "work", quote, strength="strong", load=load, values=values)
    if not load.is_new:
        builder.doubt("not-new", "not_new_factor")
    own = [line for line in lines if line.comm in (None, function)]
    for line in own[:1]:
        builder.add(Role.SYMPTOM, "log", quote_event(line), strength="line", line=line.text)
    severity = Severity.INFO
    if load.is_new or own:
        severity = Severity.CRITICAL if own or hurts_others(case, load.cpu, load.mask) else Severity.WARNING
    culprit = case.culprit(load, function)
    return builder.found(severity, "summary", culprit=culprit, load=load, target=function, function=function)


def _logged(builder: EvidenceBuilder, case: Case, line: EventView, work: str | None, load: Load) -> Found:
    """The log reports a hog; the stacks don't show it, or show less than a core."""
    builder.add(Role.MECHANISM, "log", quote_event(line), strength="line", line=line.text)
    function, culprit = line.comm or work, Culprit()
    if work is not None:
        builder.add(Role.CULPRIT, "workers", quote_share(case, load, (work,)), load=load)
        culprit = case.culprit(load)
    # The kernel reports hogs of some hundredths of a second; a lockup is half a minute.
    severity = Severity.CRITICAL if line.severity == "critical" else Severity.INFO
    culprit, target = replace(culprit, function=function), function or "it"
    return builder.found(severity, "summary-logged", culprit=culprit, weight=1.0, target=target, function=function)


@examines(SPIN)
def spinlock_contention(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return builder.rule_out("no-stacks-sampled")
    samples, spinning = case.samples, case.load(SPIN.names)
    if spinning.together < SPIN.limit("reported") or spinning.cores < SPIN.limit("reported_mean"):
        return builder.rule_out("share", together=spinning.together)
    function = samples.nearest(spinning.mask, SPIN.names) or SPIN.functions[0]
    # The caller of the functions that take a lock is where the lock is.
    takers = Names.of((*SPIN.functions, *SPIN.groups["wrappers"]))
    sites = samples.adjacent(spinning.mask, takers, called=False)
    top = sites[0][0] if sites else None
    part = sites[0][1] / max(1.0, sum(weight for _, weight in sites)) if sites else 0.0
    site = top if part >= SPIN.limit("one_site") else None
    culprit = case.culprit(spinning, site or function)
    long = spinning.taken_s >= SPIN.limit("seconds")
    strength = "strong" if spinning.together >= SPIN.limit("strong_share") and long else "medium"
    quote, named = quote_share(case, spinning, SPIN.functions), {"function": function, "site": site}
    builder.add(Role.MECHANISM, "spinning", quote, strength=strength, load=spinning, values=named)
    if site is not None:
        at_site = case.load(Names.of([site]))
        values = {"part": part, "site": site, "who": culprit.process}
        quote = quote_share(case, at_site, (site,))
        builder.add(Role.CULPRIT, "site", quote, strength="weak", load=at_site, values=values)
    else:
        builder.doubt("no-site", "no_site_factor")
    if not spinning.is_new:
        builder.doubt("not-new", "not_new_factor")
    severity = Severity.INFO
    # Some spinning is part of a large busy node: it has to be much of one core, or of all that is done.
    much = spinning.core_s >= SPIN.limit("seconds") or spinning.part >= SPIN.limit("slowed_part")
    if spinning.is_new and much and spinning.cores >= SPIN.limit("slowed_mean"):
        severity = Severity.CRITICAL if long and hurts_others(case, spinning.cpu, spinning.mask) else Severity.WARNING
    values, target = {"who": culprit.process, **named}, top or function
    return builder.found(severity, "summary", culprit=culprit, load=spinning, target=target, values=values)


@examines(UNKNOWN)
def unknown_kernel_path(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return builder.rule_out("no-stacks-sampled")
    load, samples = _unexplained(case), case.samples
    if load is None:
        return builder.rule_out("none")
    # The deepest function that at least half of the load goes through, with the path to it and the load below it.
    path = samples.main_path(load.mask, 0.5)[1] or [samples.inclusive(load.mask)[0][0]]
    function, earlier = path[-1], samples.within(case.baseline) & samples.in_kernel
    owned = case.load_of((load.mask | earlier) & samples.holding(Names.of([function])))
    quote, owner = quote_share(case, owned, (function,)), owned.main_owner
    values: dict[str, object] = {
        "who": None if owner is None else owner.entity,
        "cpu": owned.cpu if owned.peak >= UNKNOWN.limit("core_share") * owned.together else None,
        "function": function,
    }
    callers = " -> ".join(path[:-1][-_CALLERS:]) or None
    builder.add(Role.MECHANISM, "path", quote, strength="strong", load=owned, callers=callers, values=values)
    if not case.baseline.empty:
        builder.add(Role.CULPRIT, "before", quote, load=owned, who=values["who"])
    ordinary = (
        function in UNKNOWN.group("entries")
        or is_ordinary(case, load.mask, UNKNOWN.group("walking"), to_itself=True)
        or is_by_design(case, load.mask)
    )
    severity, hurts = Severity.WARNING, hurts_others(case, load.cpu, load.mask)
    if ordinary and not hurts:
        severity = Severity.INFO
        builder.doubt("harmless", "harmless_factor")
    else:
        lost, seconds = case.core_share(KERNEL_STATES, load.cpu)[0], UNKNOWN.limit("lost_seconds")
        # One process alone that holds its core in the kernel; many short visits leave room between them.
        alone = bool(find_core_hogs(case, seconds=seconds, among=samples.in_kernel))
        if hurts or (lost >= UNKNOWN.limit("lost") and alone and load.core_s >= seconds):
            severity = Severity.CRITICAL
    key, culprit = "summary-ordinary" if severity is Severity.INFO else "summary", case.culprit(owned, function)
    return builder.found(severity, key, culprit=culprit, load=load, values=values)


def _unexplained(case: Case) -> Load | None:
    """The kernel time that no finding accounts for, of one core or of one process: the one that was taken longer. That
    of a whole node says nothing: on a large one it is always more than a core."""
    samples, seconds = case.samples, UNKNOWN.limit("seconds")
    left = samples.in_kernel & ~case.explained
    for cause in case.found:
        # A finding is about the worst of its kind; less of the same is not unknown either.
        left &= ~samples.holding(catalogue()[cause].names)
    found = []
    load = case.load_of(left)
    # Whether it is new is judged before the other cores are left out: it may have come from another core.
    if load.cpu is not None and load.core_s >= seconds and load.is_new:
        found.append(case.load_of(left, cpus=[load.cpu]))
    now = left & samples.within(case.focus) & (samples.pid > 0)
    if now.any():
        # The process that took most, on any core.
        pids, members = np.unique(samples.pid[now], return_inverse=True)
        pid = int(pids[int(np.argmax(np.bincount(members, samples.weight[now])))])
        load = case.load_of(left & (samples.pid == pid))
        if load.taken_s >= seconds and load.is_new:
            found.append(load)
    return max(found, key=lambda each: each.taken_s, default=None)
