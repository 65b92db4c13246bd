"""Processes start and end by the thousands: the kernel is busy with fork, exec and exit instead of their work."""

from dataclasses import replace

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import CORE_TAKEN, Load, Owner
from exhume.diagnose.evidence.quotes import quote_column, quote_core, quote_share
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.facts.lifetimes import ShortLived, find_short_lived
from exhume.diagnose.facts.owners import for_engine, owner_of
from exhume.diagnose.symptoms import severity_of
from exhume.model.finding import Culprit, Remedy, Role, RuledOut, Severity

CAUSE = catalogue()["fork-storm"]


@examines(CAUSE)
def fork_storm(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    node, samples = case.now("node"), case.samples
    # The last tick of a recording may be a short one: a rate that is extrapolated from it was never counted.
    rates = node.numbers("forks") / np.maximum(node.numbers("span_ms"), 1000) * 1000
    rate = float(np.nanmax(rates)) if not np.isnan(rates).all() else None
    if rate is not None and rate < CAUSE.limit("least_forks"):
        return builder.rule_out("few", rate=rate)
    if not case.has_stacks:
        return _by_counter(builder, case, rate)
    brief = find_short_lived(case)
    # Processes that take long to exit have much memory to free: a single such exit is not a storm.
    dying = samples.holding(CAUSE.group("ending"))
    pids, members = np.unique(samples.pid[dying], return_inverse=True)
    spent = np.bincount(members, samples.weight[dying], len(pids)) / 1e6
    slow = np.isin(samples.pid, pids[(spent >= CAUSE.limit("long_death_s")) & (pids > 0)])
    births = samples.holding(CAUSE.names) & ~(dying & slow)
    # If short-lived processes do next to nothing, their kernel time is the price of starting them; if they do more,
    # only their faults and mappings are.
    settling = brief.mask & samples.in_kernel
    started = case.now("node").total("forks")
    if not started or samples.time(brief.mask) / 1e6 / started > CAUSE.limit("moment_s"):
        settling &= samples.holding(CAUSE.group("settling"))
    load = case.load_of(births | settling)
    if case.load_of(births).cores < CAUSE.limit("births_part") * load.cores:
        return builder.rule_out("other-work")
    forker = _forker(case, brief)
    if _is_usual(case, forker, rate):
        return builder.rule_out("usual", rate=rate)
    # It must take one core, be the work of one parent, or take a good part of the node: spread thinly over many cores
    # and programs, it is normal activity.
    least = CAUSE.limit("core_share") * case.turn
    concentrated = load.peak >= least or load.together >= max(least, CAUSE.limit("node_part") * case.cores)
    of_one = (
        forker is not None
        and forker.part >= CAUSE.limit("forker_part")
        and _own(case, load, brief, forker).together >= least
    )
    if not concentrated and not of_one:
        return builder.rule_out("spread", together=load.together)
    if load.cores < CAUSE.limit("lasting_share") * case.turn and load.taken_s < CAUSE.limit("seconds"):
        return builder.rule_out("moment", together=load.together)
    # The fraction of the time of the short-lived processes and their parents that went to fork, exec and exit. A
    # compiler's short-lived processes mostly work; a storm's do not.
    lives = brief.with_parents | load.mask
    part = _part(case, load, lives)
    if forker is not None and of_one:
        # Short-lived processes of other programs don't make this parent's children useful.
        part = max(part, _part(case, load, lives & np.isin(samples.pid, brief.pids_of(forker.pid))))
    if part < CAUSE.limit("own_part"):
        return builder.rule_out("useful", part=part)
    strength = CAUSE.limit("strength") * min(1.0, min(1.0, load.together) / CAUSE.limit("whole_core"))
    quote, cpu = quote_share(case, case.load(CAUSE.names), CAUSE.functions), load.cpu if load.peak >= least else None
    builder.add(Role.MECHANISM, "load", quote, strength=strength, load=load, cpu=cpu, part=part)
    _add_rate(builder, case, rate)
    if forker is not None:
        rows = case.now("processes").within(case.focus)
        rows, match = rows.where(rows.numbers("ppid") == forker.pid), (("ppid", str(forker.pid)),)
        values = {"who": forker.entity, "part": forker.part, "command": case.command(forker.pid)}
        strength = CAUSE.limit("weak_strength") * forker.part
        quoted = quote_column(rows, "pid", "count", match=match)
        builder.add(Role.CULPRIT, "parent", quoted, strength=strength, values=values)
    else:
        builder.doubt("no-parent")
    return _found(builder, case, load, brief, forker, rate)


def _found(  # noqa: PLR0917
    builder: EvidenceBuilder, case: Case, load: Load, brief: ShortLived, forker: Owner | None, rate: float | None
) -> Found:
    main = forker if forker is not None and forker.part >= CAUSE.limit("forker_part") else None
    # All that belongs to the storm: what the short-lived processes did as programs, and a parent that does nothing
    # else.
    storm = case.load_of(load.mask | brief.mask | np.isin(case.samples.pid, [main.pid] if main else []))
    severity = severity_of(case, storm)
    if severity is Severity.INFO and forker is not None and _own(case, storm, brief, forker).cores >= CORE_TAKEN:
        # One parent causes it, even if it migrates over many cores.
        severity = Severity.WARNING
    if load.before is not None and not load.is_new:
        builder.doubt("not-new")
        severity = Severity.WARNING if severity is Severity.CRITICAL else severity
    function = case.samples.nearest(load.mask & case.samples.holding(CAUSE.names), CAUSE.names)
    culprit = case.culprit_of(main.pid, main.comm, load.cpu, function) if main else case.culprit(load, function)
    costly = rate is not None and rate < CAUSE.limit("many_forks")
    key, target = "summary-costly" if costly else "summary", "PID" if culprit.pid is None else str(culprit.pid)
    values = {"who": main.entity if main is not None else None, "rate": rate, "together": load.together}
    remedies = _remedies(case, culprit, target)
    return builder.found(severity, key, culprit=culprit, load=storm, remedies=remedies, values=values)


def _remedies(case: Case, culprit: Culprit, target: str) -> tuple[Remedy, ...]:
    """The remedies for a process; a limit only for the unit or container that it runs in."""
    owner = owner_of(case, culprit.cgroup)
    chosen: list[Remedy] = []
    for each in CAUSE.remedies:
        if each.id != "limit-tasks":
            chosen += aim((each,), target)
        elif owner.container is not None and owner.pod is None:
            limit = replace(each, template="docker update --pids-limit 256 --cpus 0.5 {target}")
            chosen += aim((for_engine(limit, owner),), owner.target)
        elif owner.unit is not None and owner.container is None:
            chosen += aim((each,), owner.unit)
    return tuple(chosen)


def _is_usual(case: Case, forker: Owner | None, rate: float | None) -> bool:
    """Whether programs of many parents start about as many processes as before, and not many: that takes longer on a
    node that is full of work, but is not a storm."""
    usual = case.before("node").per_second("forks")
    if rate is None or usual is None or (forker is not None and forker.part >= CAUSE.limit("forker_part")):
        return False
    return rate < min(CAUSE.limit("many_forks"), CAUSE.limit("rise") * usual)


def _part(case: Case, load: Load, lives: Mask) -> float:
    """The fraction of the masked time that the load takes."""
    total = case.samples.time(lives)
    return case.samples.time(load.mask & lives) / total if total else 0.0


def _own(case: Case, load: Load, brief: ShortLived, forker: Owner) -> Load:
    """The part of a load that belongs to one parent and its children."""
    return case.load_of(load.mask & np.isin(case.samples.pid, brief.pids_of(forker.pid)))


def _add_rate(builder: EvidenceBuilder, case: Case, rate: float | None) -> None:
    if rate is None:
        builder.doubt("uncounted")
        return
    usual = case.before("node").per_second("forks")
    new = usual is None or rate >= CAUSE.limit("rise") * usual
    many = rate >= CAUSE.limit("many_forks")
    strength = "rate_strength" if many and new else "weak_strength" if many or new else 0.0
    quote = quote_column(case.now("node"), "forks", "max")
    builder.add(Role.MECHANISM, "rate", quote, strength=strength, rate=rate, before=usual)


def _forker(case: Case, brief: ShortLived) -> Owner | None:
    """The parent of most short-lived processes, and its fraction of them."""
    if not brief.parents:
        return None
    pid, children = brief.parents[0]
    known = case.processes.get(pid)
    comm = (known.comm if known is not None else None) or f"process {pid}"
    return Owner(pid, comm, children / sum(count for _, count in brief.parents))


def _by_counter(builder: EvidenceBuilder, case: Case, rate: float | None) -> Found | RuledOut:
    """Without stacks: compare the node's fork count with its size, and check for cores that are busy in the kernel."""
    if rate is None:
        return builder.rule_out("unrecorded")
    usual = case.before("node").per_second("forks")
    share, cpu, at = case.core_share(("system",))
    risen = usual is not None and rate >= CAUSE.limit("rise") * usual
    if not risen or rate < CAUSE.limit("many_forks") or share < CAUSE.limit("busy_core"):
        return builder.rule_out("no-busy-core", rate=rate)
    _add_rate(builder, case, rate)
    core = quote_core("system", share, cpu, at)
    builder.add(Role.MECHANISM, "kernel", core, strength="core_strength", cpu=cpu, share=share)
    values, culprit = {"rate": rate, "cpu": cpu}, Culprit(cpu=cpu)
    remedies = _remedies(case, culprit, "PID")
    return builder.found(
        Severity.WARNING, "summary-counted", culprit=culprit, weight=1.0, remedies=remedies, values=values
    )
