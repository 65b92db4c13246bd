"""Memory cgroups that were removed stay in the kernel, and whoever walks all of them pays for each."""

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import KERNEL_STATES, Case
from exhume.diagnose.evidence.core_hold import core_hold
from exhume.diagnose.evidence.impact import severity_of
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column, quote_share
from exhume.diagnose.facts.cgroup_counts import CgroupCounts, memory_counts, seconds_before
from exhume.diagnose.facts.leaks import Leak, find_leak, leaking_parent
from exhume.diagnose.facts.owners import CgroupOwner, process_words, stop_remedies
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity
from exhume.model.words import count

CAUSE = catalogue()["zombie-memcgs"]


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    counts = memory_counts(case)
    dying = None if counts is None else counts.dying
    walk = walking(case)
    hot = walk.peak >= CAUSE.limit("core_share") and _is_walk(case, walk)
    if dying is None:
        if not hot or walk.peak < CAUSE.limit("core_share_uncounted"):
            return builder.rule_out(f"{_untold(counts)}, and no core was busy walking them")
    elif dying < CAUSE.limit("many"):
        return builder.rule_out(f"{count(dying, 'zombie')}: too few to be felt")
    leak = find_leak(case)
    if hot:
        return _hot(builder, case, walk, counts, leak)
    assert counts is not None
    return _dormant(builder, case, counts, leak)


def walking(case: Case) -> Load:
    """The time that went to visiting memory cgroups one after another; not that in which one of them gave up pages."""
    return case.load_of(case.samples.holding(CAUSE.names) & ~case.samples.holding(CAUSE.named("pages")))


def _is_walk(case: Case, walk: Load) -> bool:
    """Whether most of that time went to walking rather than to pages, and the steps from one to the next show in it: in
    reclaim of pages they take a hundredth."""
    whole = case.load(CAUSE.names).cores
    steps = case.load_of(walk.mask & case.samples.holding(CAUSE.named("steps"))).cores
    return walk.cores >= CAUSE.limit("walk_part") * whole and steps >= CAUSE.limit("steps_part") * walk.cores


def _hot(builder: EvidenceBuilder, case: Case, walk: Load, counts: CgroupCounts | None, leak: Leak | None) -> Found:
    function = case.samples.nearest(walk.mask, CAUSE.named("steps")) or CAUSE.functions[0]
    culprit = case.culprit(walk, function)
    who = process_words(culprit)
    # One whose time goes there whole gets less than a core when it has to share it.
    clear = walk.peak >= CAUSE.limit("core_share_strong") or core_hold(case, walk).owner_part >= CAUSE.limit("own_part")
    before = "" if walk.before is None else f" ({walk.before:.2f} cores before, {walk.cores:.2f} in this time)"
    builder.add(
        Role.MECHANISM,
        f"{who} spent {walk.peak:.0%} of a second of core {walk.cpu} walking memory cgroups in {function}{before}",
        quote_share(case, walk, CAUSE.functions),
        strength=CAUSE.limit("strong") if clear else CAUSE.limit("weak"),
        at=walk.at,
    )
    share, _, at = case.core_share(KERNEL_STATES, walk.cpu)
    told = _system_of(case, walk.cpu, at) if walk.cpu is not None else ()
    if told:
        text = f"core {walk.cpu} was in the kernel for up to {share:.0%} of a second"
        builder.add(Role.SYMPTOM, text, *told, at=at)
    if counts is not None and counts.dying is not None:
        _tell_counts(builder, case, counts)
    else:
        builder.doubt(_untold(counts), CAUSE.limit("uncounted_factor"))
    whose = _tell_leak(builder, case, counts, leak)
    severity = severity_of(case, walk)
    if severity is Severity.INFO and walk.cores * case.focus.seconds >= CAUSE.limit("lost_s"):
        # However it was shared out: that much of a core's time went to nothing at all.
        severity = Severity.WARNING
    number = _tracked(counts)
    summary = f"{who} keeps core {walk.cpu} in {function}, walking {number}{_leaked_by(leak)}"
    return builder.found(severity, summary, culprit=culprit, load=walk, remedies=stop_remedies(CAUSE.remedies, whose))


def _dormant(builder: EvidenceBuilder, case: Case, counts: CgroupCounts, leak: Leak | None) -> Found:
    """Many zombies, and no core that was seen to pay for them."""
    _tell_counts(builder, case, counts)
    growing = _is_growing(counts, leak)
    if growing and counts.growth is not None:
        told = (*counts.evidence_of_growth(), counts.evidence("dying"))
        builder.add(Role.CULPRIT, f"they grow by {counts.growth.per_hour:,.0f} an hour", *told)
    whose = _tell_leak(builder, case, counts, leak)
    share, cpu, at = case.core_share(KERNEL_STATES)
    if not case.has_stacks and share >= CAUSE.limit("kernel_share") and cpu is not None:
        told = _system_of(case, cpu, at)
        text = f"core {cpu} was in the kernel for {share:.0%} of a second: it may have walked them"
        builder.add(Role.MECHANISM, text, *told, at=at)
        severity = Severity.WARNING
    else:
        # They are there for certain; what they cost is another matter.
        builder.support(CAUSE.limit("strong"))
        severity = Severity.WARNING if growing else Severity.INFO
    summary = f"the kernel keeps {_tracked(counts)}{_leaked_by(leak)}: whatever walks them pays for each"
    culprit = None if leak is None else Culprit(pid=leak.maker_pid, comm=leak.maker, container=leak.whose.container)
    return builder.found(severity, summary, culprit=culprit, weight=0.0, remedies=stop_remedies(CAUSE.remedies, whose))


def _is_growing(counts: CgroupCounts, leak: Leak | None) -> bool:
    """Whether they become more, and not by the few that come and go with every container."""
    if counts.growth is None:
        return leak is not None and leak.leaker.zombies >= CAUSE.limit("least_gained")
    gained = counts.growth.last - counts.growth.first
    return counts.growth.per_hour >= CAUSE.limit("growth_per_hour") and gained >= CAUSE.limit("least_gained")


def _tell_counts(builder: EvidenceBuilder, case: Case, counts: CgroupCounts) -> None:
    age = seconds_before(case, counts)
    when = "" if age <= CAUSE.limit("fresh_s") else f", counted {age / 60:.0f} minutes before"
    kernel, visible = counts.kernel or 0, counts.visible or 0
    builder.add(
        Role.ROOT_CAUSE,
        f"the kernel tracks {kernel:,} memory cgroups and {visible:,} are visible: {counts.dying or 0:,} zombies{when}",
        counts.evidence("kernel"),
        counts.evidence("visible"),
        counts.evidence("dying"),
        strength=CAUSE.limit("counted"),
        at=counts.at,
    )


def _tell_leak(builder: EvidenceBuilder, case: Case, counts: CgroupCounts | None, leak: Leak | None) -> CgroupOwner:
    """Who leaks them, or at least where they are; returns what that belongs to."""
    if leak is None:
        builder.doubt("no cgroup was seen to be removed and not released: who leaks them is not known", 1.0)
        place = None if counts is None or counts.dying is None else leaking_parent(case, counts)
        if place is None:
            return CgroupOwner()
        builder.add(Role.ROOT_CAUSE, place[0], place[2])
        return place[1]
    pace = leak.leaker.per_hour
    rate = f", {pace:,.0f} an hour" if pace else ""
    builder.add(
        Role.ROOT_CAUSE,
        f"{count(leak.leaker.zombies, 'cgroup')} of {leak.leaker.pattern} were removed and not released{rate}: "
        f"leaked by {leak.words}",
        *leak.evidence,
        strength=CAUSE.limit("weak"),
        at=leak.leaker.last,
    )
    return leak.whose


def _system_of(case: Case, cpu: int, at: int) -> tuple[Evidence, ...]:
    rows = case.now("cpu")
    told = quote_column(rows.where((rows.cpu == cpu) & (rows.wall == at)), "system", "max", "permille", cpu)
    return () if told is None else (told,)


def _tracked(counts: CgroupCounts | None) -> str:
    if counts is None or counts.dying is None:
        return "memory cgroups that were not counted"
    return f"{counts.dying:,} zombie memory cgroups ({counts.kernel or 0:,} tracked, {counts.visible or 0:,} visible)"


def _leaked_by(leak: Leak | None) -> str:
    return "" if leak is None else f", leaked by {leak.words}"


def _untold(counts: CgroupCounts | None) -> str:
    if counts is None or counts.kernel is None:
        return "memory cgroups were not counted in this time"
    return f"the kernel tracks {counts.kernel:,} memory cgroups, but how many of them are visible was not counted"
