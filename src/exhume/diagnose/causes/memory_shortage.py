"""Memory shortage in a cgroup or on the node: direct reclaim in the allocating task, and repeated OOM kills."""

import re
import shlex
from collections import Counter
from dataclasses import dataclass, replace

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column, quote_event, quote_share
from exhume.diagnose.facts.hierarchies import V2, controller_root
from exhume.diagnose.facts.owners import CgroupOwner, fit_remedies, owner_of
from exhume.diagnose.symptoms import hurts_others, severity_of
from exhume.model.clock import NANOS, Window
from exhume.model.finding import (
    Culprit,
    Entity,
    EntityKind,
    Evidence,
    Remedy,
    Role,
    RuledOut,
    Severity,
    process_entity,
)
from exhume.store.read.events import EventView

RECLAIM = catalogue()["memory-reclaim"]
OOM = catalogue()["oom-thrash"]
LIMIT, NODE, BACKGROUND = "limit", "node", "background"


def _cgroup(path: str | None) -> Entity | None:
    return None if path is None else Entity(EntityKind.CGROUP, path, path)


@examines(RECLAIM)
def memory_reclaim(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    load, node = case.load(RECLAIM.names), case.now("node")
    # The share of time in which tasks stalled for memory (PSI), and the pages scanned by direct reclaim per second.
    stalled, scanned = (node.per_second("psi_memory_some") or 0.0) / 1e6, node.per_second("pgscan_direct") or 0.0
    before = case.before("node").per_second("pgscan_direct") or 0.0
    risen = scanned >= max(RECLAIM.limit("scanned_per_second"), RECLAIM.limit("rise") * before)
    short = stalled >= RECLAIM.limit("stalled")
    hot = load.peak >= RECLAIM.limit("core_share") or load.cores >= RECLAIM.limit("node_share") * case.cores
    if not hot and (case.has_stacks or not (short or risen)):
        return builder.rule_out("share", peak=load.peak, stalled=stalled)
    # The shortage that takes most of the time: a cgroup at its limit, or the node (in direct reclaim, or in kswapd).
    loads = {kind: case.load(RECLAIM.group(kind)) for kind in (LIMIT, NODE, BACKGROUND)}
    kind = max(loads, key=lambda each: loads[each].cores) if any(each.cores for each in loads.values()) else NODE
    culprit = _add_reclaim(builder, case, load, loads[kind], RECLAIM.groups[kind]) if hot else Culprit()
    quotes = [quote_column(node, "psi_memory_some", "sum", "us"), quote_column(node, "pgscan_direct", "sum", "pages")]
    quotes = [each for each in quotes if each is not None and each.value]
    if quotes:
        strength = "fair" if stalled >= RECLAIM.limit("stalled_much") or risen else "weak" if short else 0.0
        builder.add(Role.MECHANISM, "pressure", *quotes, strength=strength, stalled=stalled, scanned=scanned or None)
    whole = _with_page_ins(case, load) if short else load
    available = _add_shortage(builder, case, kind, loads[LIMIT], culprit)
    owner = owner_of(case, culprit.cgroup)
    advice = "raise-limit" if kind == LIMIT else "find-hog"
    ids = (advice, "see-pressure", *(["raise-pod-memory"] if kind == LIMIT else []))
    fitting = tuple(each for each in RECLAIM.remedies if each.id in ids)
    severity = severity_of(case, whole)
    much, scarce = (
        stalled >= RECLAIM.limit("stalled_much"),
        available is not None and available < RECLAIM.limit("available"),
    )
    if kind == BACKGROUND and not much and not scarce and not hurts_others(case, whole.cpu, whole.mask):
        # kswapd making room for a busy page cache is doing its job, and no task waits for it.
        most = Severity.WARNING if whole.peak >= RECLAIM.limit("whole_core") else Severity.INFO
        severity = min(severity, most, key=lambda each: each.rank)
    elif severity is Severity.INFO and much:
        severity = Severity.WARNING
    fitting = _of_cgroup(case, fitting, owner, culprit.cgroup)
    remedies = fit_remedies(fitting, owner, owner.target or culprit.cgroup or "it")
    values = {"who": culprit.process, "where": owner or _cgroup(culprit.cgroup)}
    return builder.found(severity, f"summary-{kind}", culprit=culprit, load=whole, remedies=remedies, values=values)


def _of_cgroup(case: Case, remedies: tuple[Remedy, ...], owner: CgroupOwner, cgroup: str | None) -> tuple[Remedy, ...]:
    """The remedies, with the file of the limit for a cgroup that is no container, pod or unit."""
    if owner or cgroup is None:
        return remedies
    version, root = controller_root(case, "memory")
    file = "memory.max" if version == V2 else "memory.limit_in_bytes"
    template = f"echo SIZE > {shlex.quote(root)}{{target}}/{file}"
    return tuple(replace(each, template=template) if each.id == "raise-limit" else each for each in remedies)


def _add_reclaim(
    builder: EvidenceBuilder, case: Case, load: Load, of_kind: Load, functions: tuple[str, ...]
) -> Culprit:
    own = of_kind if of_kind.samples else load
    culprit = case.culprit(own, case.samples.nearest(own.mask, RECLAIM.names) or RECLAIM.functions[0])
    # A process that does nothing else gets less than a core if it has to share it.
    owned = case.hold(load).owner_part
    strong = load.peak >= RECLAIM.limit("core_share_strong") or owned >= RECLAIM.limit("own_part")
    quote = quote_share(case, own, functions if of_kind.samples else RECLAIM.functions)
    values = {"who": culprit.process, "function": culprit.function, "cores": load.cores, "before": load.before}
    builder.add(Role.MECHANISM, "reclaim", quote, strength="strong" if strong else "fair", load=own, values=values)
    return culprit


def _with_page_ins(case: Case, load: Load) -> Load:
    """If reclaim is much of the owner's kernel time and tasks stall, the load with the rest of that kernel time:
    reclaimed pages have to be read in again, which is part of the same trouble."""
    owner, samples = load.main_owner, case.samples
    if owner is None:
        return load
    own = (samples.pid == owner.pid) & samples.in_kernel
    now = own & samples.within(case.focus)
    if samples.time(now & load.mask) < RECLAIM.limit("freeing_part") * samples.time(now):
        return load
    return case.load_of(samples.holding(RECLAIM.names) | own)


def _add_shortage(builder: EvidenceBuilder, case: Case, kind: str, limit: Load, culprit: Culprit) -> float | None:
    """Add what is short; return the fraction of the node's memory that was available."""
    node = case.now("node")
    available, total = quote_column(node, "mem_available", "min", "KiB"), quote_column(node, "mem_total", "max", "KiB")
    share = None
    if available is not None and total is not None and float(total.value) > 0:
        share = float(available.value) / float(total.value)
    if kind == LIMIT:
        quotes = (quote_share(case, limit, RECLAIM.groups[LIMIT]), available, total)
        values = {"cgroup": _cgroup(culprit.cgroup), "available": share}
        builder.add(Role.ROOT_CAUSE, "at-limit", *quotes, strength="weak", values=values)
    elif share is not None and share < RECLAIM.limit("available"):
        builder.add(Role.ROOT_CAUSE, "node-short", available, total, strength="fair", available=share)
    elif kind == NODE and share is not None:
        builder.doubt("available", "unexplained", available=share)
    return share


# mm/oom_kill.c, dump_oom_summary (since 5.0): the cgroup whose limit was hit is named before the victim's cgroup.
_SUMMARY = re.compile(
    r"oom-kill:constraint=(?P<constraint>\w+),.*?(?:oom_memcg=(?P<limit>[^,]+),)?"
    r"task_memcg=(?P<cgroup>[^,]+),task=(?P<comm>.*),pid=(?P<pid>\d+)"
)
# mm/memcontrol.c, mem_cgroup_print_oom_info before 5.0: only the limit of a cgroup is logged.
_LIMIT_LINE = re.compile(r"Task in (?P<cgroup>/.*) killed as a result of limit of (?P<limit>/.*)")
_WHOLE_NODE, _ONE_CGROUP = "CONSTRAINT_NONE", "CONSTRAINT_MEMCG"
_KILL = "oom-kill"


@dataclass(frozen=True, slots=True)
class Kills:
    """All OOM kills of a window: those in the log, the name killed most often, the cgroup whose limit was hit most, how
    many, and in how many bouts: one bout may take all processes of a cgroup."""

    logged: list[EventView]
    victim: str | None
    cgroup: str | None
    constraint: str | None
    number: int
    bouts: int
    evidence: tuple[Evidence, ...]


@examines(OOM)
def oom_thrash(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    # A starved node writes its log late.
    now = _find_kills(case, Window(case.focus.since - NANOS, case.focus.until + NANOS))
    lately_s, repeated = OOM.limit("lately_s"), OOM.limit("repeated")
    lately = _find_kills(case, Window(case.focus.until - round(lately_s * NANOS), case.focus.until + NANOS))
    if not now.number:
        return builder.rule_out("none")
    samples = case.samples
    # The kernel time of the victims: it goes to faults, reclaim and their exit.
    victims = samples.of_comms({kill.comm for kill in now.logged if kill.comm}) & samples.in_kernel
    load = case.load_of(victims | samples.holding(OOM.names))
    # The victim that is killed now; others may have been killed more often before.
    comm = now.victim or lately.victim
    # Processes that were killed together count once.
    times = len({kill.wall // NANOS for kill in lately.logged if kill.comm is not None and kill.comm == comm})
    cgroup = now.cgroup or lately.cgroup
    counts: dict[str, object] = {"now": now.number, "seconds": case.focus.seconds}
    counts |= {"kills": lately.number, "minutes": lately_s / 60}
    often = lately.bouts >= repeated
    quotes = lately.evidence or now.evidence
    builder.add(Role.SYMPTOM, "kills", *quotes, strength="strong" if often else "fair", values=counts)
    if not lately.logged:
        builder.doubt("no-log", "unlogged_factor")
    functions = (*OOM.functions, *OOM.groups["reclaim"])
    killing = case.load(functions)
    if load.together >= OOM.limit("core_share") and killing.samples:
        quote, function = quote_share(case, killing, functions), samples.nearest(load.mask, OOM.names)
        builder.add(Role.MECHANISM, "killing", quote, strength="weak", cores=load.cores, function=function)
    owner = owner_of(case, cgroup)
    victim = next((kill for kill in reversed(lately.logged) if kill.comm == comm), None)
    values = {"who": None if comm is None else process_entity(comm), "times": times, "where": owner or _cgroup(cgroup)}
    if times >= repeated:
        node = (now.constraint or lately.constraint) == _WHOLE_NODE
        key = "repeated-node" if node else "repeated-limit"
        builder.add(Role.ROOT_CAUSE, key, *lately.evidence[-1:], strength="fair", values=values)
    severity = Severity.WARNING if often else Severity.INFO
    severity = Severity.CRITICAL if now.bouts >= repeated else severity
    pid, inside = victim.pid if victim else None, {"cgroup": cgroup, "container": owner.container, "pod": owner.pod}
    weight, culprit = max(load.cores * case.focus.seconds, float(now.number)), Culprit(load.cpu, pid, comm, **inside)
    fitting = _of_cgroup(case, OOM.remedies, owner, cgroup)
    remedies = fit_remedies(fitting, owner, owner.target or cgroup or comm or "it")
    return builder.found(
        severity, "summary", culprit=culprit, load=load, weight=weight, remedies=remedies, values=counts | values
    )


def _find_kills(case: Case, window: Window) -> Kills:
    """Find the kills of a window (which may begin before the focus) from the log and from the node's counter."""
    logged: list[EventView] = []
    limits: Counter[str] = Counter()
    constraints: Counter[str] = Counter()
    evidence: list[Evidence] = []
    for event in case.recording.events(window):
        if event.kind == _KILL:
            logged.append(event)
            if not evidence or evidence[0].since != event.wall:
                # If several have the same time, quote the first, as that is the one a lookup of the quote finds.
                evidence = [quote_event(event)]
        elif summary := _SUMMARY.search(event.text):
            constraints[summary["constraint"]] += 1
            limits[summary["limit"] or summary["cgroup"]] += 1
        elif line := _LIMIT_LINE.match(event.text):
            constraints[_ONE_CGROUP] += 1
            limits[line["limit"]] += 1
    rows = case.recorded("node", (case.focus.until - window.since) / NANOS).within(window)
    counted = quote_column(rows, "oom_kill", "sum")
    if counted is not None and counted.value:
        evidence.insert(0, counted)
    victims = Counter(kill.comm for kill in logged if kill.comm)
    victim, cgroup, constraint = (
        each.most_common(1)[0][0] if each else None for each in (victims, limits, constraints)
    )
    # The log is rate-limited, the counter is not; if one source is missing, use the other.
    number = max(len(logged), int(counted.value) if counted is not None else 0)
    bouts = max(len({kill.wall // NANOS for kill in logged}), int((rows.numbers("oom_kill") > 0).sum()))
    return Kills(logged, victim, cgroup, constraint, number, bouts, tuple(evidence))
