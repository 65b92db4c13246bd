"""A program computes without a pause on a core that others need too.

A busy program is what computers are for: by itself it is worth knowing at most. It matters where somebody is known to
lose by it: who had this core before and has less now, who has to share it though other cores idle, or the threads that
wait for this core and for no other.
"""

from dataclasses import replace

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.facts.co_runners import competing_co_runner, slowed_co_runner
from exhume.diagnose.facts.core_hogs import CoreHog, find_core_hogs
from exhume.diagnose.facts.waits import core_waits
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity

CAUSE = catalogue()["user-hog"]
# What an ordinary program could have of a core.
_ROOM = ("idle", "iowait", "nice")


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    if not case.has_stacks:
        return _without_stacks(builder, case)
    whole, shared = _hogs(case)
    # One that has a part of its core only matters where somebody loses by it.
    judged = [_judged(case, each) for each in whole]
    judged += [told for each in shared if (told := _judged(case, each)).finding.severity is not Severity.INFO]
    if not judged:
        return builder.rule_out("no program computed on one core without a pause")
    return max(judged, key=lambda each: (each.finding.severity.rank, each.finding.confidence))


def _hogs(case: Case) -> tuple[list[CoreHog], list[CoreHog]]:
    """The program that computes most of a core's time, and those that do so, or for a part of it, on cores that others
    use as well. Of two that share a core, the one that came is the one that takes: it comes first."""
    computing = ~case.samples.in_kernel & ~case.explained
    found = find_core_hogs(case, seconds=CAUSE.limit("seconds"), among=computing, share=CAUSE.limit("part"))
    full = sorted((each for each in found if _full(case, each.cpu)), key=lambda each: -each.load.risen)
    whole = [each for each in full if each.load.core_s >= CAUSE.limit("seconds")]
    shared = [each for each in full if _others(case, each) >= CAUSE.limit("shared")]
    return whole[:1], shared[: int(CAUSE.limit("most"))]


def _others(case: Case, keeper: CoreHog) -> float:
    """How much of the keeper's core others had, now or before, in cores' worth: whichever is more."""
    sampled = case.samples
    there = (sampled.cpu == keeper.cpu) & (sampled.pid > 0) & (sampled.pid != keeper.pid)
    return max(
        float(sampled.weight[there & sampled.within(window)].sum()) / 1e6 / window.seconds
        for window in (case.focus, case.baseline)
        if not window.empty
    )


def _full(case: Case, cpu: int) -> bool:
    """Whether the core had no idle time to give away."""
    rows = case.now("cpu")
    rows = rows.where(rows.cpu == cpu)
    idle = rows.middle("idle")
    return idle is not None and idle <= 1000 * CAUSE.limit("idle_left")


def _judged(case: Case, keeper: CoreHog) -> Found:
    builder = EvidenceBuilder(case, CAUSE)
    load = keeper.load
    before = "" if load.before is None else f" ({load.before:.2f} cores before)"
    builder.add(
        Role.CULPRIT,
        f"{keeper.comm} (pid {keeper.pid}) computed {load.peak:.0%} of a second of core {keeper.cpu}, "
        f"and so for {keeper.seconds:.0f} s{before}",
        keeper.evidence,
        strength=CAUSE.limit("alone"),
        at=load.at,
    )
    felt = _tell_losers(builder, case, keeper)
    if not felt:
        builder.doubt("nobody is known to have lost by it", CAUSE.limit("unfelt_factor"))
    severity = Severity.WARNING if felt else Severity.INFO
    tail = "which others need" if felt else "and nobody is known to lose by it"
    culprit = replace(case.culprit(load), cpu=keeper.cpu, pid=keeper.pid, comm=keeper.comm)
    return builder.found(
        severity,
        f"{keeper.comm} computes on core {keeper.cpu} without a pause, {tail}",
        culprit=culprit,
        load=load,
        # What nobody suffers from, and was like that before, comes after everything else.
        weight=None if felt or load.is_new else 0.0,
        remedies=aim(CAUSE.remedies, str(keeper.pid)),
    )


def _tell_losers(builder: EvidenceBuilder, case: Case, keeper: CoreHog) -> bool:
    felt = False
    loser = slowed_co_runner(
        case, keeper.cpu, keeper.pid, least=CAUSE.limit("lost_cores"), part=CAUSE.limit("left_part")
    )
    if loser is not None and keeper.load.is_new:
        felt = True
        text = f"{loser.comm} (pid {loser.pid}) got {loser.cores:.2f} cores, {loser.before:.2f} before"
        builder.add(Role.SYMPTOM, text, *loser.evidence, strength=CAUSE.limit("strong"))
    rival = competing_co_runner(case, keeper.cpu, keeper.pid, least=CAUSE.limit("rival_share"))
    idle = _idle_elsewhere(case, keeper.cpu)
    # One that has clearly less than the hog has all that it wants: a core is shared evenly among those that want more.
    even = rival is not None and rival.there >= CAUSE.limit("even") * keeper.load.cores
    if rival is not None and even and idle is not None:
        felt = True
        text = (
            f"{rival.comm} (pid {rival.pid}) has to make do with {rival.there:.0%} of that core, "
            f"while core {idle[0].cpu} has room: it may not go elsewhere"
        )
        builder.add(Role.SYMPTOM, text, *rival.evidence, *idle, strength=CAUSE.limit("strong"))
    waits = core_waits(case, keeper.cpu)
    if waits is not None and waits.now >= CAUSE.limit("waiting"):
        risen = waits.now >= CAUSE.limit("rise") * waits.before
        apart = waits.elsewhere is None or waits.now >= CAUSE.limit("rise") * waits.elsewhere
        if risen and apart:
            felt = True
            text = f"threads waited {waits.now:.1f} s a second for core {keeper.cpu} ({waits.before:.1f} before)"
            builder.add(Role.SYMPTOM, text, waits.evidence, strength=CAUSE.limit("strong"))
    return felt


def _idle_elsewhere(case: Case, cpu: int) -> tuple[Evidence, ...] | None:
    """The core with most room all the while, if that was half of its time: idle, or with programs that give way."""
    rows = case.now("cpu")
    room = rows.sums(_ROOM)
    cores = np.unique(rows.cpu[rows.cpu != cpu]).tolist()
    if not cores:
        return None
    means = {core: float(room[rows.cpu == core].mean()) for core in cores}
    best = max(means, key=lambda core: means[core])
    if means[best] < 1000 * CAUSE.limit("idle_elsewhere"):
        return None
    own = rows.where(rows.cpu == best)
    since, until = int(own.wall.min()), int(own.wall.max()) + 1
    return tuple(
        Evidence("cpu", state, "mean", round(float(own.numbers(state).mean()), 3), since, until, best, unit="permille")
        for state in _ROOM
    )


def _without_stacks(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    """A core full of user time, that threads wait for: that much can be said without stacks."""
    share, cpu, at = case.core_share(("user", "nice"))
    waits = None if cpu is None else core_waits(case, cpu)
    if cpu is None or share < CAUSE.limit("whole") or not _full(case, cpu):
        return builder.rule_out("no core was full of computing")
    rows = case.now("cpu").where(case.now("cpu").cpu == cpu)
    told = Evidence("cpu", "user", "max", rows.highest("user") or 0, case.focus.since, case.focus.until, cpu)
    builder.add(
        Role.CULPRIT, f"some program computed {share:.0%} of core {cpu}", told, strength=CAUSE.limit("alone"), at=at
    )
    builder.doubt("no stacks were sampled: the program is not known", CAUSE.limit("unfelt_factor"))
    felt = waits is not None and waits.now >= CAUSE.limit("waiting") and waits.now >= CAUSE.limit("rise") * waits.before
    if felt and waits is not None:
        text = f"threads waited {waits.now:.1f} s a second for it ({waits.before:.1f} before)"
        builder.add(Role.SYMPTOM, text, waits.evidence, strength=CAUSE.limit("alone"))
    severity = Severity.WARNING if felt else Severity.INFO
    return builder.found(severity, f"core {cpu} is full of computing", culprit=Culprit(cpu=cpu), weight=1.0)
