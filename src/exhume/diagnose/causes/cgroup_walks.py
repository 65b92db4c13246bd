"""Walks over too many cgroups: zombie memory cgroups, and thousands of live ones."""

from dataclasses import replace

import numpy as np

from exhume.diagnose.catalogue import Cause, catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column, quote_share
from exhume.diagnose.evidence.rows import Mask, Rows
from exhume.diagnose.evidence.samples import Names
from exhume.diagnose.facts.forecasts import grown_forecast, round_cost, walk_milestones
from exhume.diagnose.facts.leaks import (
    LOOKED_BACK_S,
    CgroupCounts,
    Leak,
    cgroup_counts,
    find_leak,
    leaking_parent,
    memory_counts,
)
from exhume.diagnose.facts.owners import CgroupOwner, owner_of, stop_remedies
from exhume.diagnose.facts.unit_starts import UnitStarter
from exhume.diagnose.growth import forecast_text, held_by_each, milestone
from exhume.diagnose.symptoms import severity_of
from exhume.model.clock import NANOS, Window
from exhume.model.finding import (
    Culprit,
    Entity,
    EntityKind,
    Estimate,
    Evidence,
    Forecast,
    Milestone,
    Role,
    RuledOut,
    Severity,
)
from exhume.model.tables import KERNEL_STATES

ZOMBIES = catalogue()["zombie-memcgs"]
EXCESS = catalogue()["cgroup-excess"]


def _add_walk(builder: EvidenceBuilder, cause: Cause, walk: Load, names: Names, weak: str) -> Culprit:
    """Add the process that walks, and the function it does so in."""
    case = builder.case
    culprit = case.culprit(walk, case.samples.nearest(walk.mask, names) or cause.functions[0])
    # A process that does nothing else gets less than a core if it has to share it.
    owned = case.hold(walk).owner_part
    clear = walk.peak >= cause.limit("core_share_strong") or owned >= cause.limit("own_part")
    quote, values = quote_share(case, walk, cause.functions), {"who": culprit.process, "function": culprit.function}
    builder.add(Role.MECHANISM, "walk", quote, strength="strong" if clear else weak, load=walk, values=values)
    return culprit


@examines(ZOMBIES)
def zombie_memcgs(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    counts, samples = memory_counts(case), case.samples
    walk = case.load_of(samples.holding(ZOMBIES.names) & ~samples.holding(ZOMBIES.group("pages")))
    # Whether most of that time went to walking rather than to pages, and steps from one cgroup to the next show in it:
    # when pages are reclaimed, the steps take a hundredth of the time.
    steps = case.load_of(walk.mask & samples.holding(ZOMBIES.group("steps"))).cores
    walked = walk.cores >= ZOMBIES.limit("walk_part") * case.load(ZOMBIES.names).cores
    hot = walk.peak >= ZOMBIES.limit("core_share") * case.turn and walked
    hot = hot and steps >= ZOMBIES.limit("steps_part") * walk.cores
    if counts is None or counts.dying is None:
        if not hot or walk.peak < ZOMBIES.limit("core_share_uncounted"):
            return builder.rule_out("uncounted-idle", tracked=None if counts is None else counts.kernel)
        return _walked(builder, case, walk, counts, find_leak(case))
    if counts.dying < ZOMBIES.limit("many"):
        return _early(builder, case, counts) or builder.rule_out("few", dying=counts.dying)
    leak = find_leak(case)
    return _walked(builder, case, walk, counts, leak) if hot else _dormant(builder, case, counts, leak)


def _walked(builder: EvidenceBuilder, case: Case, walk: Load, counts: CgroupCounts | None, leak: Leak | None) -> Found:
    culprit = _add_walk(builder, ZOMBIES, walk, ZOMBIES.group("steps"), "weak")
    share, _, at = case.core_share(KERNEL_STATES, walk.cpu)
    quote = _quote_system(case, walk.cpu, at)
    if quote is not None:
        builder.add(Role.SYMPTOM, "kernel", quote, at=at, cpu=walk.cpu, share=share)
    if counts is not None and counts.dying is not None:
        _add_counts(builder, case, counts)
    else:
        builder.doubt("uncounted", "uncounted_factor", tracked=None if counts is None else counts.kernel)
    owner = _add_leak(builder, case, counts, leak)
    severity = severity_of(case, walk)
    if severity is Severity.INFO and walk.cores * case.focus.seconds >= ZOMBIES.limit("lost_s"):
        # However the time was shared out: this much of a core was lost.
        severity = Severity.WARNING
    values = {"who": culprit.process, "function": culprit.function, "leak": leak, **_counted(counts)}
    remedies, ahead = stop_remedies(ZOMBIES.remedies, owner), zombie_forecast(case, counts, walk)
    return builder.found(
        severity, "summary", culprit=culprit, load=walk, remedies=remedies, forecast=ahead, values=values
    )


def _early(builder: EvidenceBuilder, case: Case, counts: CgroupCounts) -> Found | None:
    """A leak with few zombies yet that will have made many within a day; None if there is none."""
    ahead, growth = zombie_forecast(case, counts), counts.growth
    if ahead is None or growth is None or growth.per_hour < ZOMBIES.limit("growth_per_hour"):
        return None
    if ahead.milestones[0].in_s > ZOMBIES.limit("ahead_s"):
        return None
    return _dormant(builder, case, counts, find_leak(case))


def _dormant(builder: EvidenceBuilder, case: Case, counts: CgroupCounts, leak: Leak | None) -> Found:
    """Many zombies now or soon, but no samples of a core walking them."""
    _add_counts(builder, case, counts)
    many = (counts.dying or 0) >= ZOMBIES.limit("many")
    # Whether their number grows beyond the few that come and go with every container.
    if counts.growth is None:
        growing = leak is not None and leak.leaker.zombies >= ZOMBIES.limit("least_gained")
    else:
        gained, pace = counts.growth.last - counts.growth.first, counts.growth.per_hour
        growing = pace >= ZOMBIES.limit("growth_per_hour") and gained >= ZOMBIES.limit("least_gained")
        if growing:
            builder.add(Role.CULPRIT, "growth", counts.evidence_of_growth, counts.evidence("dying"), per_hour=pace)
        over = counts.growth.ended
        if over is not None and over.gained >= ZOMBIES.limit("least_gained"):
            grown = {"gained": over.gained, "seconds": over.seconds, "rate": over.per_second}
            ago = (case.focus.until - over.until) / NANOS
            builder.add(Role.CULPRIT, "grown", *counts.evidence_of_episode(over), values=grown, ago=ago)
            # A growth that ended within the window is still what happened.
            growing = growing or over.until > case.focus.since
    owner = _add_leak(builder, case, counts, leak)
    share, cpu, at = case.core_share(KERNEL_STATES)
    if many and not case.has_stacks and share >= ZOMBIES.limit("kernel_share") and cpu is not None:
        builder.add(Role.MECHANISM, "kernel-unsampled", _quote_system(case, cpu, at), at=at, cpu=cpu, share=share)
        severity = Severity.WARNING
    else:
        # The zombies certainly exist; what they cost is unknown.
        builder.support("strong")
        severity = Severity.WARNING if growing and many else Severity.INFO
    culprit = Culprit()
    if leak is not None:
        culprit = Culprit(pid=leak.maker_pid, comm=leak.maker, container=leak.owner.container)
    remedies, values = stop_remedies(ZOMBIES.remedies, owner), {"leak": leak, **_counted(counts)}
    ahead = zombie_forecast(case, counts)
    return builder.found(
        severity, "summary-dormant", culprit=culprit, weight=0.0, remedies=remedies, forecast=ahead, values=values
    )


def zombie_forecast(case: Case, counts: CgroupCounts | None, walk: Load | None = None) -> Forecast | None:
    """Forecast the growth of zombies; None if they don't grow, or if there are too few counts to tell how fast."""
    if counts is None or counts.growth is None or counts.growth.pace is None or counts.dying is None:
        return None
    pace, tracked = counts.growth.pace, counts.kernel or counts.dying
    if counts.growth.last - counts.growth.first < ZOMBIES.limit("least_gained"):
        return None
    single = Estimate(1.0, 1.0, 1.0)
    ahead: list[Milestone | None] = [
        milestone("many", ZOMBIES.limit("many"), "", count=counts.dying, cost=single, pace=pace)
    ]
    held = _held_by_each(case, counts)
    memory = case.now("node").newest("mem_total")
    if held is not None and memory is not None:
        limit = ZOMBIES.limit("memory_part") * memory * 1024
        ahead.append(milestone("memory", limit, "B", count=counts.dying, cost=held, pace=pace))
    cost = None if walk is None else round_cost(case, walk, _counted_at(case, counts, "kernel"))
    if cost is not None:
        ahead += walk_milestones(tracked, cost, pace)
    milestones = tuple(sorted((each for each in ahead if each is not None), key=lambda each: each.in_s))
    text = forecast_text("zombies", pace, milestones, us=cost, bytes=held)
    return Forecast("zombies", counts.dying, pace, milestones, text, cost, held)


def _held_by_each(case: Case, counts: CgroupCounts) -> Estimate | None:
    """The kernel memory (bytes) that each additional zombie took, from the growth of their number: unreclaimable slab
    and per-CPU memory. It depends on the kernel and on the number of mounts (mm/shrinker.c, alloc_shrinker_info)."""
    assert counts.growth is not None
    seconds = (case.focus.until - counts.growth.since) / NANOS
    rows, node = _rows_of(case, counts, seconds), case.recorded("node", seconds)
    listed = ((wall, slab, percpu) for wall, slab, percpu in node.listed("wall", "slab_unreclaimable", "percpu"))
    memory = sorted((wall, (slab + percpu) * 1024) for wall, slab, percpu in listed if None not in (slab, percpu))
    return held_by_each(sorted(each for each in rows.listed("wall", "dying") if each[1] is not None), memory)


def _rows_of(case: Case, counts: CgroupCounts, seconds: float) -> Rows:
    """The counts of a whole hierarchy, in this many seconds up to the end of the focus."""
    return case.recorded("cgroups", seconds).matching("parent", "").matching("hierarchy", counts.hierarchy)


def _counted_at(case: Case, counts: CgroupCounts, column: str) -> list[tuple[int, int]]:
    """The counts of a hierarchy at wall times, in order."""
    rows = _rows_of(case, counts, LOOKED_BACK_S)
    return sorted(each for each in rows.listed("wall", column) if each[1] is not None)


def _counted(counts: CgroupCounts | None) -> dict[str, object]:
    if counts is None or counts.dying is None:
        return {"dying": None, "tracked": None, "visible": None}
    return {"dying": counts.dying, "tracked": counts.kernel or 0, "visible": counts.visible or 0}


def _add_counts(builder: EvidenceBuilder, case: Case, counts: CgroupCounts) -> None:
    age = (case.focus.until - counts.at) / NANOS
    quotes = [counts.evidence(column) for column in ("kernel", "visible", "dying")]
    values = {**_counted(counts), "minutes": age / 60 if age > ZOMBIES.limit("fresh_s") else None}
    builder.add(Role.ROOT_CAUSE, "counts", *quotes, strength="counted", values=values)


def _add_leak(builder: EvidenceBuilder, case: Case, counts: CgroupCounts | None, leak: Leak | None) -> CgroupOwner:
    """Add the leaker, or at least the parent of the zombies; return what has to be stopped."""
    if leak is None:
        builder.doubt("no-leaker", 1.0)
        place = None if counts is None or counts.dying is None else leaking_parent(case, counts)
        if place is None:
            return CgroupOwner()
        path, dying, quote = place
        owner, parent = owner_of(case, path), Entity(EntityKind.CGROUP, path, path)
        builder.add(Role.ROOT_CAUSE, "parent", quote, dying=dying, parent=parent, owner=owner or None)
        return owner
    leaker = leak.leaker
    ago, rate = leaker.ended_ago(case.focus.until), leaker.per_hour or None
    values: dict[str, object] = {"zombies": leaker.zombies, "pattern": leaker.pattern, "leak": leak, "ago": ago}
    values |= {"rate": rate if ago is None else None, "past": rate if ago is not None else None}
    builder.add(Role.ROOT_CAUSE, "leaked", *leak.evidence, strength="weak", at=leaker.last, values=values)
    if leak.starter is not None:
        _add_starter(builder, leak, leak.starter)
    return leak.stoppable


def _add_starter(builder: EvidenceBuilder, leak: Leak, starter: UnitStarter) -> None:
    """Add the unit that starts the leaking container."""
    values: dict[str, object] = {"unit": starter.entity, "times": starter.times, "code": starter.code}
    values |= {"container": leak.owner.name, "command": starter.command}
    builder.add(Role.ROOT_CAUSE, "started", *starter.evidence, at=leak.leaker.last, values=values)
    if starter.command is None:
        builder.doubt("no-client", "no_client_factor", unit=starter.unit)


def _quote_system(case: Case, cpu: int | None, at: int) -> Evidence | None:
    return quote_column(case.now("cpu").on(cpu).within(Window(at, at + 1)), "system", "max", "permille", cpu)


@examines(EXCESS)
def cgroup_excess(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    counts = max(cgroup_counts(case), key=_live, default=None)
    if counts is None:
        return builder.rule_out("uncounted")
    if _live(counts) < EXCESS.limit("many"):
        return builder.rule_out("usual", count=_live(counts))
    samples = case.samples
    # Files of sysfs are kernfs files as well, but don't count.
    walking = samples.holding(EXCESS.names) & ~samples.holding(EXCESS.group("sysfs"))
    walk = case.load_of(walking)
    # Whether a process was busy walking: by a core's time, or by its own time if it has to share the core.
    shared = walk.peak >= EXCESS.limit("shared_core") and case.hold(walk).owner_part >= EXCESS.limit("own_part")
    hot = walk.peak >= EXCESS.limit("core_share") * case.turn or shared
    seen = counts.visible is not None
    agent = None if hot else _find_agent(case, walking)
    if not seen and not hot and agent is None:
        return builder.rule_out("not-walked")
    values = {"count": _live(counts), "visible": seen, "hierarchy": counts.hierarchy}
    quote = counts.evidence("visible" if seen else "kernel")
    builder.add(Role.ROOT_CAUSE, "counts", quote, strength="counted", values=values)
    if agent is not None:
        return _agent(builder, case, agent, walk, counts)
    if not hot:
        builder.support("fair")
        ahead = _live_forecast(case, counts)
        return builder.found(Severity.INFO, "summary-dormant", weight=0.0, forecast=ahead, count=_live(counts))
    culprit = _add_walk(builder, EXCESS, walk, EXCESS.names, "fair")
    if not seen:
        builder.doubt("live-uncounted", "uncounted_factor")
    whole, owner = walk, walk.main_owner
    if owner is not None:
        # If the walk is much of the walker's time, add the rest: it also has to open the files and parse what it reads.
        own = (samples.pid == owner.pid) & samples.within(case.focus)
        if samples.time(own & walk.mask) >= EXCESS.limit("walker_part") * samples.time(own):
            whole = case.load_of(walking | (samples.pid == owner.pid))
    values, ahead = {"who": culprit.process, "count": _live(counts)}, _live_forecast(case, counts, whole)
    severity = severity_of(case, whole)
    return builder.found(severity, "summary", culprit=culprit, load=whole, forecast=ahead, values=values)


def _live_forecast(case: Case, counts: CgroupCounts, walk: Load | None = None) -> Forecast | None:
    """Forecast the growth of live cgroups: each holds kernel memory, and a walk over all of them takes time."""
    points = _counted_at(case, counts, "visible" if counts.visible is not None else "kernel")
    return grown_forecast(case, "cgroups", points, ("slab_unreclaimable", "percpu"), walk=walk)


def _find_agent(case: Case, walking: Mask) -> int | None:
    """The process that spends most on files of cgroups, over all its threads and cores; None if no process spends a
    good part of its time on them."""
    samples, now = case.samples, case.samples.within(case.focus) & (case.samples.pid > 0)
    if not (walking & now).any():
        return None
    elsewhere = samples.holding(EXCESS.group("elsewhere"))
    files = walking | (samples.holding(EXCESS.group("paths")) & ~elsewhere)
    pids, members = np.unique(samples.pid[now], return_inverse=True)
    own, named, other, about = (
        np.bincount(members, samples.weight[now] * mask[now], len(pids))
        for mask in (np.ones(len(samples)), walking, elsewhere, files)
    )
    counts = np.bincount(members, walking[now], len(pids))
    is_agent = (
        (own >= EXCESS.limit("agent_cores") * case.focus.seconds * 1e6)
        & (about >= EXCESS.limit("agent_files") * own)
        & (named >= EXCESS.limit("agent_named") * own)
        & (named >= EXCESS.limit("agent_mostly") * (named + other))
        & (counts >= EXCESS.limit("agent_samples"))
    )
    return int(pids[int(np.argmax(np.where(is_agent, about, 0.0)))]) if is_agent.any() else None


def _agent(builder: EvidenceBuilder, case: Case, pid: int, walk: Load, counts: CgroupCounts) -> Found:
    """The finding on an agent whose threads walk cgroups: it counts all its time, as it has to parse what it reads."""
    samples = case.samples
    whole = case.load_of(samples.pid == pid)
    files = samples.holding(EXCESS.group("paths")) & ~samples.holding(EXCESS.group("elsewhere"))
    own = case.load_of((walk.mask | files) & (samples.pid == pid))
    function = samples.nearest(walk.mask & (samples.pid == pid), EXCESS.names)
    culprit = replace(case.culprit(whole, function), cpu=None)
    values = {"who": culprit.process, "function": function, "files": own.cores / max(whole.cores, 1e-9)}
    focus, match = case.focus, (("pid", str(pid)),)
    used = round(samples.time(whole.mask))
    quotes = (
        Evidence("samples", "weight_us", "sum", used, focus.since, focus.until, match=match, unit="us"),
        quote_share(case, case.load_of(walk.mask & (samples.pid == pid)), EXCESS.functions, pid),
    )
    builder.add(Role.MECHANISM, "agent", *quotes, strength="fair", load=whole, values=values)
    values, ahead = {"who": culprit.process, "count": _live(counts)}, _live_forecast(case, counts, whole)
    severity = severity_of(case, whole)
    return builder.found(severity, "summary", culprit=culprit, load=whole, forecast=ahead, values=values)


def _live(counts: CgroupCounts) -> int:
    """The number of live cgroups; if those were not counted, all that the kernel has."""
    return (counts.visible if counts.visible is not None else counts.kernel) or 0
