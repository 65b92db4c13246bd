"""Walks over too many cgroups: zombie memory cgroups, and thousands of live ones."""

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import KERNEL_STATES, Case
from exhume.diagnose.evidence.core_hold import core_hold
from exhume.diagnose.evidence.impact import severity_of
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column, quote_share
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.facts.cgroup_counts import CgroupCounts, cgroup_counts, memory_counts, seconds_before
from exhume.diagnose.facts.leaks import Leak, find_leak, leaking_parent
from exhume.diagnose.facts.owners import CgroupOwner, stop_remedies
from exhume.model.finding import Culprit, Entity, EntityKind, Evidence, Role, RuledOut, Severity

ZOMBIES = catalogue()["zombie-memcgs"]
EXCESS = catalogue()["cgroup-excess"]


# Zombies


@examines(ZOMBIES)
def zombie_memcgs(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    counts = memory_counts(case)
    dying = None if counts is None else counts.dying
    walk = case.load_of(case.samples.holding(ZOMBIES.names) & ~case.samples.holding(ZOMBIES.group("pages")))
    hot = walk.peak >= ZOMBIES.limit("core_share") and _is_walk(case, walk)
    if dying is None:
        if not hot or walk.peak < ZOMBIES.limit("core_share_uncounted"):
            return builder.rule_out("uncounted-idle", tracked=None if counts is None else counts.kernel)
    elif dying < ZOMBIES.limit("many"):
        return builder.rule_out("few", dying=dying)
    leak = find_leak(case)
    if hot:
        return _walked(builder, case, walk, counts, leak)
    assert counts is not None
    return _dormant(builder, case, counts, leak)


def _is_walk(case: Case, walk: Load) -> bool:
    """Whether most of that time went to walking rather than to pages, and the steps from one cgroup to the next show in
    it: in reclaim of pages they take a hundredth."""
    whole = case.load(ZOMBIES.names).cores
    steps = case.load_of(walk.mask & case.samples.holding(ZOMBIES.group("steps"))).cores
    return walk.cores >= ZOMBIES.limit("walk_part") * whole and steps >= ZOMBIES.limit("steps_part") * walk.cores


def _walked(builder: EvidenceBuilder, case: Case, walk: Load, counts: CgroupCounts | None, leak: Leak | None) -> Found:
    function = case.samples.nearest(walk.mask, ZOMBIES.group("steps")) or ZOMBIES.functions[0]
    culprit = case.culprit(walk, function)
    # A process that does nothing else gets less than a core when it has to share it.
    owned = core_hold(case, walk).owner_part
    clear = walk.peak >= ZOMBIES.limit("core_share_strong") or owned >= ZOMBIES.limit("own_part")
    builder.add(
        Role.MECHANISM,
        "walk",
        quote_share(case, walk, ZOMBIES.functions),
        strength="strong" if clear else "weak",
        at=walk.at,
        who=culprit.process,
        peak=walk.peak,
        cpu=walk.cpu,
        function=function,
        before=walk.before,
        cores=walk.cores,
    )
    share, _, at = case.core_share(KERNEL_STATES, walk.cpu)
    quotes = _quote_system(case, walk.cpu, at) if walk.cpu is not None else ()
    if quotes:
        builder.add(Role.SYMPTOM, "kernel", *quotes, at=at, cpu=walk.cpu, share=share)
    if counts is not None and counts.dying is not None:
        _add_counts(builder, case, counts)
    else:
        builder.doubt("uncounted", "uncounted_factor", tracked=None if counts is None else counts.kernel)
    owner = _add_leak(builder, case, counts, leak)
    severity = severity_of(case, walk)
    if severity is Severity.INFO and walk.cores * case.focus.seconds >= ZOMBIES.limit("lost_s"):
        # However it was shared: this much of a core's time was lost.
        severity = Severity.WARNING
    values = {"who": culprit.process, "cpu": walk.cpu, "function": function, "leak": leak, **_counted(counts)}
    remedies = stop_remedies(ZOMBIES.remedies, owner)
    return builder.found(severity, "summary", culprit=culprit, load=walk, remedies=remedies, values=values)


def _dormant(builder: EvidenceBuilder, case: Case, counts: CgroupCounts, leak: Leak | None) -> Found:
    """Many zombies, and no core that was sampled walking them."""
    _add_counts(builder, case, counts)
    growing = _is_growing(counts, leak)
    if growing and counts.growth is not None:
        quotes = (*counts.evidence_of_growth(), counts.evidence("dying"))
        builder.add(Role.CULPRIT, "growth", *quotes, per_hour=counts.growth.per_hour)
    owner = _add_leak(builder, case, counts, leak)
    share, cpu, at = case.core_share(KERNEL_STATES)
    if not case.has_stacks and share >= ZOMBIES.limit("kernel_share") and cpu is not None:
        builder.add(Role.MECHANISM, "kernel-unsampled", *_quote_system(case, cpu, at), at=at, cpu=cpu, share=share)
        severity = Severity.WARNING
    else:
        # They exist for certain; what they cost is not known.
        builder.support("strong")
        severity = Severity.WARNING if growing else Severity.INFO
    culprit = None if leak is None else Culprit(pid=leak.maker_pid, comm=leak.maker, container=leak.owner.container)
    remedies = stop_remedies(ZOMBIES.remedies, owner)
    values = {"leak": leak, **_counted(counts)}
    return builder.found(severity, "summary-dormant", culprit=culprit, weight=0.0, remedies=remedies, values=values)


def _is_growing(counts: CgroupCounts, leak: Leak | None) -> bool:
    """Whether their number grows, and not by the few that come and go with every container."""
    if counts.growth is None:
        return leak is not None and leak.leaker.zombies >= ZOMBIES.limit("least_gained")
    gained = counts.growth.last - counts.growth.first
    return counts.growth.per_hour >= ZOMBIES.limit("growth_per_hour") and gained >= ZOMBIES.limit("least_gained")


def _counted(counts: CgroupCounts | None) -> dict[str, object]:
    known = counts is not None and counts.dying is not None
    return {
        "dying": counts.dying if counts is not None else None,
        "tracked": (counts.kernel or 0) if counts is not None and known else None,
        "visible": (counts.visible or 0) if counts is not None and known else None,
    }


def _add_counts(builder: EvidenceBuilder, case: Case, counts: CgroupCounts) -> None:
    age = seconds_before(case, counts)
    quotes = [counts.evidence(column) for column in ("kernel", "visible", "dying")]
    old = age / 60 if age > ZOMBIES.limit("fresh_s") else None
    values = {**_counted(counts), "minutes": old}
    builder.add(Role.ROOT_CAUSE, "counts", *quotes, strength="counted", at=counts.at, values=values)


def _add_leak(builder: EvidenceBuilder, case: Case, counts: CgroupCounts | None, leak: Leak | None) -> CgroupOwner:
    """Add the leaker, or at least the parent of the zombies; returns its owner."""
    if leak is None:
        builder.doubt("no-leaker", 1.0)
        place = None if counts is None or counts.dying is None else leaking_parent(case, counts)
        if place is None:
            return CgroupOwner()
        parent = Entity(EntityKind.CGROUP, place.path, place.path)
        values = {"dying": place.dying, "parent": parent, "owner": place.owner or None}
        builder.add(Role.ROOT_CAUSE, "parent", place.evidence, values=values)
        return place.owner
    leaker = leak.leaker
    values = {"zombies": leaker.zombies, "pattern": leaker.pattern, "rate": leaker.per_hour or None, "leak": leak}
    builder.add(Role.ROOT_CAUSE, "leaked", *leak.evidence, strength="weak", at=leaker.last, values=values)
    return leak.owner


def _quote_system(case: Case, cpu: int, at: int) -> tuple[Evidence, ...]:
    rows = case.now("cpu")
    quote = quote_column(rows.where((rows.cpu == cpu) & (rows.wall == at)), "system", "max", "permille", cpu)
    return () if quote is None else (quote,)


# Live cgroups


@examines(EXCESS)
def cgroup_excess(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    counts = max(cgroup_counts(case), key=_live, default=None)
    if counts is None:
        return builder.rule_out("uncounted")
    if _live(counts) < EXCESS.limit("many"):
        return builder.rule_out("usual", count=_live(counts))
    walk = case.load_of(_walking(case))
    hot = _is_hot(case, walk)
    if counts.visible is None and not hot:
        return builder.rule_out("not-walked")
    seen = counts.visible is not None
    values = {"count": _live(counts), "visible": seen, "hierarchy": counts.hierarchy}
    quote = counts.evidence("visible" if seen else "kernel")
    builder.add(Role.ROOT_CAUSE, "counts", quote, strength="counted", at=counts.at, values=values)
    if hot:
        return _excess_walked(builder, case, counts, walk)
    builder.support("fair")
    return builder.found(Severity.INFO, "summary-dormant", weight=0.0, count=_live(counts))


def _is_hot(case: Case, walk: Load) -> bool:
    """Whether a process was busy with them: by a core's time, or by its own where it has to share the core."""
    if walk.peak >= EXCESS.limit("core_share"):
        return True
    return walk.peak >= EXCESS.limit("shared_core") and core_hold(case, walk).owner_part >= EXCESS.limit("own_part")


def _live(counts: CgroupCounts) -> int:
    """The live ones; all that the kernel has where those were not counted."""
    return (counts.visible if counts.visible is not None else counts.kernel) or 0


def _walking(case: Case) -> Mask:
    """The samples in files of cgroups. Files of sysfs are kernfs files as well, and don't count."""
    return case.samples.holding(EXCESS.names) & ~case.samples.holding(EXCESS.group("sysfs"))


def _excess_walked(builder: EvidenceBuilder, case: Case, counts: CgroupCounts, walk: Load) -> Found:
    function = case.samples.nearest(walk.mask, EXCESS.names) or EXCESS.functions[0]
    culprit = case.culprit(walk, function)
    # A process that does nothing else gets less than a core when it has to share it.
    owned = core_hold(case, walk).owner_part
    strong = walk.peak >= EXCESS.limit("core_share_strong") or owned >= EXCESS.limit("own_part")
    builder.add(
        Role.MECHANISM,
        "walk",
        quote_share(case, walk, EXCESS.functions),
        strength="strong" if strong else "fair",
        at=walk.at,
        who=culprit.process,
        peak=walk.peak,
        cpu=walk.cpu,
        function=function,
    )
    if counts.visible is None:
        builder.doubt("live-uncounted", "uncounted_factor")
    whole = _with_own_time(case, walk)
    severity = severity_of(case, whole)
    return builder.found(severity, "summary", culprit=culprit, load=whole, who=culprit.process, count=_live(counts))


def _with_own_time(case: Case, walk: Load) -> Load:
    """The walk with the rest of the walker's time: it also has to open and parse what it reads."""
    owner = walk.main_owner
    if owner is None:
        return walk
    samples = case.samples
    own = (samples.pid == owner.pid) & samples.within(case.focus)
    used = float(samples.weight[own].sum())
    walked = float(samples.weight[own & walk.mask].sum())
    if walked < EXCESS.limit("walker_part") * used:
        return walk
    return case.load_of(np.logical_or(_walking(case), samples.pid == owner.pid))
