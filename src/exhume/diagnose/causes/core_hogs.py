"""Processes that hold a core: a real-time thread that keeps all others out, or a program that computes without a pause.

A busy program is not a fault by itself. It matters if other work loses: a process that had this core before and has
less now, a process that has to share it although other cores idle, or threads that wait for this core and for no other.
"""

from dataclasses import replace

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.quotes import log_lines, quote_column, quote_event
from exhume.diagnose.facts.core_hogs import (
    CoreHog,
    competing_co_runner,
    core_waits,
    delayed_part,
    find_core_hogs,
    slowed_co_runner,
    softirq_wait,
)
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity

REAL_TIME = catalogue()["rt-hog"]
USER = catalogue()["user-hog"]
# Real-time policies (include/uapi/linux/sched.h).
_POLICIES = {1: "SCHED_FIFO", 2: "SCHED_RR", 6: "SCHED_DEADLINE"}
# States of a core that leave room for an ordinary program.
_ROOM = ("idle", "iowait", "nice")


def _add_slowed(builder: EvidenceBuilder, hog: CoreHog, strength: str) -> bool:
    """Add the process that lost most because of the hog; return whether there is one. Where threads queue for every
    core, each had little to lose."""
    lost, left = builder.cause.limit("lost_cores") * builder.case.turn, builder.cause.limit("left_part")
    loser = slowed_co_runner(builder.case, hog.cpu, hog.pid, least=lost, part=left)
    if loser is not None:
        values = {"who": loser.entity, "cores": loser.cores, "before": loser.before}
        builder.add(Role.SYMPTOM, "slowed", *loser.evidence, strength=strength, values=values)
    return loser is not None


def _add_waits(builder: EvidenceBuilder, cpu: int, strength: str, *, apart: bool = False) -> bool:
    """Add the threads that wait for a core if that is much more than before (and, with `apart`, more than
    elsewhere)."""
    waits, cause = core_waits(builder.case, cpu), builder.cause
    if waits is None or waits.now < max(cause.limit("waiting"), cause.limit("rise") * waits.before):
        return False
    if apart and waits.elsewhere is not None and waits.now < cause.limit("rise") * waits.elsewhere:
        return False
    values = {"waited": waits.now, "cpu": cpu, "before": waits.before}
    builder.add(Role.SYMPTOM, "waits", waits.evidence, strength=strength, values=values)
    return True


# Real-time threads


@examines(REAL_TIME)
def rt_hog(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    policies, recorded = _policies(case)
    seconds = REAL_TIME.limit("seconds")
    urgent = find_core_hogs(case, seconds=seconds, pids=policies) if policies else []
    line = next((quote_event(event) for event in log_lines(case, REAL_TIME.log)), None)
    if urgent:
        return _real_time(builder, case, urgent[0], policies[urgent[0].pid], line)
    hogs = [] if recorded else find_core_hogs(case, seconds=seconds)
    # Only a real-time thread looks like this: it computes in user mode, where any thread can be preempted, and is not.
    user, whole = REAL_TIME.limit("user_part"), REAL_TIME.limit("whole")
    full = [each for each in hogs if each.user >= user and each.load.peak >= whole]
    suspect = next((each for each in full if line is not None or _long_wait(case, each) is not None), None)
    if suspect is not None:
        return _real_time(builder, case, suspect, None, line)
    if line is not None and not case.has_stacks:
        return _only_logged(builder, case, line)
    return builder.rule_out("none" if recorded else "no-suspect")


def _real_time(
    builder: EvidenceBuilder, case: Case, hog: CoreHog, policy: tuple[Evidence, int] | None, line: Evidence | None
) -> Found:
    values = {"who": hog.entity, "cpu": hog.cpu, "seconds": hog.seconds}
    builder.add(Role.MECHANISM, "held", hog.evidence, strength="weak", load=hog.load, values=values)
    named: dict[str, object] = {"policy": None, "priority": None}
    if policy is not None:
        named = {"policy": _POLICIES[int(policy[0].value)], "priority": policy[1] or None}
        builder.add(Role.ROOT_CAUSE, "policy", policy[0], strength="strong", values=named)
    else:
        builder.doubt("no-policy", "no_policy_factor")
    if line is not None:
        builder.add(Role.SYMPTOM, "throttled", line, strength="line")
    waited = _long_wait(case, hog)
    if waited is not None:
        seconds = float(waited.value) / NANOS
        builder.add(Role.SYMPTOM, "ksoftirqd", waited, strength="waited", cpu=hog.cpu, waited=seconds)
    slowed, waits = _add_slowed(builder, hog, "weak"), _add_waits(builder, hog.cpu, "weak")
    hurts = line is not None or waited is not None or slowed or waits
    severity, named = _real_time_severity(case, hog, hurts=hurts), {"who": hog.entity, "cpu": hog.cpu, **named}
    culprit = replace(case.culprit(hog.load), cpu=hog.cpu, pid=hog.pid, comm=hog.comm)
    return builder.found(severity, "summary", culprit=culprit, load=hog.load, target=str(hog.pid), values=named)


def _long_wait(case: Case, hog: CoreHog) -> Evidence | None:
    """Evidence that the core's ksoftirqd waited longer than any ordinary program can make it wait."""
    waited = softirq_wait(case, hog.cpu)
    long = waited is not None and float(waited.value) / NANOS >= REAL_TIME.limit("softirq_wait_s")
    return waited if long else None


def _real_time_severity(case: Case, hog: CoreHog, *, hurts: bool) -> Severity:
    if hurts:
        return Severity.CRITICAL
    whole = hog.load.peak >= REAL_TIME.limit("whole")
    if case.baseline.empty:
        # Without a baseline, a hog that was there for only part of the focus at least started in it.
        began = hog.seconds < REAL_TIME.limit("throughout") * case.focus.seconds
        return Severity.CRITICAL if began and whole else Severity.WARNING
    # A hog that was always there and hurts no other work has a core that was set apart for it.
    return Severity.CRITICAL if hog.load.is_new and whole else Severity.INFO


def _only_logged(builder: EvidenceBuilder, case: Case, line: Evidence) -> Found:
    builder.add(Role.MECHANISM, "throttled-unseen", line, strength="line")
    share, cpu, at = case.core_share(("user", "nice", "system"))
    full = cpu if share >= REAL_TIME.limit("whole") else None
    if full is not None:
        quote = quote_column(case.now("cpu").on(full).within(Window(at, at + 1)), "idle", "min", "permille", full)
        builder.add(Role.CULPRIT, "full-core", quote, cpu=full)
    builder.doubt("no-process", "no_policy_factor")
    weight = REAL_TIME.limit("seconds")
    return builder.found(Severity.WARNING, "summary-logged", culprit=Culprit(cpu=full), weight=weight)


def _policies(case: Case) -> tuple[dict[int, tuple[Evidence, int]], bool]:
    """The policy and priority of the real-time processes up to the end of the focus, and whether any policy was
    recorded."""
    rows = case.now("processes")
    found = {}
    for wall, pid, policy, priority in rows.listed("wall", "pid", "policy", "rt_priority"):
        if policy in _POLICIES and wall < case.focus.until + NANOS:
            quote = Evidence("processes", "policy", "last", int(policy), wall, wall + 1, match=(("pid", str(pid)),))
            found[pid] = (quote, int(priority or 0))
    return found, not np.isnan(rows.numbers("policy")).all()


@examines(USER)
def user_hog(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return _user_by_counters(builder, case)
    # The program that computes for most of a core's time, and others that do so, or for part of it, on cores that other
    # work uses as well. If two share a core, the newcomer is the one that takes it, and comes first.
    computing, seconds = ~case.samples.in_kernel & ~case.explained, USER.limit("seconds")
    found = find_core_hogs(case, seconds=seconds, among=computing, share=USER.limit("part"))
    full = sorted((each for each in found if _is_full(case, each.cpu)), key=lambda each: -each.load.risen)
    whole = [each for each in full if each.load.core_s >= seconds][:1]
    shared = [each for each in full if _others(case, each) >= USER.limit("shared")][: int(USER.limit("most"))]
    # A hog with only a part of its core matters if another process loses.
    judged = [_judged(case, each) for each in whole]
    judged += [each for each in (_judged(case, hog) for hog in shared) if each.finding.severity is not Severity.INFO]
    if not judged:
        return builder.rule_out("none")
    return max(judged, key=lambda each: (each.finding.severity.rank, each.finding.confidence))


def _others(case: Case, hog: CoreHog) -> float:
    """How much of the hog's core other processes had, in cores' worth: now or before, whichever is more."""
    samples = case.samples
    there = (samples.cpu == hog.cpu) & (samples.pid > 0) & (samples.pid != hog.pid)
    windows = [window for window in (case.focus, case.baseline) if not window.empty]
    return max(samples.time(there & samples.within(window)) / 1e6 / window.seconds for window in windows)


def _is_full(case: Case, cpu: int) -> bool:
    """Whether the core had no idle time left."""
    idle = case.now("cpu").on(cpu).middle("idle")
    return idle is not None and idle <= 1000 * USER.limit("idle_left")


def _judged(case: Case, hog: CoreHog) -> Found:
    builder = EvidenceBuilder(case, USER)
    load = hog.load
    values = {"who": hog.entity, "cpu": hog.cpu, "seconds": hog.seconds}
    builder.add(Role.CULPRIT, "computed", hog.evidence, strength="alone", load=load, values=values)
    slowed = load.is_new and _add_slowed(builder, hog, "strong")
    rival = competing_co_runner(case, hog.cpu, hog.pid, least=USER.limit("rival_share"))
    idle = _idle_elsewhere(case, hog.cpu)
    # A rival with clearly less than the hog has all it needs: the scheduler shares a core evenly among those that need
    # more.
    shares = rival is not None and idle is not None and rival.there >= USER.limit("even") * load.cores
    # Niced programs fill what two others leave of a core: then neither of the two waits for the other.
    delayed = None if rival is None else delayed_part(case, rival.pid, hog.cpu)
    shares = shares and (delayed is None or delayed >= USER.limit("hungry"))
    if rival is not None and idle is not None and shares:
        values = {"who": rival.entity, "share": rival.there, "idle_cpu": idle[0].cpu}
        builder.add(Role.SYMPTOM, "shared", *rival.evidence, *idle, strength="strong", values=values)
    waits = _add_waits(builder, hog.cpu, "strong", apart=True)
    hurts = slowed or shares or waits
    if not hurts:
        builder.doubt("harmless", "harmless_factor")
    severity, key = (Severity.WARNING, "summary") if hurts else (Severity.INFO, "summary-harmless")
    culprit = replace(case.culprit(load), cpu=hog.cpu, pid=hog.pid, comm=hog.comm)
    # A hog that hurts no other process and was there before ranks behind everything else.
    weight, target = None if hurts or load.is_new else 0.0, str(hog.pid)
    values = {"who": hog.entity, "cpu": hog.cpu}
    return builder.found(severity, key, culprit=culprit, load=load, weight=weight, target=target, values=values)


def _idle_elsewhere(case: Case, cpu: int) -> tuple[Evidence, ...] | None:
    """Evidence of the core with the most room (idle, or used by niced programs), if that was half of its time."""
    rows = case.now("cpu")
    room = rows.sums(_ROOM)
    means = {core: float(room[rows.cpu == core].mean()) for core in np.unique(rows.cpu).tolist() if core != cpu}
    best = max(means, key=lambda core: means[core], default=None)
    if best is None or means[best] < 1000 * USER.limit("idle_elsewhere"):
        return None
    quotes = [quote_column(rows.on(best), state, "mean", "permille", best) for state in _ROOM]
    return tuple(each for each in quotes if each is not None)


def _user_by_counters(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    """A core full of user time that threads wait for: this much is known without stacks."""
    share, cpu, at = case.core_share(("user", "nice"))
    if cpu is None or share < USER.limit("whole") or not _is_full(case, cpu):
        return builder.rule_out("none-counted")
    highest = case.now("cpu").on(cpu).highest("user") or 0
    quote = Evidence("cpu", "user", "max", highest, case.focus.since, case.focus.until, cpu)
    builder.add(Role.CULPRIT, "computed-unseen", quote, strength="alone", at=at, share=share, cpu=cpu)
    builder.doubt("no-process", "harmless_factor")
    severity = Severity.WARNING if _add_waits(builder, cpu, "alone") else Severity.INFO
    return builder.found(severity, "summary-counted", culprit=Culprit(cpu=cpu), weight=1.0, cpu=cpu)
